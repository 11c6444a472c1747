"""Magnet and the strawman at up to 100,000 nodes, on 50 of 1,000 topics in clusters. No figure of the paper.

The number of topics stays, so a topic has ten times as many subscribers at ten times as many nodes, and a tree ten
times as many relays. Judged is the number of relays for each subscriber.
"""

from __future__ import annotations

from trellis.lab.catalogue.growth import FIGURE, LIMIT, SCALES, SEEDS, constant, grows, logarithm, sizes
from trellis.lab.catalogue.magnet.shared import BOTH, multi, savings
from trellis.lab.experiment import Case, Experiment, Lines, Over
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Check, Rule, each_of

CATEGORIES = (1, 10)  # a node has topics of 1 of 10 categories


def run(scale: str, at_hand: AtHand) -> list[Case]:
    small = {"topics": 200, "subs": 10} if scale == "smoke" else {}
    found = [multi("paper", *CATEGORIES, **{"nodes": n, **small}) for n in sizes(scale)]
    return [case for some in found for case in some]


def rule(table: Table) -> Rule:
    nodes = table.values_of("nodes")
    checks: list[Check] = [each_of("every tree reaches its subscribers", table.everywhere("missed"), _none)]
    for name in BOTH:
        means = [table.mean("degree", name, nodes=n) for n in nodes]
        checks.append(grows(f"{name}: mean degree", nodes, means, constant))
        checks.append(grows(f"{name}: relays for each node", nodes, per_node(table, name, nodes), logarithm))
    saved = [savings(table, nodes=n) for n in nodes]
    every = each_of("Magnet saves at least 70% of the relays, in every run", [v for one in saved for v in one], _most)
    lost = [100 - float(one.mean()) for one in saved]
    return Rule(
        [*checks, every, grows("what Magnet does not save, %,", nodes, lost, logarithm, 1.5)], [checks[0], every]
    )


def per_node(table: Table, name: str, nodes: list[int]) -> list[float]:
    """Return relays of a mean topic, over the nodes. The share of nodes that want a topic is the same at every size."""
    return [table.mean("relays per topic", name, nodes=n) / n for n in nodes]


def _none(missed: float) -> bool:
    return missed == 0


def _most(saved: float) -> bool:
    return saved >= 70


EXPERIMENTS = [
    Experiment(
        "magnet-growth",
        "Magnet and the strawman from 10,000 to 100,000 nodes",
        FIGURE,
        "No such figure. Section 4: 19 links a node whatever the size, and far fewer relays on clustered interests.",
        run,
        rule,
        (
            Lines("cost", "nodes", "relays per message", log="xy"),
            Lines("degree", "nodes", "mean degree", log="x"),
            Over("degrees", "links of a node", "share of nodes", log="xy"),
        ),
        scales=SCALES,
        seeds=SEEDS,
        limit=LIMIT,
    )
]
