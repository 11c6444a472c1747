"""Which K connects which workload.  [SC §3.3]"""

from __future__ import annotations

from trellis.lab.catalogue.spidercast.shared import NODES, connected, static
from trellis.lab.experiment import Case, Experiment, Lines
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, below, each_of

DEARER = ("spidercast(4,0)", "spidercast(3,1)")
CONNECTED = ("rss", "nyse", "unif")


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return [
        *static(scale, popularity=list(CONNECTED)),
        *static(scale, DEARER, popularity=list(CONNECTED), nodes=NODES[scale][:1]),
    ]


def rule(table: Table) -> Rule:
    small = [n for n in table.values_of("nodes") if n <= 4000]
    costs = {name: [table.mean("degree", name, nodes=small[0], popularity=p) for p in CONNECTED]
             for name in ("spidercast(3,0)", *DEARER)}  # fmt: skip
    few = [table.each("split", "spidercast(3,0)", nodes=n, popularity=p) for n in small for p in CONNECTED]
    return Rule(
        [
            connected(table, f"(3,0) connects {name} in every run", "spidercast(3,0)", popularity=name)
            for name in CONNECTED
        ]
        + [
            below(f"{popularity}: lower mean degree than {name} at {small[0]} nodes", mine, other)
            for name in DEARER
            for popularity, mine, other in zip(CONNECTED, costs["spidercast(3,0)"], costs[name], strict=True)
        ],
        [each_of("(3,0) connects all three up to 4,000 nodes", [v for one in few for v in one], lambda v: v == 0)],
    )


EXPERIMENTS = [
    Experiment(
        "spidercast-s33",
        "Three greedy links a topic connect RSS, NYSE and uniform interests",
        "§3.3",
        "(3,0) connects RSS, NYSE and uniform workloads, with the lowest degree of (3,0), (4,0) and (3,1).",
        run,
        rule,
        (Lines("degree", "nodes", "mean degree"),),
        note="That (3,0) has the lowest degree is judged at the smallest size, where all three were run.",
    )
]
