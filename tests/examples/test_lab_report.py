"""`trellis lab report` tells what was run, and counts the rest in a sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from trellis.cli.main import run
from trellis.lab.catalogue import catalogue
from trellis.lab.experiment import Bars, Case
from trellis.lab.inputs import NOTHING, AtHand
from trellis.lab.numbers import numbers_of
from trellis.lab.page import summary_table
from trellis.lab.pages import _rounded
from trellis.lab.plots import draw
from trellis.lab.report import Judged
from trellis.lab.runner import run_row
from trellis.lab.store import Store
from trellis.lab.table import Table
from trellis.lab.verdict import Check, Verdict


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


def test_a_row_of_the_summary_names_its_commit_and_the_cycle_engine():
    """A reader must see which state of the code made a number, and whether the protocol's own code did."""
    for engine, said in (({}, False), ({"engine": "cycles"}, True)):
        case = Case("spidercast.settled", "spidercast(3,0)", {"nodes": 1000, **engine})
        one, table = catalogue()["spidercast-fig9a"], Table()
        table.add(case, 1, {"degree": 10})
        verdict = Verdict("reproduced", [Check("c", "1", True)])
        judged = Judged(one, verdict, table, [1], 1.0, ["0123456789abcdef"], [], "", [])
        row = summary_table([judged], "paper").splitlines()[-1]
        assert row.endswith("| 1 | 0123456 |")
        assert ("run by the cycle engine" in row) == said


def test_cases_without_the_parameter_of_a_line_are_a_limit_where_the_plot_asks_for_it(tmp_path):
    one, table = catalogue()["vitis-cycles"], Table()
    for case in one.cases("paper", NOTHING):
        value = 10.8 if case.parameters.get("model") == "converged" else 17.7
        for seed in (1, 2):
            table.add(case, seed, {"overhead %": value})
    (found,) = numbers_of(one, table)
    assert found.columns == ["50", "100", "200", "perfect tables"]
    rows = dict(found.rows)
    assert rows["level high"] == ["17.7", "17.7", "17.7", ""]
    assert rows["Vitis on perfect tables, level high"] == ["", "", "", "10.8"]
    assert rows["RVR on perfect tables"] == ["", "", "", "10.8"]
    assert len(rows) == 7
    assert draw(one, table, [tmp_path / "figure.svg"])
    text = (tmp_path / "figure.svg").read_text("utf-8")
    assert "Vitis on perfect tables, level high" in text


def test_rounding_a_figure_changes_no_text_of_it():
    """Ticks at 0.05 and 0.15 must not both read 0.1."""
    line = '<path d="M 1.2345 6.789"/><text x="3.14159">0.125</text>'
    assert _rounded(line) == '<path d="M 1.2 6.8"/><text x="3.1">0.125</text>'


def ticks_of(plot, found, tmp_path):
    """Return the numbers on the axes of a figure with this plot, and its text."""
    case, table = Case("m.m", "s", {"nodes": 1}), Table()
    for seed in (1, 2):
        table.add(case, seed, found)
    one = replace(catalogue()["vitis-ex1"], plots=(plot,))
    assert draw(one, table, [tmp_path / "figure.svg"])
    return (tmp_path / "figure.svg").read_text("utf-8")


def test_bars_of_small_numbers_have_a_logarithmic_axis(tmp_path):
    """Bars begin at 0, and yet 0.00002 s and 0.03 s must both be seen."""
    text = ticks_of(Bars(("a", "b"), "seconds", log="y"), {"a": 2e-5, "b": 3e-2}, tmp_path)
    assert "10^{-4}" in text.replace("\\mathdefault", "") or "−4" in text


def test_an_axis_of_zeros_has_no_negative_numbers(tmp_path):
    text = ticks_of(Bars(("a",), "split topics"), {"a": 0.0}, tmp_path)
    assert "−" not in text
