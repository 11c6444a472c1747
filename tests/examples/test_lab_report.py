"""`trellis lab report` tells what was run, and counts the rest in a sentence."""

from __future__ import annotations

import json

import pytest

from trellis.cli.main import run
from trellis.lab.catalogue import catalogue
from trellis.lab.inputs import AtHand
from trellis.lab.runner import run_row
from trellis.lab.store import Store


@pytest.fixture
def one_result(tmp_path, monkeypatch):
    """A folder of results in which one experiment of all was run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    store = Store("trellis-lab")
    store.open()
    for row in catalogue()["vitis-ex1"].rows("smoke", AtHand(None)):
        assert run_row(row, store)[0] is None
    return tmp_path / "trellis-lab" / "report-smoke"


def test_a_report_lists_only_what_was_run_and_says_how_to_run_the_rest(one_result, capsys):
    assert run(["lab", "report", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    others = len(catalogue()) - 1
    assert (made["verdicts"], made["not_run"]) == ({"reproduced": 1}, others)
    sentence = f"Not listed, because not run: {others}; to run them: trellis lab run all --scale smoke"
    for name in ("index.html", "summary.md"):
        text = (one_result / name).read_text("utf-8")
        assert "vitis-ex1" in text
        assert sentence in text
        assert not [one for one in catalogue() if one != "vitis-ex1" and one in text], "nobody ran these"
    assert run(["lab", "report"]) == 0
    assert sentence in capsys.readouterr().out


def test_a_scale_without_results_is_refused_with_the_command_that_makes_them(one_result, capsys):
    assert run(["lab", "report", "--scale", "beyond"]) == 2
    assert "holds no result at scale beyond; run first: trellis lab run all --scale beyond" in capsys.readouterr().err
