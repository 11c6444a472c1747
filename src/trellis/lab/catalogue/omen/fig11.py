"""Topic diameters and messages on Twitter interests.  [OM Fig. 11-12]"""

from __future__ import annotations

import numpy as np

from trellis.lab.catalogue.omen.shared import SEEDS, tw
from trellis.lab.experiment import Bars, Case, Experiment, Over
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table, first, last, spearman
from trellis.lab.verdict import Rule, at_least, below, between, holds, in_order

SPIDER = "spidercast(3,1)"


def run_11(scale: str, at_hand: AtHand) -> list[Case]:
    return tw(scale, at_hand, ("OMen", SPIDER, "LowODA-Re"))


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
    return tw(scale, at_hand, ("OMen", SPIDER))


def rule_12(table: Table) -> Rule:
    mine, spider = (table.mean("messages", name) for name in ("OMen", SPIDER))

    def rho(name: str) -> float:
        pairs = zip(table.by_seed("size", name), table.by_seed("messages", name), strict=True)
        return float(np.mean([spearman(size.values, messages.values) for size, messages in pairs]))

    return Rule(
        [at_least("messages of SpiderCast / OMen's", spider / mine, 2),
         *(at_least(f"Spearman correlation, messages and size, {name}", rho(name), 0.3) for name in ("OMen", SPIDER))],
        [below("OMen sends fewer messages an event than SpiderCast", mine, spider)],
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
            Over("messages", "churn event", "control messages an event"),
            Bars(("messages",), "control messages an event"),
        ),
        seeds=SEEDS,
        note="Control messages between one event and the next; OMen's answers and proofs are counted (docs/omen.md).",
    ),
]
