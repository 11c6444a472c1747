"""Rows that are kept: small, sorted, and enough to give every verdict again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from examples.test_lab_rules import BAD, GOOD, JUDGED
from trellis.cli.main import run
from trellis.lab.catalogue import catalogue
from trellis.lab.experiment import Case, Row
from trellis.lab.inputs import NOTHING, AtHand
from trellis.lab.judge import judge
from trellis.lab.kept import Kept, askers, keep, line_of
from trellis.lab.pages import kept_and_written, write_pages
from trellis.lab.runner import run_row
from trellis.lab.shortened import POINTS, WHOLE_MAX, decoded, encoded
from trellis.lab.store import Store
from trellis.lab.table import SUMMARIES, Missing, Table, last, series_of
from trellis.lab.times import Times

ROOT = Path(__file__).parents[2]
ABOUT = {"seconds": 2.0, "cpu_seconds": 1.5, "commit": "abc", "engine": "events", "versions": {}, "ended": "2026"}
LONG = 400


def stretched(name: str, value):
    """A single number as a long series of that mean, a short list as it is: as long as rows at the paper's size are."""
    if np.ndim(value) or name in ("popularity",):
        return value
    noise = np.sin(np.arange(LONG)) * 1e-3
    return (np.arange(1.0, LONG + 1), float(value) + noise - noise.mean())


# Metrics that measures give step by step.
SERIES = {"join seconds", "leave seconds", "seconds", "join changes", "leave changes", "changes", "repair seconds",
          "|S| %", "join ratio %", "leave ratio %", "d", "diam", "Diam"}  # fmt: skip


def beside(experiment, table):
    try:
        return experiment.beside and experiment.beside(table)
    except Missing:  # a made-up table has only what rules read
        return "missing"


@pytest.mark.parametrize("name", JUDGED)
def test_a_verdict_from_kept_rows_is_that_from_all_numbers(name):
    experiment, asking = catalogue()[name], askers(("paper", "beyond"))
    for make in (GOOD[name], BAD[name]):
        full, kept = Table(), Table()
        for case in experiment.cases("paper", NOTHING):
            for seed in (1, 2):
                found = {
                    metric: series_of(stretched(metric, value) if metric in SERIES else value)
                    for metric, value in make(case.system, dict(case.parameters)).items()
                }
                line = json.loads(json.dumps(line_of(Row(case, seed), found, ABOUT, asking[case.identity])))
                full.add(case, seed, found)
                kept.add(case, seed, {metric: decoded(value) for metric, value in line["found"].items()})
        one, other = (judge(experiment, table, "paper", NOTHING) for table in (full, kept))
        assert one == other
        assert beside(experiment, full) == beside(experiment, kept)


def test_a_long_series_keeps_a_summary_and_a_few_points_and_refuses_what_it_cannot_tell():
    values = np.arange(1000.0) ** 2
    series = series_of(values.tolist())
    kept = decoded(json.loads(json.dumps(encoded(series, False, True))))
    assert len(kept.points) <= POINTS
    assert (kept.points[0], kept.points[-1]) == (0, pytest.approx(values[-1], rel=1e-4))
    for function in SUMMARIES.values():
        assert kept.of(function) == pytest.approx(series.of(function), rel=1e-8)
    with pytest.raises(AssertionError, match="by_step"):
        kept.values  # noqa: B018
    with pytest.raises(AssertionError, match="by_step"):
        kept.of(np.std)
    assert len(decoded(encoded(series, False, False)).points) == 0
    assert decoded(encoded(series, True, False)).values.tolist() == values.tolist()
    short = series_of(list(range(WHOLE_MAX)))
    assert decoded(encoded(short, False, False)).of(last) == WHOLE_MAX - 1


def test_numbers_that_json_has_no_word_for_come_back():
    for value in (float("inf"), float("-inf"), float("nan"), 0.1234567891234, 3.0):
        found = decoded(json.loads(json.dumps(encoded(series_of(value), False, False), allow_nan=False))).values[0]
        assert found == pytest.approx(value, rel=1e-8, nan_ok=True)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A folder of results with all rows of two quick entries, one row that failed and one from changed sources."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    store = Store("trellis-lab")
    store.open()
    for name in ("vitis-ex1", "shadows-fig1"):
        for row in catalogue()[name].rows("paper", AtHand(None)):
            assert run_row(row, store, "0123456789ab")[0] is None
    broken = Row(catalogue()["omen-tab1"].cases("paper", NOTHING)[0], 1)
    store.write(broken, {}, {**ABOUT, "error": "ValueError: no"})
    store.write(broken._replace(seed=2), {"links": 1.0}, {**ABOUT, "commit": "abc+"})
    store.write(Row(Case("own.measure", "mine", {}), 1), {"x": 1.0}, ABOUT)  # nobody asks for it
    return tmp_path


