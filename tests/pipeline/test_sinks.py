"""Outputs are whole or not there, and bad rows are named or set apart."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest

from trellis.errors import InputError
from trellis.model.read import read_interests
from trellis.pipeline import jobs
from trellis.pipeline.file_systems import FileSystems, is_object_store
from trellis.pipeline.jobs.run import Run
from trellis.pipeline.sinks import whole_folder

TABLE = "user\ttopic\nann\trock\nbob\trock\nbob\tjazz\n"


def test_a_result_has_its_parts_a_mark_and_a_manifest(spark, write, tmp_path):
    source = write("in.tsv", TABLE)
    report = jobs.pairs(spark, source, tmp_path / "out", seed=3)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"_SUCCESS", "manifest.json"} < names
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["inputs"] == [{"path": source, "bytes": len(TABLE), "sha256": sha256(TABLE.encode()).hexdigest()}]
    assert manifest["job"] == "pairs"
    assert manifest["seed"] == 3
    assert manifest["parameters"]["topics_min"] == 1
    assert manifest["rows"] == {"table": 3} == report.rows
    assert manifest["rejected"] == 0
    assert manifest["versions"].keys() == {"trellis", "spark", "java", "python"}
    assert manifest["duration_s"] == report.duration_s > 0


def test_a_result_is_read_by_the_rest_of_trellis(spark, write, tmp_path):
    jobs.pairs(spark, write("in.tsv", TABLE), tmp_path / "out")
    interests = read_interests(tmp_path / "out")
    assert interests.to_table().to_pylist() == [
        {"node": "ann", "topic": "rock"},
        {"node": "bob", "topic": "jazz"},
        {"node": "bob", "topic": "rock"},
    ]


def test_a_place_that_is_taken_is_refused_before_any_work_and_left_as_it_is(spark, write, tmp_path):
    source = write("in.tsv", TABLE)
    jobs.pairs(spark, source, tmp_path / "out")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with pytest.raises(InputError, match="out: exists already; choose another folder, or pass --overwrite"):
        jobs.pairs(spark, tmp_path / "no such file", tmp_path / "out")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_overwrite_replaces_a_result_of_ours_and_leaves_no_trace_of_it(spark, write, tmp_path):
    jobs.pairs(spark, write("in.tsv", TABLE), tmp_path / "out")
    jobs.pairs(spark, write("in2.tsv", "user\ttopic\nzoe\tfolk\n"), tmp_path / "out", overwrite=True)
    assert list(read_interests(tmp_path / "out").nodes) == ["zoe"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_folder_that_is_not_ours_is_never_replaced(spark, write, tmp_path):
    write("precious/thesis.tex", "years of work")
    with pytest.raises(InputError, match="was not written by trellis pipeline, so it stays"):
        jobs.pairs(spark, write("in.tsv", TABLE), tmp_path / "precious", overwrite=True)
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "years of work"
    with pytest.raises(InputError, match="is a file; name a folder"):
        jobs.pairs(spark, tmp_path / "in.tsv", tmp_path / "in.tsv", overwrite=True)


def test_a_job_that_fails_half_way_leaves_nothing_and_spares_the_old_result(spark, write, tmp_path):
    jobs.pairs(spark, write("in.tsv", TABLE), tmp_path / "out")

    def interrupted():
        with whole_folder(spark, str(tmp_path / "out"), overwrite=True) as folder:
            folder.write(spark.createDataFrame([("x", "y")], "node string, topic string"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.tsv", "out"]
    assert len(read_interests(tmp_path / "out").nodes) == 2


def test_sigterm_in_the_middle_of_a_job_leaves_nothing(spark, tmp_path):
    """The signal itself, sent to this process while a result is half written."""
    from trellis.pipeline.failures import Terminated, ending_in_order

    def ended():
        with ending_in_order(), whole_folder(spark, str(tmp_path / "out")) as folder:
            folder.write_bytes("half", b"a result")
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    of_the_session = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(Terminated):
            ended()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, of_the_session)
    assert list(tmp_path.iterdir()) == []


def test_object_stores_are_known_by_their_scheme():
    assert is_object_store("s3a://bucket/out")
    assert is_object_store("gs://bucket/out")
    assert not is_object_store("hdfs://host/out")
    assert not is_object_store("/tmp/s3a")


def test_a_file_is_replaced_whole_wherever_it_lies(spark, tmp_path):
    file_systems = FileSystems(spark)
    for path in (str(tmp_path / "here"), f"file://{tmp_path}/there"):  # the second as on a remote file system
        for content in (b"old and long", b"new"):
            file_systems.replace(path, content)
            assert file_systems.read_bytes(path) == content
    assert not list(tmp_path.glob("*.new"))


def test_a_result_can_be_committed_by_its_manifest_without_renaming(spark, write, tmp_path, monkeypatch):
    def never(*_):
        raise AssertionError("renamed")

    monkeypatch.setattr(FileSystems, "rename", never)
    output = str(tmp_path / "out")

    def commit(node, *, overwrite=False, fails=False):
        with whole_folder(spark, output, overwrite=overwrite, by_manifest=True) as folder:
            folder.write(spark.createDataFrame([(node, "t")], "node string, topic string").coalesce(1))
            if fails:
                raise ValueError(node)

    def found():
        return [row.node for row in Run(spark, None, "fail").read_interests(output).collect()]

    with pytest.raises(ValueError, match="a"):
        commit("a", fails=True)
    (tmp_path / "out" / "data-dead").mkdir(parents=True)  # left by a job that was killed
    (tmp_path / "out" / "data-dead" / "part-0.parquet").write_bytes(b"half")
    commit("b")
    assert found() == ["b"]
    with pytest.raises(InputError, match="exists already"):
        commit("c")
    with pytest.raises(ValueError, match="d"):
        commit("d", overwrite=True, fails=True)
    assert found() == ["b"], "the old result stays until the new manifest is there"
    commit("e", overwrite=True)
    assert found() == ["e"]
    assert len([path for path in (tmp_path / "out").iterdir() if path.name.startswith("data-")]) == 2
    (listed,) = json.loads((tmp_path / "out" / "manifest.json").read_text())["outputs"]
    (tmp_path / "out" / listed["path"]).unlink()
    with pytest.raises(InputError, match="is listed in the manifest of its folder, and is not there"):
        found()


def test_off_one_machine_rounds_are_kept_safe_from_the_loss_of_a_worker(spark, tmp_path, monkeypatch):
    """`localCheckpoint` keeps a round on the executor that made it, and the job fails with that executor."""
    table = spark.range(3)
    with whole_folder(spark, str(tmp_path / "a")) as folder:
        Run(spark, folder, "fail").settle(table)
        assert not Path(folder.scratch).exists(), "one process needs no reliable checkpoint"
    monkeypatch.setattr("trellis.pipeline.jobs.run.is_local", lambda master: False)
    for name in ("b", "c"):
        with whole_folder(spark, str(tmp_path / name)) as folder:
            kept, rows = Run(spark, folder, "fail").settle(table)
            assert list(Path(folder.scratch).glob("trellis-checkpoints/*/rdd-*"))
            assert rows == kept.count() == 3
        assert not Path(folder.scratch).exists()


KILLED = """
import sys, time
from trellis.pipeline.session import open_session
from trellis.pipeline.sinks import whole_folder
with open_session("local[1]", driver_memory="512m") as spark, whole_folder(spark, sys.argv[1]) as folder:
    folder.write(spark.createDataFrame([("x", "y")], "node string, topic string"))
    print("written", flush=True)
    time.sleep(600)
