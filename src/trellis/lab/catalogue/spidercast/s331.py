"""The adaptive scheme.  [SC §3.3.1]"""

from __future__ import annotations

from trellis.lab.catalogue.spidercast.shared import connected, static
from trellis.lab.experiment import Case, Experiment, Lines
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_least

ALL = ("nyse", "zipf1", "rss", "unif", "zipf2")


def run(scale: str, at_hand: AtHand) -> list[Case]:
    sizes = (200, 400) if scale == "smoke" else (1000, 2000, 4000)
    return static(scale, "spidercast(adaptive)", popularity=list(ALL), nodes=sizes)


def rule(table: Table) -> Rule:
    whole = connected(table, "every topic is connected in every run, for all five workloads")
    zero = [
        at_least(
            f"share of nodes at K_r = 0, {name}",
            float(table.everywhere("settled_at_zero", popularity=name).min()),
            0.99,
        )
        for name in ALL[:-1]
    ]
    return Rule([whole, *zero], [whole])


EXPERIMENTS = [
    Experiment(
        "spidercast-s331",
        "The adaptive scheme connects every workload",
        "§3.3.1",
        "It works for all workloads; all but zipf(2) settle at (3,0).",
        run,
        rule,
        (Lines("settled_at_zero", "nodes", "share of nodes at K_r = 0"), Lines("degree", "nodes", "mean degree")),
    )
]
