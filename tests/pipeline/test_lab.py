"""The lab's runner on Spark: every row once, failures as rows, and nothing lost when a run is killed."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from trellis.cli.main import run
from trellis.lab.catalogue import catalogue
from trellis.lab.experiment import Case, Row, cases
from trellis.lab.inputs import NOTHING, RAW, AtHand, prepare
from trellis.lab.runner import grid, run_rows
from trellis.lab.store import Store

# No kernels: on a cluster every executor would compile them anew.
SMALL = [
    Row(case, seed, ("x",))
    for case in cases(
        "inputs.described", "data", {"interests": ("followers", "friends"), "nodes": (30, 50)}, churn="machines"
    )
    for seed in (1, 2)
]
BROKEN = Row(Case("inputs.described", "data", {"nodes": 30, "interests": "nobody"}), 1, ("x",))


def results(store: Store) -> dict[str, list]:
    """What rows found, without how long it took."""
    return {path.parent.name: pq.read_table(path).to_pylist() for path in store.rows.glob("*/result.parquet")}


def times(store: Store) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in store.rows.glob("*/row.json")}


def test_every_row_of_the_grid_has_a_task_of_its_own(spark):
    table = grid(spark, SMALL)
    assert table.rdd.glom().map(len).collect() == [1] * len(SMALL)
    assert {row["key"] for row in table.collect()} == {row.key for row in SMALL}


def test_rows_run_once_and_a_failure_is_a_row_that_is_tried_again(spark, tmp_path):
    store, told = Store(tmp_path), []
    first = run_rows(spark, [*SMALL, BROKEN], store, commit="abc", progress=told.append)
    assert (first.total, first.found, first.done, len(first.failed)) == (9, 0, 8, 1)
    assert "nobody" in first.failed[0][1]
    about = json.loads((store.rows / BROKEN.key / "row.json").read_text())
    assert about["error"].startswith("InputError")
    assert "Traceback" in about["details"]
    assert about["commit"] == "abc"
    assert len(results(store)) == 9
    assert told[-1].total == 9
    before = times(store)
    again = run_rows(spark, [*SMALL, BROKEN], store)
    assert (again.found, again.done, len(again.failed)) == (8, 0, 1)
    changed = {key for key, at in times(store).items() if at != before[key]}
    assert changed == {BROKEN.key}
    assert not list(store.rows.glob(".*"))  # neither marks nor parts are left


def test_a_killed_run_goes_on_where_it_was(spark, tmp_path):
    words = [
        "lab",
        "run",
        "spidercast-fig14",
        "--scale",
        "smoke",
        "--seeds",
        "1",
        "-o",
        str(tmp_path),
        "--master",
        "local[1]",
    ]
    child = subprocess.Popen([sys.executable, "-m", "trellis", *words], start_new_session=True, cwd=tmp_path)
    store, deadline = Store(tmp_path), time.monotonic() + 300
    try:
        while len(times(store)) < 1:
            assert child.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    time.sleep(0.5)  # the workers see that Spark is gone
    before = times(store)
    (store.rows / ".part-left-1").mkdir()  # what a row under way leaves
    (store.rows / ".running-left").touch()
    rows = catalogue()["spidercast-fig14"].rows("smoke", NOTHING, [1])
    summary = run_rows(spark, rows, store)
    assert 0 < summary.found < len(rows)
    assert summary.found + summary.done == len(rows)
    assert not summary.failed
    after = times(store)
    assert set(after) == {row.key for row in rows}
    assert {key: after[key] for key in before} == before
    assert not list(store.rows.glob(".*"))


def descendants(process: int) -> set[int]:
    """Return a process and all that it started, as the system tells it."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found, before = {process}, 0
    while len(found) > before:
        before = len(found)
        found |= {child for child, parent in pairs if parent in found}
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("kind", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_a_run_that_is_told_to_end_ends_at_once_with_all_its_processes(java, tmp_path, capsys, kind):
    store = Store(tmp_path)
    rows = catalogue()["vitis-fig12a"].rows("paper", NOTHING)  # a row takes half a minute
    store.open()
    store.write(rows[0], {"hit ratio": 1.0}, {"seconds": 1.0, "cpu_seconds": 1.0, "error": None})
    words = ["lab", "run", "vitis-fig12a", "--scale", "paper", "-o", str(tmp_path), "--master", "local[1]"]
    code = "import sys; from trellis.cli.main import run; sys.exit(run(sys.argv[1:]))"
    child = subprocess.Popen(
        [sys.executable, "-c", code, *words], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300
    try:
        while not store.running():
            assert child.poll() is None, "it ended before it could be told to"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        started = descendants(child.pid)
        assert len(started) >= 4, "the command, Java, a daemon and its worker"
        assert run(words) == 2
        assert "another trellis lab run works in this folder" in capsys.readouterr().err
        told = time.monotonic()
        child.send_signal(getattr(signal, kind))
        said = child.communicate(timeout=60)[1].splitlines()
        assert time.monotonic() - told < 10
    finally:
        child.kill()
        child.communicate()
    ending = {"SIGTERM": (143, "trellis: ended by SIGTERM"), "SIGINT": (130, "trellis: interrupted")}[kind]
    others = len(rows) - 1
    kept = f"1 of {len(rows)} rows are kept in {tmp_path}; the same command goes on with the other {others}"
    assert (child.returncode, said[-2:]) == (ending[0], [kept, ending[1]])
    for _ in range(50):
        if not (left := {one for one in started if Path(f"/proc/{one}").exists()}):
            break
        time.sleep(0.1)
    assert left == set()
    assert list(times(store)) == [rows[0].key]


def test_raw_traces_of_ours_become_inputs_once(spark, tmp_path):
    assert run(["lab", "traces", str(tmp_path / "raw"), "--users", "60", "--days", "20", "--seed", "3"]) == 0
    data = tmp_path / "data"
    for name, kind in (("friends.txt", "ego-facebook"), ("machine_events.csv", "google-2011")):
        target = data / RAW[kind]
        target.parent.mkdir(parents=True)
        target.write_bytes(gzip.compress((tmp_path / "raw" / name).read_bytes(), mtime=0))
    at_hand, store = AtHand(data), Store(tmp_path / "lab")
    told = {"interests": at_hand.friends(30), "churn": at_hand.machines(), "nodes": 30, "events": 6}
    rows = [Row(Case("omen.churned", system, told), 1, ("omen-fig9a",)) for system in ("LowODA-Re", "LowODA-Inc")]
    assert prepare(spark, rows, at_hand, store.inputs) == ["ego-facebook-30-1", "google-2011-on-ego-facebook-30-1"]
    assert prepare(spark, rows, at_hand, store.inputs) == []
    summary = run_rows(spark, rows, store)
    assert not summary.failed
    assert len(store.read(rows[0])["D"].values) == 6


def test_a_figure_from_the_command_line_to_the_page(opened, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    assert run("lab run shadows-fig1 vitis-ex1 omen-fig7 --dry-run --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    assert run("lab run shadows-fig1 vitis-ex1 omen-fig7".split()) == 0
    assert re.search(r"^rows run +2$", capsys.readouterr().out, re.MULTILINE)
    assert run("lab run shadows-fig1 vitis-ex1".split()) == 0
    assert re.search(r"^rows there already +2$", capsys.readouterr().out, re.MULTILINE)
    assert run("lab list --json".split()) == 0
    listed = {one["id"]: one["verdict"] for one in json.loads(capsys.readouterr().out)["experiments"]}
    assert (listed["shadows-fig1"], listed["vitis-ex1"], listed["omen-fig7"]) == ("shape only", "reproduced", "no data")
    assert run("lab report --png --json".split()) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["verdicts"]["reproduced"], made["verdicts"]["shape only"]) == (1, 1)
    text = (tmp_path / made["page"]).read_text()
    assert "data:image/svg+xml;base64," in text
    assert 'src="http' not in text
    assert 'href="http' not in text
    assert (tmp_path / "trellis-lab/report-smoke/figures/vitis-ex1.png").stat().st_size > 1000
    assert "| vitis-ex1 | Example 1 | reproduced |" in (tmp_path / "trellis-lab/report-smoke/summary.md").read_text()
