"""The worked example.  [OM §3.4, Fig. 2]"""

from __future__ import annotations

from trellis.lab.catalogue.omen.shared import RULE
from trellis.lab.experiment import Bars, Case, Experiment, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, equal, holds


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return cases("omen.example", "OMen", backups=RULE)


def rule(table: Table) -> Rule:
    who = [int(node) for node in table.path("coordinator").values]
    shadow = {int(node) for node in table.path("shadow set").values}
    ends = {int(node) for node in table.path("ends of new links").values}
    return Rule(
        [
            holds("coordinator = 11", who, who == [11]),
            holds(f"new links within S x S, S = {sorted(shadow)}", sorted(ends), ends <= shadow | {11} and ends),
            equal("split topics", table.mean("split"), 0),
        ]
    )


EXPERIMENTS = [
    Experiment(
        "omen-ex2",
        "Node 10 departs, node 11 mends",
        "Fig. 2",
        "Coordinator 11 takes S = {1, 3, 5, 6, 11} and adds (11,1), (11,5), (5,6).",
        run,
        rule,
        (Bars(("split",), "split topics"),),
        seeds={"smoke": 1, "paper": 1, "beyond": 1},
        always_exact=True,
        limit="interests of our own: the paper has them only in its picture",
    )
]
