"""The lab measures OMen alike on both engines, and takes the event engine for messages and processor times alone."""

from __future__ import annotations

from typing import Any

import pytest

from trellis.lab.catalogue import catalogue
from trellis.lab.inputs import NOTHING, Inputs
from trellis.lab.measures import omen

SMALL = {"popularity": "unif", "nodes": 40, "coverage": 2, "L": 1, "engine": "cycles"}


def test_measures_of_the_cycle_engine_have_the_names_of_the_others():
    found: Any = omen.grown("OMen", {**SMALL, "rounds": 6}, 1, Inputs(None))
    assert {"D", "d", "links", "split", "rounds", "early", "size", "split_end", "nodes_end", "skipped"} <= set(found)
    assert len(found["D"]) == 6
    assert found["split_end"] == 0
    assert found["skipped"] == 0
    assert all(1 <= rounds <= omen.ROUNDS_MAX for rounds in found["rounds"])
    spider: Any = omen.grown("spidercast(3,1)", {**SMALL, "rounds": 6}, 1, Inputs(None))
    assert set(spider) == set(found)
    assert len(spider["D"]) == 6
    assert spider["skipped"] == 0
    assert 40 - 6 <= spider["nodes_end"] <= 40 + 6
    arcs: Any = omen.backups("OMen-G(greedy)", {**SMALL, "rounds": 25}, 1, Inputs(None))
    assert 0 < arcs["mean out %"] < 100
    assert arcs["max in"] > arcs["min in"]


@pytest.mark.parametrize("scale", ["medium", "paper"])
def test_figures_take_the_cycle_engine_unless_they_count_messages_or_time(scale):
    by_cycles = {f"omen-{name}" for name in "fig3 fig4 fig5 fig6 fig8a fig8b fig9a fig9b fig9c s65 fig11".split()}
    by_events = {f"omen-{name}" for name in "fig10a fig10b fig10c fig12 s68".split()}
    for name in by_cycles | by_events:
        one = catalogue()[name]
        if scale not in one.scales:
            continue
        engines = {
            case.parameters.get("engine") for case in one.cases(scale, NOTHING) if case.system.startswith("OMen")
        }
        assert engines == ({"cycles"} if name in by_cycles else {None}), name


@pytest.mark.parametrize("scale", ["medium", "paper"])
def test_spidercast_under_churn_takes_the_cycle_engine_where_neither_messages_nor_times_are_needed(scale):
    engines = {
        number: {
            case.parameters.get("engine")
            for case in catalogue()[f"omen-fig{number}"].cases(scale, NOTHING)
            if case.system.startswith("spidercast")
        }
        for number in ("9c", "10a", "11", "12")
    }
    assert engines["9c"] == engines["11"] == {"cycles"}
    assert engines["10a"] <= {None}
    assert engines["12"] == {None}
