"""The worked example.  [SH Fig. 1]"""

from __future__ import annotations

from trellis.lab.experiment import Bars, Case, Experiment, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, equal, holds

SHADOWS = {1, 3, 4, 9, 11}


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return cases("shadows.example", "overlay")


def rule(table: Table) -> Rule:
    chosen = {int(node) for node in table.path("shadow set").values}
    ends = {int(node) for node in table.path("ends of new links").values}
    return Rule(
        [
            holds("S = {1, 3, 4, 9, 11}", sorted(chosen), chosen == SHADOWS),
            holds("new links within S x S", sorted(ends), ends <= SHADOWS and ends),
            equal("split topics", table.mean("split"), 0),
        ]
    )


EXPERIMENTS = [
    Experiment(
        "shadows-fig1",
        "A node leaves, and its shadow set mends",
        "Fig. 1",
        "S = {3, 9, 1, 4, 11}; adds the links (3,4), (9,11), (3,9).",
        run,
        rule,
        (Bars(("split",), "split topics"),),
        seeds={"smoke": 1, "paper": 1, "beyond": 1},
        always_exact=True,
        limit="interests of our own: the paper has them only in its picture",
        note="Ours adds (4,11) and (3,9). The printed links (3,4), (9,11), (3,9) cannot come from Alg. 2 while 3 and 9 "
        "are the only neighbors and components are the whole overlay's: each split topic has one part around 3 and one "
        "around 9, so (3,9) joins all of them and is taken first.",
    )
]
