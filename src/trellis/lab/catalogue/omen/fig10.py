"""Repair times.  [OM Fig. 10] Processor time, for all systems.

OMen and OMen-G: all that the coordinator computes, which is its view, the parts of topics and Alg. 1. SpiderCast: all
selections that an event causes. Central algorithms: Step II, in compiled kernels. LowODA is also rebuilt once in the
code of a node, which is what times of nodes are compared with; at the larger size that takes too long. At the papers'
sizes these are the first 40 machine events, and the first 12 at 10,000 nodes.
"""

from __future__ import annotations

import numpy as np

from trellis.lab.catalogue.omen.shared import SCALES, SEEDS, SIZES, TIMED, fb, tw
from trellis.lab.experiment import Bars, Case, Experiment, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table, lower_middle, upper_middle
from trellis.lab.verdict import Rule, at_least, at_most, below

SPIDER = "spidercast(3,1)"
LARGE_TIMED = 12  # events at 10,000 nodes: a minute of processor time each


def run_a(scale: str, at_hand: AtHand) -> list[Case]:
    both, events = ("OMen", "OMen-G"), TIMED[scale]
    return fb(scale, at_hand, both, events=events) + tw(scale, at_hand, both, events=events)


def rule_a(table: Table) -> Rule:
    shares = [
        100
        * table.mean("repair seconds", "OMen", interests=name)
        / table.mean("repair seconds", "OMen-G", interests=name)
        for name in table.values_of("interests")
    ]
    mean = float(np.mean(shares))
    return Rule([at_most("OMen's repair time, % of OMen-G's", mean, 10)], [at_most("of OMen-G's, %", mean, 99.999)])


SAME_CODE = "LowODA-Re (node's code)"


def same_code(scale: str, at_hand: AtHand) -> list[Case]:
    nodes = SIZES[scale][0]
    return cases("omen.rebuilt", SAME_CODE, None, interests=at_hand.friends(nodes), nodes=nodes)


def run_b(scale: str, at_hand: AtHand) -> list[Case]:
    both, (small, large) = ("OMen", "LowODA-Re"), SIZES[scale]
    many, few = TIMED[scale], min(TIMED[scale], LARGE_TIMED) if scale == "paper" else TIMED[scale]
    return (
        fb(scale, at_hand, both, (small,), events=many)
        + fb(scale, at_hand, both, (large,), events=few)
        + same_code(scale, at_hand)
    )


def rule_b(table: Table) -> Rule:
    small, large = table.values_of("nodes")
    mine, compiled = (
        [table.mean("repair seconds", name, np.median, nodes=n) for n in (small, large)]
        for name in ("OMen", "LowODA-Re")
    )
    share = [100 * one / other for one, other in zip(mine, compiled, strict=True)]
    same = 100 * mine[0] / table.mean("repair seconds", SAME_CODE)
    return Rule(
        [at_most(f"OMen's repair time, % of a rebuild in the same code, {small}", same, 0.5),
         at_most(f"OMen's repair time, % of a compiled rebuild, {large}", share[1], 0.05)],
        [below("the share of a compiled rebuild is smaller at the larger size", share[1], share[0])],
    )  # fmt: skip


SYSTEMS = ("OMen", "OMen-G", SPIDER, "LowODA-Inc", "LowODA-Re")


def run_c(scale: str, at_hand: AtHand) -> list[Case]:
    return fb(scale, at_hand, SYSTEMS, events=TIMED[scale]) + same_code(scale, at_hand)


def rule_c(table: Table) -> Rule:
    def median(name: str) -> float:
        return table.mean("repair seconds", name, np.median)

    # Protocol nodes run in Python and central algorithms are compiled: each is compared with a rebuild in its own code.
    nodes = max(median(name) for name in ("OMen", "OMen-G", SPIDER))
    largest = [
        below("LowODA-Re has the largest median, all in the code of a node, s", nodes, median(SAME_CODE)),
        below("LowODA-Re has the larger median, both compiled, s", median("LowODA-Inc"), median("LowODA-Re")),
    ]
    slower = [
        below(f"{name}: leaves take longer than joins, s",
              table.mean("join seconds", name, np.median), table.mean("leave seconds", name, np.median))
        for name in ("OMen", SPIDER, "LowODA-Inc")
    ]  # fmt: skip

    def gap(name: str) -> float:
        """How far apart the quantiles around a half are."""
        low, high = (table.each("repair seconds", name, pick) for pick in (lower_middle, upper_middle))
        return float(np.mean(high / np.maximum(1e-9, low)))

    return Rule(
        [
            *slower,
            *largest,
            *(at_least(f"{name}: a step around the 50% quantile", gap(name), 3) for name in ("LowODA-Inc", "OMen-G")),
        ],
        largest,
    )


TIMES = Bars(("repair seconds",), "seconds", log="y")
EXPERIMENTS = [
    Experiment(
        "omen-fig10a",
        "Local repairs are cheaper than global ones",
        "Fig. 10(a)",
        "OMen's repair takes 4.67% of OMen-G's time on average.",
        run_a,
        rule_a,
        (TIMES,),
        scales=SCALES,
        seeds=SEEDS,
        is_timed=True,
        note="Processor time of a coordinator: its view, the parts of topics, Alg. 1, in the same code for both. What "
        "gossip and answers cost is no part of it.",
    ),
    Experiment(
        "omen-fig10b",
        "A fraction of a rebuild",
        "Fig. 10(b)",
        "About 0.20% of LowODA-Re's time at 1K, 0.01% at 10K.",
        run_b,
        rule_b,
        (TIMES,),
        scales=SCALES,
        seeds=SEEDS,
        is_timed=True,
        note="At the smaller size LowODA is rebuilt in the code of a node. Where it is compiled, and OMen's node runs "
        "in Python, the share is an upper bound.",
    ),
    Experiment(
        "omen-fig10c",
        "Joins and leaves",
        "Fig. 10(c)",
        "LowODA-Re slowest by far; leaves slower than joins; a step at 50% in the CDFs of OMen-G and LowODA-Inc.",
        run_c,
        rule_c,
        (Bars(("join seconds", "leave seconds", "repair seconds"), "seconds", log="y"),),
        scales=SCALES,
        seeds=SEEDS,
        is_timed=True,
        note="LowODA-Inc and LowODA-Re are compiled, the others run in the code of a node. So the others are compared "
        "with one rebuild in that code, over all nodes before the churn.",
    ),
]
