"""MULTI-MODAL interests, with equal and with skewed rates.  [MG Fig. 3]"""

from __future__ import annotations

from trellis.lab.catalogue.magnet.shared import SEEDS, fig3_points, multi, saving, savings
from trellis.lab.experiment import Case, Experiment, Lines, Parameters
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_least, each_of, falling


def run_a(scale: str, at_hand: AtHand) -> list[Case]:
    return [case for b_p, b_n in fig3_points(scale) for case in multi(scale, b_p, b_n)]


def shown(table: Table, alpha: float) -> list[tuple[int, int]]:
    return [(case.parameters["b_p"], case.parameters["b_n"]) for case in table.cases("Magnet", alpha=alpha)]


def rule_a(table: Table) -> Rule:
    at = {point: saving(table, b_p=point[0], b_n=point[1]) for point in shown(table, 0.0)}
    falls = [
        falling(f"the saving falls with b_p at b_p/b_n = 1/{ratio}, %",
                [savings(table, b_p=p, b_n=n) for p, n in at if n == p * ratio])
        for ratio in (10, 5)
    ]  # fmt: skip
    return Rule(
        [
            at_least("saving at 1/10, %", at[1, 10], 60),
            at_least("saving at 1/5, %", at[1, 5], 45),
            at_least("least saving of all points, %", min(at.values()), 15),
            *falls,
        ],
        [each_of("Magnet saves at every point", list(at.values()), lambda v: v > 0), *falls],
    )


def run_b(scale: str, at_hand: AtHand) -> list[Case]:
    skewed = [case for b_p, b_n in fig3_points(scale) for case in multi(scale, b_p, b_n, alpha=0.75)]
    return [*skewed, *run_a(scale, at_hand)]


def rule_b(table: Table) -> Rule:
    checks, found = [], []
    for b_p, b_n in shown(table, alpha=0.75):
        equal, skewed = (saving(table, b_p=b_p, b_n=b_n, alpha=a) for a in (0.0, 0.75))
        checks.append(at_least(f"{b_p}/{b_n}: saving above that with equal rates, points", skewed - equal, 0))
        found.append(skewed)
    return Rule(checks, [each_of("Magnet saves at every point", found, lambda v: v > 0)])


def line(parameters: Parameters) -> str:
    """The paper draws a line for each share of the categories that a peer has."""
    share = f"1 of {parameters['b_n'] // parameters['b_p']} categories"
    return share if not parameters["alpha"] else f"{share}, rates {parameters['alpha']:g}"


COSTS = Lines("cost", "b_p", "relays per message", line=line)
EXPERIMENTS = [
    Experiment(
        "magnet-fig3a",
        "Clustered interests save relays",
        "Fig. 3(a)",
        "Magnet below the strawman even at low correlation; best where peers have one category.",
        run_a,
        rule_a,
        (COSTS,),
        seeds=SEEDS,
    ),
    Experiment(
        "magnet-fig3b",
        "Skewed rates save more",
        "Fig. 3(b)",
        "With power-law publication rates (0.75) better still than with equal ones.",
        run_b,
        rule_b,
        (COSTS,),
        seeds=SEEDS,
    ),
]
