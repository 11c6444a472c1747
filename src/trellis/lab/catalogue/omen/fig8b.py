"""Degree under churn by lambda.  [OM Fig. 8(b)]"""

from __future__ import annotations

from trellis.lab.catalogue.omen.shared import SCALES, SEEDS, fb, whole
from trellis.lab.experiment import Case, Experiment, Over
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table, last
from trellis.lab.verdict import Rule, below, never_rising, within

PRINTED = {0: 333, 1: 313, 3: 302, 5: 283, 7: 277, 9: 274}


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return fb(scale, at_hand, ("OMen",), coverage=tuple(PRINTED) if scale == "paper" else (0, 5, 9), cycles=True)


def rule(table: Table) -> Rule:
    ends = {k: table.mean("D", "OMen", last, coverage=k) for k in table.values_of("coverage")}
    return Rule(
        [
            *(within(f"D at the end, lambda {k}", ends[k], PRINTED[k], 10) for k in ends),
            never_rising("D does not rise with lambda", list(ends.values())),
            below("D(5) - D(9) < D(0) - D(5)", ends[5] - ends[9], ends[0] - ends[5]),
            whole(table),
        ],
        [never_rising("D does not rise with lambda, within 2%", list(ends.values()), 0.02 * max(ends.values())),
         below("D(5) < D(0)", ends[5], ends[0])],
    )  # fmt: skip


EXPERIMENTS = [
    Experiment(
        "omen-fig8b",
        "More backups keep the degree lower",
        "Fig. 8(b)",
        "D at the end 333, 313, 302, 283, 277, 274 for lambda 0, 1, 3, 5, 7, 9; differences shrink with lambda.",
        run,
        rule,
        (Over("D", "churn event", "maximum degree"), Over("d", "churn event", "mean degree")),
        scales=SCALES,
        seeds=SEEDS,
    )
]
