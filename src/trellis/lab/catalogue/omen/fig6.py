"""Local views.  [OM Fig. 6, 8(a)]"""

from __future__ import annotations

import numpy as np

from trellis.lab.catalogue.omen.shared import SEEDS, SIZES, engine, rule_of
from trellis.lab.experiment import Case, Experiment, Lines, Over, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table, first, last
from trellis.lab.verdict import Rule, at_least, rising, within

PRINTED = {1: 21.02, 3: 40.49, 5: 48.40, 9: 57.59}
OTHERS = ("primal-dual", "primal-dual-carry", "greedy")  # the second one is the default of live meshes


def gossip(scale: str, at_hand: AtHand, system: str, coverage: tuple[int, ...]) -> list[Case]:
    nodes = 80 if scale == "smoke" else SIZES[scale][0]
    fixed = {"interests": at_hand.friends(nodes), "nodes": nodes, "rounds": 100, "L": 1, **rule_of(system)}
    return cases("omen.views", system, {"coverage": coverage}, **fixed, **engine(scale, system))


def run_6(scale: str, at_hand: AtHand) -> list[Case]:
    return gossip(scale, at_hand, "OMen", (5,))


def rule_6(table: Table) -> Rule:
    return Rule(
        [at_least("share of views of at most 80 nodes", table.mean("share <= 80"), 0.95)],
        [at_least("share of views of at most 8% of all nodes", table.mean("share <= 8%"), 0.9)],
    )


def run_8a(scale: str, at_hand: AtHand) -> list[Case]:
    lambdas = (1, 5, 9) if scale == "smoke" else (0, 1, 3, 5, 7, 9)
    beside = [case for other in OTHERS for case in gossip(scale, at_hand, f"OMen({other})", (5,))]
    return gossip(scale, at_hand, "OMen", lambdas) + beside


def beside_8a(table: Table) -> str:
    """Return the share of small views, and the mean view, of every routine at lambda 5."""
    told = [
        f"{name} {100 * table.mean('share < 5%', name, coverage=5):.1f}% "
        f"({table.mean('view at the end', name, coverage=5):.1f} nodes)"
        for name in table.systems(coverage=5)
    ]
    return f"views below 5% of all nodes at lambda 5: {', '.join(told)}"


def rule_8a(table: Table) -> Rule:
    lambdas = table.values_of("coverage", "OMen")
    grows = rising("mean view grows with lambda", [table.each("view at the end", "OMen", coverage=k) for k in lambdas])
    small = table.mean("share < 5%", "OMen", coverage=5)
    early, late = (table.mean("view", "OMen", pick, coverage=5) for pick in (first, last))
    return Rule(
        [
            *(
                within(f"mean view, lambda {k}", table.mean("view at the end", "OMen", coverage=k), v, 15)
                for k, v in PRINTED.items()
                if k in lambdas
            ),
            grows,
            at_least("mean view at round 10 less that at round 100", float(np.round(early - late, 6)), 0),
            at_least("share of views below 5% of all nodes", small, 0.95),
        ],
        [grows, at_least("share of views below 5% of all nodes", small, 0.9)],
    )


EXPERIMENTS = [
    Experiment(
        "omen-fig6",
        "Local views are small",
        "Fig. 6",
        "97.4% of the nodes have views of at most 80 entries.",
        run_6,
        rule_6,
        (Over("histogram", "nodes in the local view", "share of nodes"),),
        seeds=SEEDS,
    ),
    Experiment(
        "omen-fig8a",
        "Views grow with lambda and shrink over time",
        "Fig. 8(a)",
        "Mean view 21.02, 40.49, 48.40, 57.59 for lambda 1, 3, 5, 9; after 100 rounds 95% hold less than 5% of all.",
        run_8a,
        rule_8a,
        (Over("view", "gossip round", "mean local view"), Lines("view at the end", "coverage", "", {"paper": PRINTED})),
        seeds=SEEDS,
        beside=beside_8a,
        note="Judged by the backup rule of section 4.2; the other routines are run beside it at lambda 5.",
    ),
]
