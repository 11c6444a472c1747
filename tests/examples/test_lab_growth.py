"""The entries beyond the papers: every condition of their rules can fail, and their smallest rows run."""

from __future__ import annotations

import pytest

from growth_tables import BREAKS, good
from trellis.cycles.memory import memory_needed, neighbors_memory_needed, omen_memory_needed
from trellis.lab.catalogue import catalogue
from trellis.lab.catalogue.growth import FIGURE, constant, grows, logarithm, logarithm_squared
from trellis.lab.inputs import EVERYTHING, NOTHING
from trellis.lab.judge import judge
from trellis.lab.measures import omen, spidercast, vitis
from trellis.lab.table import Table

ROOM = 16 << 30


def judged(name: str, make, scale: str = "beyond"):
    experiment, table = catalogue()[name], Table()
    for case in experiment.cases(scale, NOTHING):
        table.add(case, 1, make(case.system, dict(case.parameters)))
    return judge(experiment, table, scale, NOTHING)


def test_every_paper_with_a_protocol_has_an_entry_beyond_its_sizes():
    assert {name for name, one in catalogue().items() if one.figure == FIGURE} == BREAKS.keys()
    for name in BREAKS:
        experiment = catalogue()[name]
        assert experiment.cases("beyond", NOTHING) == experiment.cases("beyond", EVERYTHING), "no raw trace is so large"
        sizes = {case.parameters["nodes"] for case in experiment.cases("beyond", NOTHING)}
        assert sizes == ({100_000, 1_000_000} if name.endswith("million") else {10_000, 30_000, 100_000})


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("scale", ["smoke", "beyond"])
def test_the_best_verdict_beyond_the_papers_is_shape_only(name, scale):
    verdict = judged(name, good, scale)
    assert [check for check in verdict.r if not check.holds] == []
    assert verdict.word == "shape only"


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, some in BREAKS.items() for text in some])
def test_each_condition_can_fail(name, text):
    change = BREAKS[name][text]
    verdict = judged(name, lambda system, told: {**good(system, told), **change(system, told)})
    assert [check.condition for check in verdict.r if not check.holds and text in check.condition]


def test_growth_is_held_against_the_smallest_size():
    nodes = [10_000, 100_000]
    assert grows("x", nodes, [10, 11], constant).holds
    assert not grows("x", nodes, [10, 11.5], constant).holds
    assert grows("x", nodes, [10, 12.5], logarithm, 1.0).holds
    assert not grows("x", nodes, [10, 12.6], logarithm, 1.0).holds
    assert grows("x", nodes, [10, 15.6], logarithm_squared, 1.0).holds
    assert not grows("x", nodes[:1], [10], constant).holds, "one size shows no growth"


def test_a_million_nodes_fit_into_sixteen_gibibytes_where_there_is_an_entry():
    million = 1_000_000
    tables, links = vitis.system_of("Vitis", {}).config, spidercast.system_of("spidercast(3,0)").config
    assert memory_needed(million, 5000, 50 * million, tables) < ROOM
    assert neighbors_memory_needed(million, 100, 10 * million, links) < ROOM
    views = omen.system_of("OMen", {"coverage": 5, "L": 1, "backups": "primal-dual-uncovered"}).config
    assert (
        omen_memory_needed(100_000, 100_000, 1_600_000, views)
        < ROOM
        < omen_memory_needed(million, million, 16 * million, views)
    )
