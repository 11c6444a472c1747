"""Logs that are followed give what the batch jobs give for the same logs."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from trellis import check
from trellis.cli.main import run
from trellis.errors import InputError, TrellisError
from trellis.model import Overlay, read_interests
from trellis.pipeline import jobs
from trellis.pipeline.failures import SLOW_PYTHON
from trellis.pipeline.file_systems import FileSystems
from trellis.pipeline.jobs.watch import Watch, watching
from trellis.pipeline.jobs.watch_start import refuse_other_run
from trellis.pipeline.streams import lines_from


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


def event(time, node, kind, topic=None):
    return json.dumps({"time": time, "node": node, "event": kind} | ({"topic": topic} if topic else {})) + "\n"


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


def test_a_watch_refuses_logs_and_outputs_that_make_no_sense(spark, tmp_path):
    with pytest.raises(InputError, match="there is no log with a line in it yet"):
        read_all(spark, tmp_path / "none*", tmp_path / "other")
    (tmp_path / "logs").mkdir()
    append(tmp_path / "logs" / "a.jsonl", log_lines(1, 5, "a"))
    with pytest.raises(InputError, match=r"out: lies in .*logs, which is followed; write to a folder elsewhere"):
        read_all(spark, tmp_path / "logs", tmp_path / "logs" / "out")
    with pytest.raises(InputError, match="max-bad-share 2; give a share"):
        jobs.watch(spark, tmp_path / "logs", tmp_path / "out", max_bad_share=2)
    with pytest.raises(InputError, match="follow one kind of source at a time"):
        read_all(spark, [str(tmp_path / "logs"), "s3a://bucket/logs"], tmp_path / "out")


SETTINGS = {"format": "events", "watermark_s": 60.0, "logs": ["/logs/a"]}


def watched(folder, *, batch, begun, done, checkpoint="one", parameters=SETTINGS):
    """Write what a watch has left: its state, and Spark's checkpoint."""
    for name, numbers in (("offsets", begun), ("commits", done)):
        (folder / "_checkpoint" / name).mkdir(parents=True)
        for number in numbers:
            (folder / "_checkpoint" / name / str(number)).touch()
    (folder / "_checkpoint" / "metadata").write_text('{"id": "one"}')
    if batch is not None:
        (folder / "state").mkdir()
        (folder / "state" / "part-0.parquet").touch()
        facts = {"batch": batch, "checkpoint": checkpoint}
        manifest = {"facts": facts, "parameters": parameters, "outputs": [{"path": "part-0.parquet"}]}
        (folder / "state" / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)


@pytest.mark.parametrize(
    ("there", "changed", "told"),
    [
        ({"batch": 3, "begun": [2, 3], "done": [2]}, {}, None),
        ({"batch": None, "begun": [0], "done": []}, {}, None),  # killed in its first batch
        ({"batch": 3, "begun": [2, 3], "done": [2]}, {"logs": ["/logs/a", "/logs/b"]}, None),
        ({"batch": None, "begun": [3], "done": [2]}, {}, "has a _checkpoint, and its state is lost"),
        ({"batch": 3, "begun": [], "done": []}, {}, "has a state without its _checkpoint"),
        ({"batch": 3, "begun": [0], "done": []}, {}, "of different runs"),  # the checkpoint was begun anew
        ({"batch": 1, "begun": [3], "done": [2]}, {}, "of different runs"),  # the state is of an old copy
        ({"batch": 3, "begun": [3], "done": [2], "checkpoint": "two"}, {}, "of different runs"),
        ({"batch": 3, "begun": [3], "done": []}, {"format": "mosquitto"}, "with --format events, not mosquitto; give"),
        ({"batch": 3, "begun": [3], "done": []}, {"watermark_s": 9.0}, "with --watermark 60.0, not 9.0"),
        ({"batch": 3, "begun": [3], "done": []}, {"logs": ["/logs/b"]}, "also follows /logs/a; name that as well"),
    ],
)
def test_state_checkpoint_and_settings_must_belong_together(spark, tmp_path, there, changed, told):
    folder = watched(tmp_path / "out", **there)
    if told is None:
        refuse_other_run(FileSystems(spark), folder, SETTINGS | changed)
    else:
        with pytest.raises(InputError, match=told):
            refuse_other_run(FileSystems(spark), folder, SETTINGS | changed)


def test_a_state_that_has_lost_a_file_is_refused(spark, tmp_path):
    folder = watched(tmp_path / "out", batch=3, begun=[3], done=[2])
    (tmp_path / "out" / "state" / "part-0.parquet").rename(tmp_path / "aside")
    with pytest.raises(InputError, match=r"part-0\.parquet: is listed in the manifest|there is no such file"):
        refuse_other_run(FileSystems(spark), folder, SETTINGS)


