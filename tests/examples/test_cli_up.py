"""`trellis up`, `certs` and `simulate mesh` refuse at once what they cannot do, and call no empty run good."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

import pytest

from trellis.cli.main import run
from trellis.errors import InputError
from trellis.files import expect_writable
from trellis.simulate.mesh.seeds import MeshSummary


@pytest.fixture(autouse=True)
def no_mesh(monkeypatch):
    """Nothing of this starts a process: what reaches this point was not refused."""

    def begun(*_: object) -> None:
        raise AssertionError("the mesh was started")

    monkeypatch.setattr("trellis.cli.up._run", begun)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--topics -3", "'--topics': Input should be greater than or equal to 1"),
        ("--topics 0", "'--topics': Input should be greater than or equal to 1"),
        ("--subscriptions 0", "'--subscriptions': Input should be greater than or equal to 1"),
        ("--rate inf", "--rate: inf; give a finite number"),
        ("--rate nan", "'--rate': Input should be"),
        ("--kill-every inf", "--kill-every: inf; give a finite number"),
        ("--duration inf", "--duration: inf; give a finite number"),
        ("--nodes 2 --kill-every 1", "--kill-every: of 2 nodes none can be spared; give --nodes 3 or more"),
        ("--nodes 2 --hang", "--hang: of 2 nodes none can be spared; give --nodes 3 or more"),
    ],
)
def test_up_refuses_numbers_with_which_it_could_not_do_what_is_asked(words, told, capsys):
    assert run(["up", "--duration", "1", *words.split()]) == 2
    assert told in capsys.readouterr().err


def test_up_says_before_it_begins_that_its_history_cannot_be_written(tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", *([Path("/proc/trellis-history")] if Path("/proc").is_dir() else [])):
        assert run(["up", "--duration", "1", "--history", str(path)]) == 2
        assert str(path) in capsys.readouterr().err
    old = tmp_path / "old"
    old.write_text("kept")
    expect_writable(old)
    assert old.read_text() == "kept"
    assert {one.name for one in tmp_path.iterdir()} == {"folder", "old"}, "nothing is left behind"
    with pytest.raises(InputError):
        expect_writable(tmp_path / "none" / "file")


def test_up_of_two_nodes_says_that_nobody_is_killed_where_kills_were_not_asked_for(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "trellis.cli.up._run", lambda wanted, fleet, config, *more: seen.append((config.kill_every, more[-1]))
    )
    assert run(["up", "--nodes", "2", "--topics", "1", "--duration", "1"]) == 0
    assert run(["up", "--nodes", "3", "--topics", "1", "--duration", "1"]) == 0
    told = "no node is killed: of 2 nodes none can be spared; for kills give more --nodes"
    assert seen == [(0.0, told), (8.0, "")]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which signs, is not installed")
def test_a_certificate_that_would_end_after_the_year_9999_is_refused_with_the_true_reason(tmp_path, capsys):
    most = (datetime.date(9999, 12, 31) - datetime.datetime.now(datetime.UTC).date()).days
    told = f"--days: 3000000 days from now are beyond the year 9999; give at most {most}"
    for words in (["ca"], ["node", "a"], ["client", "ann"]):
        if words == ["node", "a"]:
            assert run(["certs", "ca", "--folder", str(tmp_path), "--days", str(most)]) == 0
        assert run(["certs", *words, "--folder", str(tmp_path), "--days", "3000000"]) == 2
        assert told in capsys.readouterr().err
    assert run(["certs", "node", "a", "--folder", str(tmp_path), "--days", str(most)]) == 0


def test_simulate_mesh_refuses_a_span_without_end(capsys):
    assert run(["simulate", "mesh", "--check", "--seeds", "1", "--span", "inf"]) == 2
    assert "--span inf: is not in the range of this option; give 1 to 1,000,000" in capsys.readouterr().err


def test_simulate_mesh_says_that_nothing_was_published():
    empty = MeshSummary(1, seeds=1)
    assert list(empty.lines())[-1].startswith("mesh: seeds 1..1: nothing was published, so nothing was checked")
    assert not empty.holds
    held = MeshSummary(1, seeds=1)
    held.counts["published"] = 1
    assert list(held.lines())[-1] == "mesh: seeds 1..1: all hold"
