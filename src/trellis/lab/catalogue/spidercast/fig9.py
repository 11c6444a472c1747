"""Subscription sizes that vary.  [SC Fig. 9]"""

from __future__ import annotations

from collections.abc import Callable

from trellis.lab.catalogue.spidercast.shared import GREEDY, static
from trellis.lab.experiment import Case, Experiment, Lines, Over
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_least, at_most


def runner(fixed: int, low: int, high: int) -> Callable[[str, AtHand], list[Case]]:
    def run(scale: str, at_hand: AtHand) -> list[Case]:
        return static(scale, subs=[fixed, f"{low}:{high}"], nodes=(800,) if scale == "smoke" else (1000, 4000))

    return run


def ruler(fixed: int, low: int, high: int) -> Callable[[Table], Rule]:
    def rule(table: Table) -> Rule:
        apart, near = [], []
        for n in table.values_of("nodes"):
            same, mixed = (table.mean("degree", GREEDY, nodes=n, subs=s) for s in (fixed, f"{low}:{high}"))
            apart.append(100 * abs(mixed - same) / same)
            near.append(100 * table.mean("near_mean", GREEDY, nodes=n, subs=fixed))
        return Rule(
            [at_most("difference of the mean degrees, %", max(apart), 5),
             at_least("nodes within 50% of the mean, %", min(near), 90)],
            [at_most("difference of the mean degrees, %", max(apart), 10)],
        )  # fmt: skip

    return rule


def _figure(letter: str, fixed: int, low: int, high: int) -> Experiment:
    return Experiment(
        f"spidercast-fig9{letter}",
        f"Sizes from {low} to {high} cost as much as {fixed} each",
        f"Fig. 9({letter})",
        f"The same mean degree with [{low}:{high}] as with {fixed} subscriptions; degrees concentrated around it.",
        runner(fixed, low, high),
        ruler(fixed, low, high),
        (Over("histogram", "degree", "share of nodes"), Lines("degree", "nodes", "mean degree")),
    )


EXPERIMENTS = [_figure("a", 20, 10, 30), _figure("b", 40, 10, 70)]
