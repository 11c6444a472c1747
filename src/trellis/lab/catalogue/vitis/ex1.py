"""The worked example of the utility.  [VI §III-A2]"""

from __future__ import annotations

from trellis.lab.experiment import Bars, Case, Experiment, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, holds

PRINTED = {"p, q": 1 / 4, "p, r": 1 / 8, "q, r": 1 / 3}


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return cases("vitis.utility", "Vitis")


def rule(table: Table) -> Rule:
    found = {pair: table.mean(pair) for pair in PRINTED}
    return Rule([
        holds(f"utility of {pair} = {value:.4g}", f"{found[pair]:.4g}", abs(found[pair] - value) < 1e-12)
        for pair, value in PRINTED.items()
    ])  # fmt: skip


EXPERIMENTS = [
    Experiment(
        "vitis-ex1",
        "The utility of a friend",
        "Example 1",
        "p = {A, B, C}, q = {C, D}, r = {C, ..., H}: 0.25, 0.125, 0.33.",
        run,
        rule,
        (Bars(tuple(PRINTED), "utility", PRINTED),),
        seeds={"smoke": 1, "paper": 1, "beyond": 1},
        always_exact=True,
    )
]
