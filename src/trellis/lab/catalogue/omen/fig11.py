"""Topic diameters and messages on Twitter interests.  [OM Fig. 11-12]"""

from __future__ import annotations

import numpy as np

from trellis.lab.catalogue.omen.shared import SCALES, SEEDS, TIMED, tw
from trellis.lab.experiment import Bars, Case, Experiment, Over
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table, first, last, spearman
from trellis.lab.verdict import Rule, at_least, below, between, holds, in_order

SPIDER = "spidercast(3,1)"


def run_11(scale: str, at_hand: AtHand) -> list[Case]:
    return tw(scale, at_hand, ("OMen", SPIDER, "LowODA-Re"), cycles=True)


def rule_11(table: Table) -> Rule:
    order = in_order("mean diam: SpiderCast <= OMen <= LowODA-Re",
                     [table.mean("diam", name) for name in (SPIDER, "OMen", "LowODA-Re")], strict=False)  # fmt: skip
    falls = [
        holds(f"diam of {name} at the end is not above that at the start",
              f"{table.mean('diam', name, last):.3g}, {table.mean('diam', name, first):.3g}",
              table.mean("diam", name, last) <= table.mean("diam", name, first))
        for name in ("OMen", SPIDER)
    ]  # fmt: skip
    return Rule(
        [
            order,
            *falls,
            between("Diam, OMen - SpiderCast", table.mean("Diam", "OMen") - table.mean("Diam", SPIDER), 1, 7),
            between("diam, OMen - SpiderCast", table.mean("diam", "OMen") - table.mean("diam", SPIDER), 0.5, 3),
        ],
        [order],
    )


def run_12(scale: str, at_hand: AtHand) -> list[Case]:
    return tw(scale, at_hand, ("OMen", SPIDER), events=TIMED[scale])


SUMS = ("messages", "messages with heartbeats")


def rule_12(table: Table) -> Rule:
    def mean(metric: str, name: str) -> float:
        return table.mean(metric, name)

    def rho(name: str) -> float:
        """What an event causes; the rest is the same for all events."""
        found = []
        for size, one, other in zip(
            *(table.by_seed(metric, name) for metric in ("size", "coordination", "set-up")), strict=True
        ):
            found.append(spearman(size.values, one.values + other.values))
        return float(np.mean(found))

    return Rule(
        [*(at_least(f"{metric}: SpiderCast's / OMen's", mean(metric, SPIDER) / mean(metric, "OMen"), 2)
           for metric in SUMS),
         *(at_least(f"Spearman correlation, messages and size, {name}", rho(name), 0.3) for name in ("OMen", SPIDER))],
        [below(f"{metric}: OMen sends fewer than SpiderCast", mean(metric, "OMen"), mean(metric, SPIDER))
         for metric in SUMS],
    )  # fmt: skip


EXPERIMENTS = [
    Experiment(
        "omen-fig11",
        "Topic diameters stay alike",
        "Fig. 11",
        "SpiderCast's lowest, LowODA-Re's highest; OMen's 3.67 (greatest) and 1.45 (mean) above SpiderCast's.",
        run_11,
        rule_11,
        (Over("diam", "churn event", "mean topic diameter"), Over("Diam", "churn event", "greatest topic diameter")),
        scales=SCALES,
        seeds=SEEDS,
    ),
    Experiment(
        "omen-fig12",
        "Fewer messages than SpiderCast",
        "Fig. 12",
        "SpiderCast sends significantly more messages a round; more for nodes with more subscriptions.",
        run_12,
        rule_12,
        (
            Over("messages with heartbeats", "churn event", "messages an event"),
            Bars(("coordination", "set-up", "view", "net", "heartbeats", *SUMS), "messages", log="y"),
        ),
        scales=SCALES,
        seeds=SEEDS,
        by_step=("size", "coordination", "set-up"),
        note="The first 40 machine events. Coordination and link set-up of an event, view maintenance and OMen's net "
        "of one round; with and without link heartbeats. The failure detector is left out, as in the paper. "
        "SpiderCast's views are gossiped.",
    ),
]