"""


def test_a_killed_job_leaves_nothing_that_a_later_step_would_take(java, tmp_path):
    work, scratch = tmp_path / "work", tmp_path / "scratch"
    work.mkdir()
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(work / "out")],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},  # what a killed process cannot clear away goes with the test
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
    left = list(work.iterdir())
    assert [path.name[:5] for path in left] == [".out."]  # the hidden folder, and no `out`
    with pytest.raises(InputError, match="no such file"):
        read_interests(work / "out")
    assert not (left[0] / "manifest.json").exists()


def test_bad_rows_fail_the_job_with_their_number_the_file_and_examples(spark, write, tmp_path):
    source = write("graph.txt", "1 2\n2 3\nx\n4 5 6\n")
    with pytest.raises(InputError) as caught:
        jobs.social(spark, source, tmp_path / "out", format="edges")
    assert str(caught.value) == (
        f'{source}:3: 2 of 4 rows do not parse (2 not 2 columns): line 3 "x", line 4 "4 5 6";'
        " correct them, check the format, or pass --on-bad-rows quarantine"
    )
    assert not (tmp_path / "out").exists()


def test_quarantine_sets_bad_rows_apart_with_their_reason(spark, write, tmp_path):
    source = write("graph.txt.gz", b"88234\n1 2\n2 3\n\xff\xfe 4\n")
    report = jobs.social(spark, source, tmp_path / "out", format="edges", on_bad_rows="quarantine", max_bad_share=0.5)
    assert report.rejected == 2
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["rejected"] == 2
    assert manifest["facts"]["rejected_by_reason"] == {"not 2 columns": 1, "not UTF-8": 1}
    rows = spark.read.parquet(str(tmp_path / "out" / "_rejected")).collect()
    assert [(Path(row.file).name, row.line, row.reason) for row in rows] == [
        ("graph.txt.gz", "88234", "not 2 columns"),
        ("graph.txt.gz", "�� 4", "not UTF-8"),
    ]
    assert len(read_interests(tmp_path / "out").nodes) == 3  # the good rows, and `_rejected` is not read with them


def test_a_file_of_bad_rows_only_fails_even_in_quarantine(spark, write, tmp_path):
    with pytest.raises(InputError, match="3 of 3 rows do not parse"):
        jobs.social(spark, write("g.txt", "a\nb\nc\n"), tmp_path / "out", format="edges", on_bad_rows="quarantine")


def test_an_unknown_way_with_bad_rows_is_refused(spark, write, tmp_path):
    with pytest.raises(InputError, match="choose fail or quarantine"):
        jobs.social(spark, write("g.txt", "1 2\n"), tmp_path / "out", on_bad_rows="ignore")  # type: ignore[arg-type]


def test_a_missing_header_is_named_with_the_file(spark, write, tmp_path):
    source = write("in.tsv", "ann\trock\n")
    with pytest.raises(InputError, match=r'in.tsv: the first line has no column "user" \(it reads ann, rock\)'):
        jobs.pairs(spark, source, tmp_path / "out", columns=("user", "topic"))


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n"])
def test_a_file_without_rows_is_named(spark, write, tmp_path, content):
    with pytest.raises(InputError, match=r"empty.txt: there is no row in it"):
        jobs.social(spark, write("empty.txt", content), tmp_path / "out", format="edges")


def test_a_cut_off_gzip_is_named_as_damaged(spark, tmp_path):
    whole = gzip.compress("".join(f"{number} {number * 7}\n" for number in range(50_000)).encode())
    path = tmp_path / "g.txt.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"g.txt.gz: the file is damaged"):
        jobs.social(spark, path, tmp_path / "out", format="edges")


def test_a_file_that_is_not_there_is_named(spark, tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.txt: there is no such file; check the path"):
        jobs.social(spark, tmp_path / "nowhere.txt", tmp_path / "out")


def test_names_with_blanks_and_patterns_in_them_are_only_names(spark, write, tmp_path):
    source = write("a [1] {b}*/g ü?.txt", "1 2\n")
    write("a [1] {b}*/_notes.txt", "not a row")
    report = jobs.social(spark, Path(source).parent, tmp_path / "out [2]", format="edges")
    assert report.rows == {"table": 2}
    assert len(read_interests(tmp_path / "out [2]").nodes) == 2


def test_several_files_are_one_table_and_all_in_the_manifest(spark, write, tmp_path):
    sources = [write("b.tsv", TABLE), write("a.tsv", "user\ttopic\ncem\tjazz\n")]
    jobs.pairs(spark, sources, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [Path(entry["path"]).name for entry in manifest["inputs"]] == ["a.tsv", "b.tsv"]
    assert sorted(read_interests(tmp_path / "out").nodes) == ["ann", "bob", "cem"]


def test_what_follows_the_progress_never_ends_a_job():
    """After SIGTERM, the answer to an interrupted call may be read as that to the next one."""
    from trellis.pipeline.progress import following

    class Context:
        applicationId = "x"

        def statusTracker(self):
            return self

        def getActiveStageIds(self):
            raise TypeError("'JavaObject' object is not iterable")

    class Session:
        sparkContext = Context()

    with pytest.raises(SystemExit), following(Session(), lambda *_: None):
        raise SystemExit(143)


def test_progress_follows_sparks_tasks_and_names_the_step(spark, write, tmp_path):
    from trellis.pipeline.progress import following, step

    seen: list[tuple[int, int, str]] = []
    with following(spark, lambda *now: seen.append(now), every_s=0.01):
        step(spark, "counting")
        spark.range(0, 1000, 1, 8).selectExpr("sum(id)").collect()
        time.sleep(0.2)
    assert seen
    assert {text for *_, text in seen} == {"counting"}
    done = [now[0] for now in seen]
    assert done == sorted(done)
    assert seen[-1][0] == seen[-1][1] >= 8
