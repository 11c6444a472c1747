"""Popularity, subscription sizes, and the most popular topics.  [MG Fig. 4-5]"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trellis.lab.catalogue.magnet.shared import NODES, SEEDS, multi, saving, savings
from trellis.lab.experiment import Case, Experiment, Lines, Over
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_most, below, each_of, holds, rising

SKEWS = (0.5, 1.0, 1.5, 2.0)
FIRST = 100  # of the most popular topics


def size(scale: str) -> dict[str, int]:
    return {"nodes": NODES[scale]} if scale == "smoke" else {"nodes": 5000}


def run_4a(scale: str, at_hand: AtHand) -> list[Case]:
    subs = 10 if scale == "smoke" else 18
    return [case for skew in SKEWS for case in multi(scale, 1, 5, **{**size(scale), "subs": subs, "popularity": skew})]


def rule_4a(table: Table) -> Rule:
    each = [savings(table, popularity=skew) for skew in SKEWS]
    return Rule([rising("the saving rises with the skew of popularity, %", each)],
                [below("saving(0.5) < saving(2), %", float(each[0].mean()), float(each[-1].mean()))])  # fmt: skip


def run_4b(scale: str, at_hand: AtHand) -> list[Case]:
    sizes = (5, 10, 20) if scale == "smoke" else (10, 18, 30, 50)
    return [
        case
        for subs in sizes
        for alpha in (0.0, 0.75)
        for case in multi(scale, 1, 5, **{**size(scale), "subs": subs, "popularity": 0.75, "alpha": alpha})
    ]


def rule_4b(table: Table) -> Rule:
    found = [saving(table, subs=s, alpha=a) for s in table.values_of("subs") for a in table.values_of("alpha")]
    return Rule([each_of("Magnet saves at every size, for both kinds of rates", found, lambda v: v > 0)])


def run_5(b_p: int, b_n: int) -> Callable[[str, AtHand], list[Case]]:
    return lambda scale, at_hand: multi(scale, b_p, b_n, alpha=0.75)


def rule_5(limit: float | None) -> Callable[[Table], Rule]:
    def rule(table: Table) -> Rule:
        mine, other = (table.path("share", name).values for name in ("Magnet", "strawman"))
        first = min(FIRST, len(mine) // 2)
        less = each_of("Magnet not above the strawman for any x", other - mine, lambda v: v >= 0)
        beyond = np.diff(mine[first - 1 :])
        grows = holds(
            f"Magnet's share rises beyond x = {first}", f"{np.mean(beyond >= 0):.0%} of the steps", np.all(beyond >= 0)
        )
        few = (
            []
            if limit is None
            else [at_most(f"Magnet's share over the {first} most popular topics, %", float(mine[first - 1]), limit)]
        )
        return Rule([less, *few, grows], [less])

    return rule


def _fig5(letter: str, b_p: int, b_n: int, limit: float | None) -> Experiment:
    return Experiment(
        f"magnet-fig5{letter}",
        f"Hardly any relays for the most popular topics, {b_p} of {b_n} categories",
        f"Fig. 5({letter})",
        "Almost none of the messages of the most popular topics reach uninterested peers; Magnet below the strawman.",
        run_5(b_p, b_n),
        rule_5(limit),
        (Over("share", "the x most popular topics", "messages to uninterested peers, %"),),
        seeds=SEEDS,
        by_step=("share",),
    )


EXPERIMENTS = [
    Experiment(
        "magnet-fig4a",
        "Skewed popularity saves more",
        "Fig. 4(a)",
        "The higher the skew of topic popularity, the more Magnet saves.",
        run_4a,
        rule_4a,
        (Lines("cost", "popularity", "relays per message"),),
        seeds=SEEDS,
    ),
    Experiment(
        "magnet-fig4b",
        "It saves at every subscription size",
        "Fig. 4(b)",
        "Below the strawman at all sizes, with equal and with power-law rates.",
        run_4b,
        rule_4b,
        (Lines("cost", "subs", "relays per message"),),
        seeds=SEEDS,
    ),
    _fig5("a", 1, 10, 10.0),
    _fig5("b", 5, 25, None),
]
