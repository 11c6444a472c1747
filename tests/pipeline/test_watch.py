"""Logs that are followed give what the batch jobs give for the same logs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from trellis.cli.main import run
from trellis.errors import InputError, TrellisError
from trellis.pipeline import jobs
from trellis.pipeline.failures import SLOW_PYTHON
from trellis.pipeline.jobs.watch import Watch
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
    return jobs.watch(spark, logs, output, every_s=None)


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
        patched.setattr(Watch, "publish", lambda self: 1 / 0)
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
def test_the_command_reads_what_is_there_and_says_in_one_line_what_is_wrong(spark, opened, tmp_path, capsys):
    log = tmp_path / "a.jsonl"
    append(log, log_lines(3, 40, "a"))
    words = ["pipeline", "watch", str(log), "-o", str(tmp_path / "out"), "--once", "--json"]
    assert run(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["facts"]["events"] == 40
    assert report["rows"]["interests"] == len(rows(spark, tmp_path / "out" / "interests"))
    append(log, ["no event\n"])
    assert run(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "a.jsonl: 1 rows do not parse" in line
    assert "pass --on-bad-rows quarantine" in line
    assert run([*words, "--on-bad-rows", "quarantine"]) == 0
    assert json.loads(capsys.readouterr().out)["rejected"] == 1


def test_a_watch_starts_again_where_the_machine_was_too_busy(monkeypatch):
    """Spark gives its Python ten seconds to start; a busy machine needs longer."""
    began, said = [], [SLOW_PYTHON, SLOW_PYTHON, "the disk is full"]

    @contextmanager
    def busy(*_, **__):
        began.append(True)
        raise TrellisError(said[len(began) - 1])
        yield

    monkeypatch.setitem(jobs.watch.__globals__, "watching", busy)
    with pytest.raises(TrellisError, match="the disk is full"):
        jobs.watch(None, "log", "out")
    assert len(began) == 3


class Follower:
    """`trellis pipeline watch` as a process of its own, with all that it starts in one process group."""

    def __init__(self, logs, output):
        words = ["-o", str(output), "--format", "events", "--every", "0.2", "--master", "local[2]"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trellis", "pipeline", "watch", str(logs), *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def stop(self, how):
        """Stop it, and wait for its end. SIGKILL goes to Java and the workers as well."""
        if how == signal.SIGKILL:
            os.killpg(self.process.pid, how)
        else:
            self.process.send_signal(how)
        _, said = self.process.communicate(timeout=600)
        assert self.process.returncode == (143 if how == signal.SIGTERM else -9), said
        assert "Traceback" not in said


def batches(output):
    """How many batches Spark has begun, and which one the state is of."""
    begun = len([one for one in (output / "_checkpoint" / "offsets").glob("*") if one.name.isdigit()])
    manifest = output / "state" / "manifest.json"
    return begun, json.loads(manifest.read_text())["facts"]["batch"] if manifest.exists() else -1


def wait_until(is_so):
    for _ in range(6000):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("nothing happened for five minutes")


@pytest.mark.slow
def test_a_watch_that_is_killed_at_random_moments_equals_the_batch(spark, tmp_path):
    """Ten stops of the process, by SIGKILL and SIGTERM: while it starts, as a batch begins, when its state is there."""
    chance = random.Random(5)
    logs, output = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    lines = {name: list(log_lines(name, 400, name)) for name in "ab"}
    seen = []
    for turn in range(10):
        begun, remembered = batches(output)
        for name, all_lines in lines.items():
            append(logs / f"{name}.jsonl", all_lines[turn * 40 : (turn + 1) * 40])
        if turn == 6:
            (logs / "a.jsonl").rename(logs / "a.jsonl.1")  # rotated
        follower = Follower(logs, output)
        if turn % 3 == 1:
            wait_until(lambda begun=begun: batches(output)[0] > begun)
        elif turn % 3 == 2:
            wait_until(lambda remembered=remembered: batches(output)[1] > remembered)
        time.sleep(chance.uniform(0, 4))
        follower.stop(signal.SIGTERM if turn in (3, 5, 8) else signal.SIGKILL)
        seen.append(batches(output))
    assert seen[-1][1] >= 3, "it never got anywhere"
    read_all(spark, logs, output)
    assert_as_batch(spark, str(logs), output, tmp_path)