def test_rows_are_kept_sorted_once_and_only_with_a_commit(lab):
    first = keep(Store("trellis-lab"), Path("results"))
    assert (first.new, first.failed, first.uncommitted) == (2, 1, 1)
    texts = {path.name: path.read_text() for path in Path("results").iterdir()}
    assert set(texts) == {"vitis.jsonl", "shadows.jsonl"}
    line = json.loads(texts["vitis.jsonl"])
    assert {"commit", "engine", "versions", "seconds", "cpu_seconds", "ended"} <= set(line)
    assert line["engine"] == "central"
    assert {"trellis", "python", "numpy", "numba"} <= set(line["versions"])
    again = keep(Store("trellis-lab"), Path("results"))
    assert (again.new, again.replaced, again.unchanged) == (0, 0, 2)
    assert {path.name: path.read_text() for path in Path("results").iterdir()} == texts


def test_rows_of_an_old_measure_or_of_a_case_that_nobody_asks_for_are_dropped(lab):
    keep(Store("trellis-lab"), Path("results"))
    path = Path("results/vitis.jsonl")
    line = json.loads(path.read_text())
    old, foreign = {**line, "version": 99}, {**line, "measure": "no.measure"}
    path.write_text("".join(json.dumps(one) + "\n" for one in (old, foreign)))
    assert keep(Store("trellis-lab"), Path("results")).dropped == 2
    assert json.loads(path.read_text()) == line


