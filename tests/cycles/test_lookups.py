"""Lookups on both engines: hops, successors and the greatest table.  [VI §III-A]"""

from __future__ import annotations

import pytest
from scipy.stats import t as students_t

from both_engines import compare
from trellis.lab.inputs import Inputs
from trellis.lab.measures.vitis import lookups

LEVEL = 0.01
SMALL = {"level": "random", "topics": 50, "subs": 10, "cycles": 30, "table_size": 4, "sw_neighbors": 4}


def run(engine: str, parameters: dict[str, object], seed: int) -> dict[str, float]:
    return lookups("Vitis", {**parameters, "engine": engine}, seed, Inputs(None))  # type: ignore[arg-type, return-value]


def test_lookups_in_cycles_find_a_closed_ring_and_full_tables():
    found = run("cycles", {**SMALL, "nodes": 60}, 1)
    assert found["table max"] == 4
    assert found["wrong successors"] == 0
    assert 1 < found["hops"] < 6


@pytest.mark.slow
@pytest.mark.parametrize("long_links", [1, 2])
def test_lookups_on_both_engines_are_alike(long_links):
    sizes = {"nodes": 300, "cycles": 50, "table_size": 2 + long_links, "sw_neighbors": 2 + long_links}
    events, arrays = (
        [run(engine, {**SMALL, **sizes}, seed) for seed in range(1, 7)] for engine in ("events", "cycles")
    )
    found = compare(events, arrays)
    limit = students_t.ppf(1 - LEVEL / len(found) / 2, len(events) - 1)
    shown = "\n".join(f"{key}: events {a:.4f}, cycles {b:.4f}, t {t:.2f}" for key, (a, b, t) in found.items())
    assert all(abs(t) <= limit for _, _, t in found.values()), f"t above {limit:.2f}\n{shown}"
    hops = found["hops"]
    assert abs(hops[1] - hops[0]) <= 0.05 * hops[0], shown
    assert found["table max"][:2] == (2 + long_links, 2 + long_links)
