"""SpiderCast and its baselines at up to 1,000,000 nodes, on 10 of 100 topics of RSS popularity. No figure of the paper.

The number of topics stays, so a topic has ten times as many subscribers at ten times as many nodes.
"""

from __future__ import annotations

from trellis.lab.catalogue.growth import FIGURE, LIMIT, MILLION, SCALES, SEEDS, constant, grows, logarithm, sizes
from trellis.lab.catalogue.spidercast.shared import GREEDY, connected, static
from trellis.lab.experiment import Bars, Case, Experiment, Lines
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Check, Rule, each_of

BASELINES = ("similarity(10,0)", "random(10)")


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return static("beyond", (GREEDY, *BASELINES), nodes=sizes(scale))


def run_million(scale: str, at_hand: AtHand) -> list[Case]:
    return static("beyond", GREEDY, nodes=sizes(scale) if scale == "smoke" else MILLION)


def own(table: Table) -> list[Check]:
    """Return what is expected of SpiderCast at every size."""
    nodes = table.values_of("nodes", GREEDY)

    def means(metric: str) -> list[float]:
        return [table.mean(metric, GREEDY, nodes=n) for n in nodes]

    return [
        connected(table, "SpiderCast connects every topic in every run", GREEDY),
        grows("SpiderCast: mean degree", nodes, means("degree"), constant, 1.02),
        grows("SpiderCast: greatest degree", nodes, means("degree_max"), logarithm),
        grows("SpiderCast: time until the last change of a link", nodes, means("quiet_s"), logarithm, 1.5),
    ]


def rule(table: Table) -> Rule:
    nodes = table.values_of("nodes", GREEDY)
    parts = table.everywhere("split", "random(10)")
    near = [table.mean("degree", "similarity(10,0)", nodes=n) for n in nodes]
    return Rule(
        [
            *own(table),
            grows("similarity(10,0): mean degree", nodes, near, constant, 1.02),
            each_of("random(10) leaves topics split in every run", parts, lambda split: split > 0),
        ],
        own(table)[:3],
    )


PLOTS = (
    Lines("degree", "nodes", "mean degree", log="x"),
    Lines("degree_max", "nodes", "greatest degree", log="x"),
    Lines("quiet_s", "nodes", "seconds until the last change of a link", log="x"),
    Lines("components_per_topic", "nodes", "parts of a topic", log="xy"),
)
EXPERIMENTS = [
    Experiment(
        "spidercast-growth",
        "SpiderCast and its baselines from 10,000 to 100,000 nodes",
        FIGURE,
        "No such figure. Section 3.3 has the degree fall with n up to 10,000 nodes, every topic connected.",
        run,
        rule,
        PLOTS,
        scales=SCALES,
        seeds=SEEDS,
        limit=LIMIT,
    ),
    Experiment(
        "spidercast-million",
        "SpiderCast at 1,000,000 nodes",
        FIGURE,
        "No such figure. The same conditions as those on SpiderCast in spidercast-growth.",
        run_million,
        lambda table: Rule(own(table)),
        (*PLOTS[:3], Bars(("degree", "degree_max"), "links of a node")),
        scales=SCALES,
        seeds=SEEDS,
        limit=LIMIT,
    ),
]
