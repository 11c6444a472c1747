"""OMen's local views at up to 100,000 nodes, on the generated friendship graph. No figure of the paper.

A node's subscriptions are as many at every size, about 16, but the most popular users have more followers. A node knows
at most 1,000 others while its views are improved, so 1,000,000 nodes take 41 GiB: there is no such entry.
"""

from __future__ import annotations

from trellis.lab.catalogue.growth import FIGURE, LIMIT, SCALES, SEEDS, grows, logarithm_squared, sizes
from trellis.lab.catalogue.omen.shared import RULE
from trellis.lab.experiment import Case, Experiment, Lines, Over, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_least, below

ROUNDS = 40  # views have settled after 30


def run(scale: str, at_hand: AtHand) -> list[Case]:
    fixed = {"interests": "friends", "rounds": ROUNDS, "L": 1, "coverage": 5, "backups": RULE, "engine": "cycles"}
    return cases("omen.views", "OMen", {"nodes": sizes(scale)}, **fixed)


def rule(table: Table) -> Rule:
    nodes = table.values_of("nodes")
    views = [table.mean("view at the end", "OMen", nodes=n) for n in nodes]
    ends = (100 * views[-1] / nodes[-1], 100 * views[0] / nodes[0])
    small = at_least("share of views below 5% of all nodes, at the largest size", table.mean(
        "share < 5%", "OMen", nodes=nodes[-1]), 0.95)  # fmt: skip
    less = below("a view is a smaller share of all nodes at the largest size than at the smallest, %", *ends)
    return Rule([grows("mean local view", nodes, views, logarithm_squared), small, less], [small, less])


EXPERIMENTS = [
    Experiment(
        "omen-growth",
        "Local views from 10,000 to 100,000 nodes",
        FIGURE,
        "No such figure. In Fig. 8(a), 95% of the nodes have views of less than 5% of all nodes.",
        run,
        rule,
        (
            Lines("view at the end", "nodes", "mean local view", log="x"),
            Over("histogram", "nodes in the local view", "share of nodes"),
            Over("view", "gossip round", "mean local view"),
        ),
        scales=SCALES,
        seeds=SEEDS,
        limit=LIMIT,
    )
]
