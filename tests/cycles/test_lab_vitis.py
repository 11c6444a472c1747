"""The lab measures Vitis, RVR and OPT alike on both engines, and takes the cycle engine for the papers' sizes."""

from __future__ import annotations

import pytest

from trellis.lab.catalogue import catalogue
from trellis.lab.inputs import NOTHING, Inputs
from trellis.lab.measures.vitis import events, system_of

SMALL = {"nodes": 80, "cycles": 18, "topics": 60, "subs": 10, "buckets": 6, "level": "low", "table_size": 10}


@pytest.mark.parametrize("system", ["Vitis", "RVR", "OPT"])
def test_both_engines_give_the_same_metrics(system):
    by_events = events(system, SMALL, 1, Inputs(None))
    by_cycles = events(system, {**SMALL, "engine": "cycles"}, 1, Inputs(None))
    assert set(by_events) == set(by_cycles)
    assert by_cycles["table max"] == pytest.approx(by_events["table max"], abs=0 if system != "OPT" else 1)
    assert by_cycles["hit ratio"] == pytest.approx(by_events["hit ratio"], abs=0.02 if system != "OPT" else 0.05)
    assert by_cycles["degree mean"] == pytest.approx(by_events["degree mean"], rel=0.05)
    assert by_cycles["overhead %"] == pytest.approx(by_events["overhead %"], abs=6)
    assert by_cycles["delay"] == pytest.approx(by_events["delay"], rel=0.15)


def test_static_runs_of_the_papers_size_take_the_cycle_engine_and_no_links_linger():
    found = [
        case for name, one in catalogue().items() if name.startswith("vitis-") for case in one.cases("paper", NOTHING)
    ]
    assert not any("linger_rounds" in case.parameters for case in found)
    static = [case for case in found if case.measure == "vitis.events"]
    assert {case.parameters.get("engine") for case in static} == {"cycles"}
    assert {case.system for case in static} == {"Vitis", "RVR", "OPT"}
    for name in ("Vitis", "RVR"):
        assert system_of(name, {}).config.linger_rounds == 0  # the default of live meshes is another
    assert system_of("OPT", {}).config.coverage == 3  # "similar to SpiderCast" [VI §IV; A-VIT-24]
