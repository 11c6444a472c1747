"""SPATIAL interests.  [MG Fig. 6]"""

from __future__ import annotations

from trellis.lab.catalogue.magnet.shared import SEEDS, engine, pairs, saving, savings
from trellis.lab.experiment import Case, Experiment, Lines
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_least, between, rising

SIZES = {"smoke": (100, 200), "paper": (1000, 2000, 10_000)}
MEANS = {"smoke": (8, 16), "paper": (8, 16, 32)}


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return pairs({"nodes": SIZES[scale], "mean": MEANS[scale]}, workload="spatial", **engine(scale))


def rule(table: Table) -> Rule:
    sizes, means = table.values_of("nodes"), table.values_of("mean")
    best = saving(table, nodes=sizes[-1], mean=means[-1])
    return Rule(
        [
            between(f"saving at {sizes[-1]} users, {means[-1]} topics, %", best, 70, 90),
            rising("it rises with the number of topics", [savings(table, nodes=sizes[-1], mean=m) for m in means]),
            rising("it rises with the number of users", [savings(table, nodes=n, mean=means[-1]) for n in sizes]),
        ],
        [at_least(f"saving at {sizes[-1]} users, {means[-1]} topics, %", best, 50)],
    )


EXPERIMENTS = [
    Experiment(
        "magnet-fig6",
        "Neighbours on a map share trees",
        "Fig. 6",
        "Almost 80% saved at 10,000 users and 32 topics; more with more topics.",
        run,
        rule,
        (Lines("cost", "nodes", "relays per message"),),
        seeds=SEEDS,
    )
]
