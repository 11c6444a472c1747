"""Vitis, RVR and OPT at up to 1,000,000 nodes, on 50 of 5,000 topics. No figure of the paper.

The number of topics stays, so a topic has ten times as many subscribers at ten times as many nodes. Interests are those
of pattern `low`, 50 topics from 5 of the 100 buckets, and all three systems have tables of 15.
"""

from __future__ import annotations

from typing import Any

from trellis.lab.catalogue.growth import (
    FIGURE,
    LIMIT,
    MILLION,
    SCALES,
    SEEDS,
    grows,
    logarithm,
    logarithm_squared,
    sizes,
)
from trellis.lab.catalogue.vitis.shared import CYCLES, DEGREES, EVENTS, all_hit, links
from trellis.lab.experiment import Case, Experiment, Lines, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Check, Rule, below, each_of

SYSTEMS = ("Vitis", "RVR", "OPT")
LIKE: dict[str, Any] = {"level": "low", "cycles": CYCLES, "subs": 50, "engine": "cycles"}


def run(scale: str, at_hand: AtHand, systems: tuple[str, ...] = SYSTEMS) -> list[Case]:
    topics = 500 if scale == "smoke" else 5000
    return cases(EVENTS, systems, {"nodes": sizes(scale)}, topics=topics, **LIKE)


def run_million(scale: str, at_hand: AtHand) -> list[Case]:
    if scale == "smoke":
        return run(scale, at_hand, ("Vitis",))
    return cases(EVENTS, "Vitis", {"nodes": MILLION}, topics=5000, **LIKE)


def own(table: Table, *systems: str) -> list[Check]:
    """Return what is expected of systems that reach everybody, at every size."""
    found = [all_hit(table, *systems)]
    for name in systems:
        nodes = table.values_of("nodes", name)
        for metric, what, shape in (
            ("degree mean", "mean degree", logarithm),
            ("degree max", "greatest degree", logarithm_squared),
            ("overhead %", "overhead", logarithm),
            ("delay", "delay", logarithm_squared),
        ):
            found.append(grows(f"{name}: {what}", nodes, [table.mean(metric, name, nodes=n) for n in nodes], shape))
    return found


def rule(table: Table) -> Rule:
    less = [
        below(f"overhead of Vitis below that of RVR at {n:,} nodes",
              table.mean("overhead %", "Vitis", nodes=n), table.mean("overhead %", "RVR", nodes=n))
        for n in table.values_of("nodes", "Vitis")
    ]  # fmt: skip
    most = table.everywhere("table max", "OPT")
    bounded = each_of("OPT has tables of at most 15 in every run", most, lambda entries: entries <= 15)
    lost = each_of("OPT with a table of 15 misses some in every run", table.everywhere("hit ratio", "OPT"), _misses)
    hits = [value for name in ("Vitis", "RVR") for value in table.everywhere("hit ratio", name)]
    nearly = each_of("hit ratio at least 99.9% in every run of Vitis, RVR", hits, lambda ratio: ratio >= 0.999)
    return Rule([*own(table, "Vitis", "RVR"), *less, bounded, lost], [nearly, *less])


def _misses(hit_ratio: float) -> bool:
    return hit_ratio < 1


PLOTS = (
    Lines("degree mean", "nodes", "mean links of a node", log="x"),
    Lines("degree max", "nodes", "greatest number of links", log="x"),
    Lines("overhead %", "nodes", "overhead, %", log="x"),
    Lines("delay", "nodes", "delay, hops", log="x"),
    Lines("hit ratio", "nodes", "hit ratio", log="x"),
)
EXPERIMENTS = [
    Experiment(
        "vitis-growth",
        "Vitis, RVR and OPT from 10,000 to 100,000 nodes",
        FIGURE,
        "No such figure. Section III: tables are bounded, and delay is in O(log^2 N + d).",
        run,
        rule,
        PLOTS,
        scales=SCALES,
        seeds=SEEDS,
        limit=LIMIT,
        beside=links,
    ),
    Experiment(
        "vitis-million",
        "Vitis at 1,000,000 nodes",
        FIGURE,
        "No such figure. The same conditions as those on Vitis in vitis-growth.",
        run_million,
        lambda table: Rule(own(table, "Vitis")),
        (*PLOTS[:4], DEGREES),
        scales=SCALES,
        seeds=SEEDS,
        limit=LIMIT,
        beside=links,
    ),
]
