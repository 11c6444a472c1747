"""A damaged folder of results: one line that names the file and what to do, whichever command reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from trellis.cli.main import run
from trellis.lab.catalogue import catalogue
from trellis.lab.inputs import AtHand
from trellis.lab.runner import run_row
from trellis.lab.store import Store


@pytest.fixture
def row(tmp_path, monkeypatch):
    """The folder of the only row of vitis-ex1, which a run has made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    store = Store("trellis-lab")
    store.open()
    (one,) = catalogue()["vitis-ex1"].rows("smoke", AtHand(None))
    assert run_row(one, store, "0123456789ab")[0] is None
    return Path("trellis-lab/rows") / one.key


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def changed(**more):
    def change(path: Path) -> None:
        told = {**json.loads(path.read_text()), **more}
        path.write_text(json.dumps({name: value for name, value in told.items() if value is not None}))

    return change


DAMAGE = {
    "half of the JSON": ("row.json", lambda path: path.write_text(path.read_text()[:40]), "is no JSON"),
    "bytes that are no text": ("row.json", lambda path: path.write_bytes(b"\xff\xfe\x00"), "is no JSON"),
    "a list": ("row.json", lambda path: path.write_text("[]"), "is no object of JSON"),
    "a folder for row.json": ("row.json", as_folder, "cannot be read (Is a directory)"),
    "no measure": ("row.json", changed(measure=None), "has no measure, so another version of Trellis wrote it"),
    "a seed that is no number": ("row.json", changed(seed="one"), "has seed 'one', so another version"),
    "a time that is no number": ("row.json", changed(cpu_seconds="long"), "has cpu_seconds 'long', so another"),
    "half of the table": ("result.parquet", lambda path: path.write_bytes(path.read_bytes()[:99]), "is no table"),
    "no table": ("result.parquet", Path.unlink, "is missing"),
    "a folder for the table": ("result.parquet", as_folder, "is no table of results"),
}
RUN = "run vitis-ex1"


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("command", ["list", RUN, "report", "keep --scale smoke"])
def test_a_damaged_row_is_told_in_a_line_with_what_to_do(row, name, command, capsys):
    file, damage, says = DAMAGE[name]
    damage(row / file)
    assert run(["lab", *command.split()]) == 2
    err = capsys.readouterr().err
    assert f"{row / file}: {says}" in err
    assert f"remove {row}, and the next trellis lab run makes the row again" in err
    assert err.count("\n") == 1
    # What the line says helps.
    shutil.rmtree(row)
    assert run(["lab", "list"]) == 0


def test_a_row_of_another_version_of_its_measure_is_run_again_and_counted_once(row, capsys):
    shutil.copytree(row, row.with_name("0" * 24))  # the name that another version gave it
    assert len(Store("trellis-lab").outcomes()) == 1
    assert run(["lab", "list", "--json"]) == 0
    row.rename(row.with_name("1" * 24))
    assert run(["lab", "run", "vitis-ex1", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows there already"] == 0


def test_a_row_without_provenance_is_not_kept(row, capsys):
    changed(versions=None)(row / "row.json")
    assert run(["lab", "keep", "--scale", "smoke"]) == 2
    assert f"{row}/row.json: has no versions, so another version of Trellis wrote it" in capsys.readouterr().err


def test_a_file_in_the_place_of_a_row_is_replaced_by_the_row(row):
    shutil.rmtree(row)
    row.write_text("no folder")
    (one,) = catalogue()["vitis-ex1"].rows("smoke", AtHand(None))
    store = Store("trellis-lab")
    assert run_row(one, store)[0] is None
    assert store.is_done(one)


def test_a_folder_in_the_place_of_the_lock_is_told_in_a_line(row, capsys):
    shutil.rmtree(row)
    Path("trellis-lab/lock").mkdir()
    assert run(["lab", "run", "vitis-ex1"]) == 2
    assert "trellis-lab/lock: cannot be opened (Is a directory); remove it" in capsys.readouterr().err


@pytest.fixture
def kept(row):
    assert run(["lab", "keep", "--scale", "smoke"]) == 0
    return Path("results/vitis.jsonl")


def line_with(**more):
    def change(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **more}) + "\n")

    return change


KEPT_DAMAGE = {
    "half a line": (lambda path: path.write_text(path.read_text()[:99]), ":1: is no row of results"),
    "bytes that are no text": (lambda path: path.write_bytes(b"\xff\xfe\x00"), ": is no text"),
    "a folder": (as_folder, ": cannot be read (Is a directory)"),
    "a time that is no number": (line_with(seconds="long"), ":1: is no row of results"),
    "a value that is no number": (line_with(found={"p, q": "much"}), ":1: has a series that cannot be read"),
    "steps without values": (line_with(found={"p, q": {"at": [1], "is": []}}), ":1: has a series that cannot be"),
    "a line twice": (lambda path: path.write_text(2 * path.read_text()), ":2: has the row of results/vitis.jsonl:1"),
}


@pytest.mark.parametrize("name", KEPT_DAMAGE)
@pytest.mark.parametrize("command", ["list -o results", "report -o results --scale smoke", "pages", "report"])
def test_damaged_kept_rows_are_told_in_a_line(kept, name, command, capsys):
    damage, says = KEPT_DAMAGE[name]
    damage(kept)
    capsys.readouterr()
    is_read = command != "report"  # of trellis-lab
    assert run(["lab", *command.split()]) == (2 if is_read else 0)
    err = capsys.readouterr().err
    if is_read:
        assert f"{kept}{says}" in err
        assert err.count("\n") == 1
