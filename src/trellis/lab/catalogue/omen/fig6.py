"""Local views.  [OM Fig. 6, 8(a)]"""

from __future__ import annotations

import numpy as np

from trellis.lab.catalogue.omen.shared import SEEDS, SIZES
from trellis.lab.experiment import Case, Experiment, Lines, Over, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table, first, last
from trellis.lab.verdict import Rule, at_least, rising, within

PRINTED = {1: 21.02, 3: 40.49, 5: 48.40, 9: 57.59}


RULE = "primal-dual-uncovered"  # buildBackupsByPD as section 4.2 words it
ROUTINES = (RULE, "primal-dual", "primal-dual-carry", "greedy")


def gossip(scale: str, at_hand: AtHand, coverage: tuple[int, ...], routines: tuple[str, ...] = (RULE,)) -> list[Case]:
    nodes = 80 if scale == "smoke" else SIZES[scale][0]
    grid = {"coverage": coverage, "backups": routines}
    return cases("omen.views", "OMen", grid, interests=at_hand.friends(nodes), nodes=nodes, rounds=100, L=1)


def run_6(scale: str, at_hand: AtHand) -> list[Case]:
    return gossip(scale, at_hand, (5,))


def rule_6(table: Table) -> Rule:
    return Rule(
        [at_least("share of views of at most 80 nodes", table.mean("share <= 80"), 0.95)],
        [at_least("share of views of at most 8% of all nodes", table.mean("share <= 8%"), 0.9)],
    )


def run_8a(scale: str, at_hand: AtHand) -> list[Case]:
    lambdas = (1, 5, 9) if scale == "smoke" else (0, 1, 3, 5, 7, 9)
    others = tuple(routine for routine in ROUTINES if routine != RULE)
    return gossip(scale, at_hand, lambdas) + gossip(scale, at_hand, (5,), others)


def rule_8a(table: Table) -> Rule:
    lambdas = table.values_of("coverage", backups=RULE)
    grows = rising(
        "mean view grows with lambda", [table.each("view at the end", coverage=k, backups=RULE) for k in lambdas]
    )
    small = table.mean("share < 5%", coverage=5, backups=RULE)
    early, late = (table.mean("view", None, pick, coverage=5, backups=RULE) for pick in (first, last))
    return Rule(
        [
            *(
                within(f"mean view, lambda {k}", table.mean("view at the end", coverage=k, backups=RULE), v, 15)
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
        note="Judged by the backup rule of section 4.2; the other routines are run beside it at lambda 5.",
    ),
]
