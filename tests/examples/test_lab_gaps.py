"""Rows that are missing, and seeds that some systems lack: what a verdict and a page say then."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from examples.test_lab_rules import GOOD
from trellis.cli.main import run
from trellis.lab.catalogue import catalogue
from trellis.lab.inputs import NOTHING
from trellis.lab.judge import judge
from trellis.lab.kept import askers, line_of
from trellis.lab.pages import kept_and_written, write_pages
from trellis.lab.report import judged_one
from trellis.lab.store import Store
from trellis.lab.table import Table, series_of

ABOUT = {"seconds": 2.0, "cpu_seconds": 1.5, "commit": "abc", "engine": "events", "versions": {}, "ended": "2026"}


def table_without(name: str, lost, seeds=range(1, 4), more=lambda row: False) -> Table:
    """Return a good table of an entry, without the rows for which `lost` holds, with seed 9 where `more` does."""
    one, table = catalogue()[name], Table()
    for case in one.cases("paper", NOTHING):
        for seed in seeds:
            if not lost(case, seed):
                table.add(case, seed, GOOD[name](case.system, dict(case.parameters)))
        if more(case):
            table.add(case, 9, GOOD[name](case.system, dict(case.parameters)))
    return table


def test_a_seed_that_one_system_lacks_makes_an_entry_incomplete_and_is_named():
    def lost(case, seed):
        return case.system == "strawman" and case.parameters["nodes"] == 2000 and seed == 2

    verdict = judge(catalogue()["magnet-fig6"], table_without("magnet-fig6", lost), "paper", NOTHING)
    assert verdict.word == "incomplete"
    assert verdict.reason.startswith("strawman (nodes 2000, mean 8) has no seed 2; strawman (nodes 2000, mean 16)")
    assert verdict.reason.endswith("trellis lab run magnet-fig6 --scale paper")


def test_a_seed_more_than_another_system_has_is_told_with_the_command_that_runs_the_others():
    table = table_without("magnet-wiki", lambda case, seed: False, more=lambda case: case.system == "Magnet")
    verdict = judge(catalogue()["magnet-wiki"], table, "paper", NOTHING)
    assert verdict.word == "incomplete"
    assert verdict.reason == "strawman has no seed 9: trellis lab run magnet-wiki --scale paper --seeds 9"


def test_a_gap_that_all_systems_have_is_told_and_few_seeds_are_none():
    one = catalogue()["magnet-wiki"]
    assert "has no seed 2" in judge(one, table_without(one.id, lambda case, seed: seed == 2), "paper", NOTHING).reason
    assert judge(one, table_without(one.id, lambda case, seed: seed > 1), "paper", NOTHING).word == "shape only"
    # Five seeds at small sizes and three from 10,000 nodes on are what the rules ask for.
    name = "spidercast-fig14"
    full = table_without(name, lambda case, seed: seed > (3 if case.parameters["nodes"] >= 10_000 else 5), range(1, 6))
    assert judge(catalogue()[name], full, "paper", NOTHING).word == "reproduced"


def test_no_entry_ends_in_a_traceback_when_a_seed_of_its_first_case_is_missing():
    for name, one in catalogue().items():
        if name not in GOOD or not one.can_run:
            continue
        first = one.cases("paper", NOTHING)[0].identity
        table = table_without(name, lambda case, seed, first=first: case.identity == first and seed == 2)
        asked = one.seeds_of(one.cases("paper", NOTHING)[0], "paper")
        assert judge(one, table, "paper", NOTHING).word == "incomplete" or asked == 1, name


@pytest.fixture
def uneven(tmp_path, monkeypatch):
    """Rows of omen-fig9a, whose conditions pair seeds, without one seed of one system; and those kept of them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    one, store = catalogue()["omen-fig9a"], Store("trellis-lab")
    store.open()
    asked = askers(("paper",))
    lines = []
    for row in one.rows("paper", NOTHING):
        if row.seed == 2 and row.case.system == "LowODA-Re":
            continue
        found = {m: series_of(value) for m, value in GOOD[one.id](row.case.system, dict(row.case.parameters)).items()}
        store.write(row, found, ABOUT)
        lines.append(json.dumps(line_of(row, found, ABOUT, asked[row.case.identity])))
    Path("results").mkdir()
    Path("results/omen.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("folder", ["trellis-lab", "results"])
def test_lists_and_reports_say_which_seeds_are_missing(uneven, folder, capsys):
    assert run(["lab", "list", "--scale", "paper", "-o", folder, "--json"]) == 0
    (listed,) = (one for one in json.loads(capsys.readouterr().out)["experiments"] if one["id"] == "omen-fig9a")
    assert listed["verdict"] == "incomplete"
    assert "LowODA-Re (nodes 10000, events 300) has no seed 2" in listed["reason"]
    assert run(["lab", "report", "--scale", "paper", "-o", folder, "--to", "report"]) == 0
    assert "LowODA-Re (nodes 10000, events 300) has no seed 2" in Path("report/summary.md").read_text()


def test_pages_are_made_of_uneven_rows_and_link_only_figures_that_are_drawn(uneven):
    every = list(catalogue().values())
    write_pages(Path("results"), Path("pages"), every)
    assert "has no seed 2" in Path("pages/omen.md").read_text()
    assert kept_and_written(Path("results"), Path("pages")) == []


def test_a_page_links_no_figure_where_no_plot_has_a_case(tmp_path):
    """Rows may be there that none of the plots of an entry shows, as when its `only` asks for others."""
    one = catalogue()["magnet-claim-worse"]  # its plot shows uniform interests only
    row = next(row for row in one.rows("paper", NOTHING) if row.case.parameters["workload"] == "multi")
    found = {"cost": series_of(3.0)}
    line = line_of(row, found, ABOUT, askers(("paper",))[row.case.identity])
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "magnet.jsonl").write_text(json.dumps(line) + "\n")
    write_pages(tmp_path / "results", tmp_path / "pages", list(catalogue().values()))
    text = (tmp_path / "pages" / "magnet.md").read_text()
    linked = re.findall(r"\]\((figures/[^)]+)\)", text)
    assert linked
    assert all((tmp_path / "pages" / figure).is_file() for figure in linked)
    assert "## magnet-claim-worse" in text
    assert "figures/magnet-claim-worse.svg" not in linked


def test_numbers_beside_a_verdict_wait_for_all_rows(uneven):
    store = Store("trellis-lab")
    judged = judged_one(catalogue()["omen-fig9a"], store, store.outcomes(), "paper", NOTHING)
    assert judged.verdict.word == "incomplete"
    assert judged.beside == ""
