"""Wikipedia's editors.  [MG §4.5]"""

from __future__ import annotations

from trellis.lab.catalogue.magnet.shared import SEEDS, engine, pairs
from trellis.lab.experiment import Bars, Case, Experiment
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_least, between


def run(scale: str, at_hand: AtHand) -> list[Case]:
    if scale == "smoke":
        return pairs(None, interests="editors", nodes=300, topics=90, links=12, **engine(scale))
    return pairs(None, interests=at_hand.editors(), nodes=10_000, topics=3000, links=12, **engine(scale))


def rule(table: Table) -> Rule:
    mine, other = (table.mean("cost", name) for name in ("Magnet", "strawman"))
    more = other / max(mine, 1e-9) - 1
    return Rule([between("uninterested peers on the strawman's trees, more than on Magnet's", more, 0.5, 1.1)],
                [at_least("uninterested peers on the strawman's trees, more than on Magnet's", more, 0.1)])  # fmt: skip


EXPERIMENTS = [
    Experiment(
        "magnet-wiki",
        "Editors of Wikipedia",
        "§4.5",
        "3,000 articles, about 10,000 users: the strawman's trees have 77% more uninterested peers.",
        run,
        rule,
        (Bars(("cost",), "relays per message"),),
        seeds=SEEDS,
    )
]