def test_kept_rows_are_run_again_unless_a_run_may_take_them(lab, capsys):
    keep(Store("trellis-lab"), Path("results"))
    before = {path.name: path.read_text() for path in Path("results").iterdir()}
    words = ["lab", "run", "vitis-ex1", "shadows-fig1", "omen-tab1", "--scale", "paper", "-o", "other", "--json"]
    assert run([*words, "--dry-run"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert run([*words, "--dry-run", "--kept"]) == 0
    would = json.loads(capsys.readouterr().out)
    assert not Path("other").exists()
    assert (again["rows there already"], would["rows taken from results/"]) == (0, 2)
    assert run(["lab", "run", "vitis-ex1", "shadows-fig1", "--scale", "paper", "-o", "other", "--kept", "--json"]) == 0
    taken = json.loads(capsys.readouterr().out)
    assert (taken["rows taken from results/"], taken["verdicts"]) == (2, {"reproduced": 1, "shape only": 1})
    assert run([*words, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["rows there already"] == 2
    assert run(["lab", "report", "--scale", "paper", "-o", "other"]) == 0
    changed = keep(Store("other"), Path("results"))
    assert (changed.new, changed.unchanged) == (0, 2)
    keep(Store("other"), Path("fresh"))
    assert {path.name: path.read_text() for path in Path("fresh").iterdir()} == before


def test_a_kept_row_of_another_seed_or_an_old_version_is_not_taken(lab, capsys):
    keep(Store("trellis-lab"), Path("results"))
    path = Path("results/vitis.jsonl")
    line = json.loads(path.read_text())
    path.write_text("".join(json.dumps(one) + "\n" for one in ({**line, "version": 99}, {**line, "seed": 2})))
    assert run(["lab", "run", "vitis-ex1", "--scale", "paper", "-o", "other", "--kept", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows taken from results/"] == 0


def test_a_long_series_that_was_taken_is_judged_by_its_summary(tmp_path):
    case = Case("own.measure", "mine", {})
    line = line_of(Row(case, 1), {"D": series_of(np.arange(100.0))}, ABOUT, [])
    store = Store(tmp_path)
    store.open()
    store.take(Row(case, 1, ("x",)), line)
    assert store.is_done(Row(case, 1))
    assert store.table([case], store.outcomes()).mean("D", of=last) == 99.0


def test_pages_are_written_from_kept_rows_and_drawn_only_where_rows_changed(lab, capsys):
    assert run(["lab", "keep"]) == 0
    assert run(["lab", "pages", "--to", "pages", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["verdicts"]["reproduced"] == 1
    text = Path("pages/vitis.md").read_text()
    for said in ("## vitis-ex1", "**reproduced**", "0123456789ab", "trellis lab run vitis-ex1 --scale paper", "0.25"):
        assert said in text
    every = list(catalogue().values())
    assert kept_and_written(Path("results"), Path("pages")) == []
    assert write_pages(Path("results"), Path("pages"), every).drawn == 0
    Path("pages/figures/vitis-ex1.svg").write_text("<svg/>")
    Path("pages/vitis.md").write_text(text.replace("reproduced", "shape only"))
    assert kept_and_written(Path("results"), Path("pages")) == ["vitis.md", "vitis-ex1.svg"]
    assert write_pages(Path("results"), Path("pages"), every).drawn == 1
    assert kept_and_written(Path("results"), Path("pages")) == []


def test_a_report_is_made_from_kept_rows_alone(lab, capsys):
    assert run(["lab", "keep"]) == 0
    assert run(["lab", "report", "-o", "results", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["scale"], told["verdicts"]) == ("paper", {"reproduced": 1, "shape only": 1})
    assert run(["lab", "report", "vitis-ex1", "-o", "results", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"] == {"reproduced": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "is no row of results"), ('{"measure": "a"}', "is no row of results"), ("[]", "is no row of results")],
)
def test_a_damaged_file_of_kept_rows_is_told_in_a_line(text, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    Path("results/vitis.jsonl").write_text(text + "\n")
    assert run(["lab", "pages"]) == 2
    err = capsys.readouterr().err
    assert "results/vitis.jsonl:1" in err
    assert says in err
    assert err.count("\n") == 1


def test_times_are_those_of_kept_rows_else_estimates(lab):
    keep(Store("trellis-lab"), Path("results"))
    times = Times(Kept("results").outcomes())
    (row,) = catalogue()["vitis-ex1"].rows("paper", NOTHING)
    assert not times.expected([row]).is_estimate
    other = catalogue()["vitis-fig5"].rows("paper", NOTHING)
    assert times.expected([row, *other]).is_estimate
    assert str(times.expected(other)).startswith("~")
    assert str(times.expected([])) == "-"


def test_the_pages_of_the_project_are_those_of_its_rows():
    """`trellis lab pages` makes them; nothing in them is written by hand."""
    assert kept_and_written(ROOT / "results", ROOT / "docs" / "results") == []


def test_the_kept_rows_are_small_and_sorted_and_each_has_a_commit():
    files = sorted((ROOT / "results").glob("*.jsonl"))
    assert sum(path.stat().st_size for path in files) < 3_000_000
    for path in files:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        order = [(Case(one["measure"], one["system"], one["parameters"]).identity, one["seed"]) for one in lines]
        assert order == sorted(order)
        assert len(set(order)) == len(order)
        assert all(one["commit"] and not one["commit"].endswith("+") for one in lines)


def test_a_run_sums_up_verdicts_of_entries_that_share_rows_unless_only_the_named_one_is_asked_for(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    store = Store("trellis-lab")
    store.open()
    for row in catalogue()["spidercast-fig13a"].rows("smoke", NOTHING):
        store.write(row, GOOD["spidercast-fig13a"](row.case.system, dict(row.case.parameters)), ABOUT)
    told = []
    for more in ([], ["--only"]):
        assert run(["lab", "run", "spidercast-fig13a", "--json", *more]) == 0  # every row is there: nothing is run
        told.append(json.loads(capsys.readouterr().out)["verdicts"])
    # Fig. 13(b) has the same rows.
    assert told == [{"shape only": 2}, {"shape only": 1}]
    assert run(["lab", "run", "spidercast-fig13a"]) == 0
    assert "verdicts: 2 shape only" in capsys.readouterr().out
    assert run(["lab", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    times = {one["id"]: (one["seconds"], one["seconds_are_estimated"]) for one in listed["experiments"]}
    assert times["spidercast-fig13a"] == (42 * ABOUT["cpu_seconds"], False)
    assert times["omen-fig9a"][1]
    assert listed["all"]["seconds"] > 63
    assert listed["all"]["seconds_are_estimated"]
