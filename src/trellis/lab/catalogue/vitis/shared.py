"""What Vitis' figures have in common: RT-SIZE 15, k = 3, d = 5, three patterns of interests, 50 gossip cycles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trellis.lab.experiment import Case, cases
from trellis.lab.table import Table
from trellis.lab.verdict import Check, each_of

EVENTS = "vitis.events"
NODES = {"smoke": 160, "paper": 10_000}
LEVELS = ("random", "low", "high")
SEEDS = {"smoke": 2, "paper": 3, "beyond": 1}
CYCLES = 50


def size(scale: str) -> dict[str, Any]:
    if scale == "smoke":  # a topic has 10 subscribers, a bucket of `high` 20 nodes: a tenth of the paper's
        return {"nodes": NODES[scale], "cycles": 30, "topics": 160, "subs": 10, "buckets": 16}
    return {"nodes": NODES[scale], "cycles": CYCLES}


def vitis(scale: str, levels: Sequence[str] = LEVELS, **grid: Sequence[Any]) -> list[Case]:
    return cases(EVENTS, "Vitis", {"level": levels, **grid}, **size(scale))


def rvr(scale: str, **grid: Sequence[Any]) -> list[Case]:
    """RVR does not see interests: `random` stands for all patterns."""
    return cases(EVENTS, "RVR", grid, level="random", **size(scale))


def social(scale: str, systems: Sequence[str], sizes: Sequence[int]) -> list[Case]:
    fixed = {"nodes": NODES[scale], "cycles": size(scale)["cycles"]}
    return cases(EVENTS, systems, {"table_size": sizes}, interests="followers", **fixed)


def all_hit(table: Table, *systems: str) -> Check:
    found = [v for name in systems for v in table.everywhere("hit ratio", name)]
    return each_of(f"hit ratio 100% in every run of {', '.join(systems)}", found, lambda v: v == 1)
