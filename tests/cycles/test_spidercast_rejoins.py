"""SpiderCast whose nodes join and leave, with full views: both engines agree in distribution, as the lab measures it.

Each seed draws interests and the times at which nodes come and go. As in `test_whole_runs.py`: a two-sided t-test of
the pairs at a level of 1% for all measures together (Bonferroni), and bounds on the difference of the means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from both_engines import expect_alike
from trellis.lab.catalogue import catalogue
from trellis.lab.inputs import NOTHING, Inputs
from trellis.lab.measures import spidercast

LEVEL, SEEDS, NAME = 0.01, 8, "spidercast(3,0)"
SMALL = {"popularity": "rss", "nodes": 80, "mean_life": 30, "seconds": 40, "every": 10}
# How far the means of a measure may be apart: a share of the event engine's mean, and an amount on top of it.
BOUNDS = {
    "degree": (0.02, 0.0),
    "degree at the end": (0.03, 0.0),
    "split": (0.25, 0.2),
    "split_10s": (0.25, 0.5),
    "topics": (0.02, 0.0),
    "messages": (0.03, 0.0),
    "messages Connect": (0.03, 0.0),
    "messages ConnectOk": (0.03, 0.0),
    "messages Redirect": (0.25, 0.05),
    "messages Disconnect": (0.05, 0.0),
    "messages DisconnectOk": (0.06, 0.0),
    "messages Leave": (0.03, 0.0),
}


def measured(engine: str, seed: int) -> dict[str, float]:
    found: Any = spidercast.churned(NAME, {**SMALL, "engine": engine}, seed, Inputs(None))
    series = {metric: float(np.mean(found[metric][1])) for metric in ("degree", "split", "split_10s", "topics")}
    counts = {metric: value for metric, value in found.items() if metric.startswith("messages")}
    return {**series, **counts, "degree at the end": found["degree"][1][-1], "events": found["events"]}


def test_both_engines_give_the_same_metrics_of_the_same_events():
    short = {**SMALL, "nodes": 30, "seconds": 12, "every": 6}
    by_events, in_cycles = (
        spidercast.churned(NAME, {**short, "engine": engine}, 1, Inputs(None)) for engine in ("events", "cycles")
    )
    assert list(by_events) == list(in_cycles)
    assert by_events["events"] == in_cycles["events"] > 10
    assert by_events["topics"] == in_cycles["topics"]
    for metric in ("degree", "split", "split_10s"):
        assert by_events[metric][0] == in_cycles[metric][0] == [6, 12]
    assert in_cycles["degree"][1] == pytest.approx(by_events["degree"][1], rel=0.1)


def test_rows_of_the_papers_size_take_the_cycle_engine():
    for name in ("spidercast-fig11", "spidercast-s381"):
        for scale, engine in (("smoke", None), ("paper", "cycles")):
            engines = {case.parameters.get("engine") for case in catalogue()[name].cases(scale, NOTHING)}
            assert engines == {engine}


@pytest.mark.slow
def test_runs_whose_nodes_join_and_leave_are_alike_on_both_engines():
    runs = {engine: [measured(engine, seed) for seed in range(1, SEEDS + 1)] for engine in ("events", "cycles")}
    for by_events, in_cycles in zip(*runs.values(), strict=True):
        assert by_events.pop("events") == in_cycles.pop("events")
    expect_alike(runs, BOUNDS, LEVEL)