def test_executors_that_cannot_run_the_source_are_told_before_it_starts(spark, tmp_path, monkeypatch):
    append(tmp_path / "a.jsonl", log_lines(1, 5, "a"))

    def refused(session):
        raise TrellisError("the Python of the executors has no pyarrow")

    monkeypatch.setitem(watching.__wrapped__.__globals__, "is_local", lambda master: False)
    monkeypatch.setitem(watching.__wrapped__.__globals__, "check_executors", refused)
    with pytest.raises(TrellisError, match="the Python of the executors has no pyarrow"):
        read_all(spark, tmp_path / "a.jsonl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Recorded:
    """Stands for a reader of streams, and keeps what it is asked for."""

    def __init__(self):
        self.asked = {}

    readStream = property(lambda self: self)

    def format(self, name):
        self.asked["format"] = name
        return self

    def options(self, **given):
        self.asked |= given
        return self

    def load(self):
        raise TrellisError("enough")


def test_a_topic_of_kafka_is_asked_for_by_its_address(spark):
    reader = Recorded()
    with pytest.raises(TrellisError, match="enough"):
        lines_from(reader, ["kafka://one:9092,two:9092/events"])
    assert reader.asked == {
        "format": "kafka",
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "subscribe": "events",
        "startingOffsets": "earliest",
    }
    for wrong in ("kafka://one:9092", "kafka://one:9092/a/b"):
        with pytest.raises(InputError, match="is no address of a topic of Kafka; write kafka://HOST:9092/TOPIC"):
            lines_from(reader, [wrong])


def test_without_its_connector_kafka_is_refused_in_one_line(spark, opened, tmp_path, capsys):
    words = ["pipeline", "watch", "kafka://127.0.0.1:1/events", "-o", str(tmp_path / "out"), "--once"]
    assert run(words) == 2
    assert "does not tell its format; name it: --format events or mosquitto" in capsys.readouterr().err
    assert run([*words, "--format", "events"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "Spark's connector for Kafka is not there; add it: --conf spark.jars.packages=org.apache.spark:" in line


@pytest.mark.slow
def test_complete_files_of_a_store_are_followed_as_by_the_batch(spark, tmp_path):
    """An address such as s3a://bucket/logs; here one of this machine's files."""
    logs, output = tmp_path / "logs", tmp_path / "out"
    (logs / "day=1").mkdir(parents=True)
    lines = list(log_lines(2, 90, "a"))
    append(logs / "day=1" / "a.jsonl", lines[:40])
    read_all(spark, logs.as_uri(), str(output))
    (logs / "b.jsonl.gz").write_bytes(gzip.compress("".join(lines[40:]).encode()))
    os.utime(logs / "b.jsonl.gz", (1e9, 1e9))  # older by far than the other one
    report = read_all(spark, logs.as_uri(), str(output))
    assert report.facts["events"] == 90
    assert_as_batch(spark, str(logs), output, tmp_path)


@pytest.mark.slow
def test_deltas_are_handed_over_to_replan(spark, tmp_path):
    log, output = tmp_path / "a.jsonl", tmp_path / "out"
    given = tmp_path / "links.csv"
    given.write_text("u,v\n" + "".join(f"a{u},a{v}\n" for u in range(4) for v in range(u + 1, 4)))
    lines = list(log_lines(4, 120, "a"))
    links = {tuple(line.split(",")) for line in given.read_text().splitlines()[1:]}
    for part in (lines[:60], lines[60:], [event(1.8e9, "a0", "leave"), event(1.8e9, "b1", "subscribe", "t0")], []):
        append(log, part)
        jobs.watch(spark, log, output, every_s=None, overlay=str(given))
        overlay = set(rows(spark, output / "overlay"))
        latest = max((output / "changes").iterdir())
        for _, do, u, v in rows(spark, latest) if part else []:
            (links.add if do == "add" else links.remove)((u, v))
        assert links == overlay
        interests = read_interests(output / "interests")
        assert check(interests, Overlay.from_pairs(interests.nodes, links)).is_tco
    assert len(list((output / "changes").iterdir())) == 3
    assert not any("a0" in link for link in links)


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
    words += ["--on-bad-rows", "quarantine"]
    assert run(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "1 of 41 rows so far do not parse, more than --max-bad-share 0.01" in line
    assert run([*words, "--max-bad-share", "0.1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rejected"] == 1
    assert list(report["facts"]["rejected_by_reason"].values()) == [1]
    manifest = json.loads((tmp_path / "out" / "interests" / "manifest.json").read_text())
    assert manifest["application"] == spark.sparkContext.applicationId
    assert manifest["started"] <= manifest["ended"]
    assert [entry["path"] for entry in manifest["inputs"]] == [str(log)]
    assert run(["pipeline", "lineage", str(tmp_path / "out" / "interests")]) == 0
    assert f"  {log}: raw, not looked at" in capsys.readouterr().out


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
