"""Publication rates by a power law.  [VI Fig. 7]"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from trellis.lab.catalogue.vitis.shared import DEGREES, SCALES, SEEDS, links, vitis
from trellis.lab.experiment import Case, Experiment, Lines
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_most, below, never_rising

ALPHAS = (0.3, 1.0, 3.0)


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return vitis(scale, ("random", "high"), alpha=ALPHAS)


def ruler(metric: str) -> Callable[[Table], Rule]:
    def rule(table: Table) -> Rule:
        random, high = (
            [table.mean(metric, level=level, alpha=alpha) for alpha in ALPHAS] for level in ("random", "high")
        )
        first, last = random[0] - high[0], random[-1] - high[-1]
        return Rule(
            [at_most("random - high at exponent 3, of that at 0.3", last / first if first > 0 else inf, 0.3),
             never_rising("random does not rise with the exponent", random)],
            [below("random - high is smaller at exponent 3", last, first)],
        )  # fmt: skip

    return rule


def _figure(letter: str, metric: str, ylabel: str, title: str) -> Experiment:
    return Experiment(
        f"vitis-fig7{letter}",
        title,
        f"Fig. 7({letter})",
        "With a growing exponent random interests approach correlated ones; at 3 almost all events are on one topic.",
        run,
        ruler(metric),
        (Lines(metric, "alpha", ylabel, log="x"), DEGREES),
        scales=SCALES,
        seeds=SEEDS,
        beside=links,
    )


EXPERIMENTS = [
    _figure("a", "overhead %", "traffic overhead, %", "Overhead when few topics have most events"),
    _figure("b", "delay", "propagation delay, hops", "Delay when few topics have most events"),
]
