"""Whole runs of SpiderCast under churn on both engines agree in distribution, as the lab measures them for OMen.

Each seed draws interests of 60 nodes, and 24 random joins and leaves, which the lab turns into crashes. Both engines
run them, from LowODA's overlay. As in `test_whole_runs.py`: a two-sided t-test of the pairs at a level of 1% for all
measures of a system together (Bonferroni), and bounds on the difference of the means.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from both_engines import expect_alike
from trellis.lab.inputs import Inputs
from trellis.lab.measures import omen

LEVEL, SEEDS, EVENTS, NODES = 0.01, 8, 24, 60
# How far the means of a measure may be apart: a share of the event engine's mean, and an amount on top of it.
BOUNDS = {
    "D at the end": (0.10, 1.0),
    "D in the middle": (0.10, 1.0),
    "d at the end": (0.06, 0.0),
    "links at the end": (0.06, 0.0),
    "links on average": (0.06, 0.0),
    "rounds": (0.15, 0.5),
    "split": (0.25, 0.5),
}


def measured(system: str, engine: str, seed: int) -> dict[str, float]:
    fixed = {"popularity": "unif", "nodes": NODES, "rounds": EVENTS, "engine": engine}
    found: Any = omen.grown(system, fixed, seed, Inputs(None))
    assert found["skipped"] == 0
    return {
        "D at the end": found["D"][-1],
        "D in the middle": found["D"][EVENTS // 2],
        "d at the end": found["d"][-1],
        "links at the end": found["links"][-1],
        "links on average": float(np.mean(found["links"])),
        "rounds": float(np.mean(found["rounds"])),
        "split": float(np.mean(found["split"])),
    }


@pytest.mark.slow
@pytest.mark.parametrize("system", ["spidercast(3,1)", "spidercast(4,0)"])
def test_runs_under_churn_of_both_engines_are_alike(system):
    runs = {engine: [measured(system, engine, seed) for seed in range(1, SEEDS + 1)] for engine in ("events", "cycles")}
    expect_alike(runs, BOUNDS, LEVEL)
