"""What Vitis' figures have in common: RT-SIZE 15, k = 3, d = 5, three patterns of interests, 50 gossip cycles.

Static runs are made by the cycle engine, but for the smallest, which run the protocol's own code. So do all runs with
churn.

A table of 15 is not a degree of 15: a link counts at both ends, whichever end holds it. So every result of Vitis, RVR
and OPT says beside it how many links their nodes had (`links`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np

from trellis.lab.experiment import Bars, Case, cases
from trellis.lab.table import Table
from trellis.lab.verdict import Check, each_of

EVENTS, PERFECT = "vitis.events", "vitis.perfect"
SCALES = ("smoke", "medium", "paper")
NODES = {"smoke": 160, "medium": 1000, "paper": 10_000}
LEVELS = ("random", "low", "high")
SEEDS = {"smoke": 2, "medium": 3, "paper": 3, "beyond": 1}
CYCLES = 50


def size(scale: str) -> dict[str, Any]:
    if scale == "smoke":  # a topic has 10 subscribers, a bucket of `high` 20 nodes: a tenth of the paper's
        return {"nodes": NODES[scale], "cycles": 30, "topics": 160, "subs": 10, "buckets": 16}
    if scale == "medium":  # a topic has 50 subscribers, a bucket of `high` 100 nodes: half of the paper's
        return {"nodes": NODES[scale], "cycles": CYCLES, "topics": 1000, "subs": 50, "buckets": 20}
    return {"nodes": NODES[scale], "cycles": CYCLES}


def engine(scale: str) -> dict[str, Any]:
    """Return the parameter that names the engine of a run, where it is not the event engine."""
    return {} if scale == "smoke" else {"engine": "cycles"}


def vitis(scale: str, levels: Sequence[str] = LEVELS, **grid: Sequence[Any]) -> list[Case]:
    return cases(EVENTS, "Vitis", {"level": levels, **grid}, **size(scale), **engine(scale))


def rvr(scale: str, **grid: Sequence[Any]) -> list[Case]:
    """RVR does not see interests: `random` stands for all patterns."""
    return cases(EVENTS, "RVR", grid, level="random", **size(scale), **engine(scale))


def on_perfect_tables(scale: str, levels: Sequence[str] = LEVELS, **grid: Sequence[Any]) -> list[Case]:
    """Vitis and RVR as above, on tables that nodes choose among all others, without gossip."""
    fixed = {**{name: value for name, value in size(scale).items() if name != "cycles"}, "model": "converged"}
    return [
        *cases(PERFECT, "Vitis on perfect tables", {"level": levels, **grid}, **fixed),
        *cases(PERFECT, "RVR on perfect tables", level="random", **fixed),
    ]


def social(scale: str, systems: Sequence[str], sizes: Sequence[int]) -> list[Case]:
    fixed = {"nodes": NODES[scale], "cycles": size(scale)["cycles"]}
    return [
        case
        for system in systems
        for case in cases(EVENTS, system, {"table_size": sizes}, interests="followers", **fixed, **engine(scale))
    ]


DEGREES = Bars(("degree mean", "degree max"), "links of a node, both ends counted")


def links(table: Table) -> str:
    """Return the total degrees of each system: the range of the means over its cases, and the greatest of all."""
    told = []
    for system in dict.fromkeys(case.system for case in table.cases()):
        cases_of = [case for case in table.cases(system) if "degree mean" in table.metrics(case)]
        if not cases_of:
            continue
        means = [float(mean([one.of(np.mean) for one in table.of_case(case, "degree mean")])) for case in cases_of]
        most = max(one.of(np.max) for case in cases_of for one in table.of_case(case, "degree max"))
        low, high = f"{min(means):.1f}", f"{max(means):.1f}"
        told.append(f"{system} {low if low == high else f'{low} to {high}'} (max {most:.0f})")
    return f"links a node: {', '.join(told)}" if told else ""


def all_hit(table: Table, *systems: str) -> Check:
    found = [v for name in systems for v in table.everywhere("hit ratio", name)]
    return each_of(f"hit ratio 100% in every run of {', '.join(systems)}", found, lambda v: v == 1)
