"""Logs that are followed give what the batch jobs give for the same logs."""

from __future__ import annotations

import json
import random
import time

import pytest

from trellis.errors import InputError
from trellis.pipeline import jobs
from trellis.pipeline.jobs.watch import watching
from trellis.pipeline.tail import Tail, complete_lines, lines_between


def log_lines(seed, count, node):
    chance = random.Random(seed)
    for number in range(count):
        event = chance.choice(["subscribe"] * 4 + ["unsubscribe", "publish", "publish", "join", "leave"])
        line = {"time": 1.7e9 + number * 3 + chance.random(), "node": f"{node}{chance.randrange(4)}", "event": event}
        if event in ("subscribe", "unsubscribe", "publish"):
            line["topic"] = f"t{chance.randrange(6)}"
        if event == "publish":
            line |= {"count": chance.randrange(5), "seconds": 2.5}
        yield json.dumps(line) + "\n"


def append(path, lines):
    with path.open("a") as stream:
        stream.write("".join(lines))


def rows(spark, folder):
    return sorted(map(tuple, spark.read.option("pathGlobFilter", "*.parquet").parquet(str(folder)).collect()))


def read_all(spark, logs, output):
    with watching(spark, logs, output, every_s=None) as (query, _):
        query.awaitTermination()


def assert_as_batch(spark, logs, output, tmp_path):
    jobs.pairs(spark, logs, tmp_path / "interests", format="telemetry", overwrite=True)
    jobs.rates(spark, logs, tmp_path / "rates", overwrite=True)
    assert rows(spark, output / "interests") == rows(spark, tmp_path / "interests")
    assert rows(spark, output / "rates") == rows(spark, tmp_path / "rates")


def test_a_log_is_known_by_its_content_and_read_up_to_its_last_line_end(tmp_path):
    log = tmp_path / "events.jsonl"
    log.write_bytes(b"one\r\ntwo\nthr")
    reader = Tail([str(tmp_path)])
    first = reader.latestOffset()
    assert list(first.values()) == [9]
    (piece,) = reader.partitions({}, first)
    assert list(lines_between(piece.path, piece.start, piece.stop)) == [b"one", b"two"]
    log.rename(tmp_path / "events.jsonl.1")
    append(tmp_path / "events.jsonl.1", "ee\n")
    log.write_text("new\n")
    second = reader.latestOffset()
    found = [list(lines_between(one.path, one.start, one.stop)) for one in reader.partitions(first, second)]
    assert sorted(found) == [[b"new"], [b"three"]]
    (tmp_path / "events.jsonl.1").unlink()
    with pytest.raises(RuntimeError, match="a log was deleted before all of it was read, at byte 9 of 15"):
        reader.partitions(first, second)
    assert len(complete_lines([str(tmp_path / "events*")])) == 1


@pytest.mark.slow
def test_what_is_watched_equals_the_batch_also_after_a_crash_between_its_steps(spark, tmp_path, monkeypatch):
    log, output = tmp_path / "logs" / "a.jsonl", tmp_path / "out"
    log.parent.mkdir()
    lines = list(log_lines(1, 120, "a"))
    append(log, lines[:70])
    read_all(spark, log.parent, output)
    append(log, lines[70:])
    with monkeypatch.context() as patched:
        patched.setattr("trellis.pipeline.jobs.watch.Watch.publish", lambda self: 1 / 0)
        with pytest.raises(Exception, match="division"):
            read_all(
                spark, log.parent, output
            )  # the state has the batch; what people read does not, nor does Spark know
    read_all(spark, log.parent, output)
    assert_as_batch(spark, str(log), output, tmp_path)
    held = set()
    for batch in sorted((output / "deltas").iterdir()):
        for node, topic, event in rows(spark, batch):
            (held.add if event == "subscribe" else held.remove)((node, topic))
    assert sorted(held) == rows(spark, output / "interests")


def test_a_watch_refuses_bad_rows_and_a_lost_checkpoint(spark, tmp_path):
    (tmp_path / "out" / "state").mkdir(parents=True)
    (tmp_path / "out" / "state" / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="has a state without its _checkpoint"):
        read_all(spark, tmp_path, tmp_path / "out")
    with pytest.raises(InputError, match="there is no log with a line in it yet"):
        read_all(spark, tmp_path / "none*", tmp_path / "other")


@pytest.mark.slow
def test_a_watch_that_is_stopped_at_random_moments_equals_the_batch(spark, tmp_path):
    chance = random.Random(5)
    logs, output = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    lines = {name: list(log_lines(name, 400, name)) for name in "ab"}
    for turn in range(10):
        for name, all_lines in lines.items():
            append(logs / f"{name}.jsonl", all_lines[turn * 40 : (turn + 1) * 40])
        if turn == 6:
            (logs / "a.jsonl").rename(logs / "a.jsonl.1")  # rotated
        with watching(spark, logs, output, format="events", every_s=0.1):
            time.sleep(chance.uniform(0, 12))
    read_all(spark, logs, output)
    assert_as_batch(spark, str(logs), output, tmp_path)
