"""Wikipedia's editors.  [MG §4.5]"""

from __future__ import annotations

from trellis.lab.catalogue.magnet.shared import SEEDS, engine, pairs
from trellis.lab.experiment import Bars, Case, Experiment
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_least, between

SIZES = {  # users and pages: the paper's as far as there are as many
    "wikipedia-jodie": (8227, 1000),
    "wikipedia-2015": (10_000, 3000),
    "editors": (10_000, 3000),
}


def run(scale: str, at_hand: AtHand) -> list[Case]:
    if scale == "smoke":
        return pairs(None, interests="editors", nodes=300, topics=90, links=12, **engine(scale))
    found: list[Case] = []
    for name in at_hand.editors():
        nodes, topics = SIZES[name]
        found += pairs(None, interests=name, nodes=nodes, topics=topics, links=12, **engine(scale))
    return found


def more(table: Table, name: str) -> float:
    """Return by how much the strawman's relays exceed Magnet's, as a share of Magnet's."""
    mine, other = (table.mean("cost", system, interests=name) for system in ("Magnet", "strawman"))
    return other / max(mine, 1e-9) - 1


def judged(table: Table) -> str:
    """Return the data that is judged: the first of `SIZES`, in which most users edit what others edit, too."""
    there = {case.parameters["interests"] for case in table.cases("Magnet")}
    return next(name for name in SIZES if name in there)


def rule(table: Table) -> Rule:
    text, found = "uninterested peers on the strawman's trees, more than on Magnet's", more(table, judged(table))
    return Rule([between(text, found, 0.5, 1.1)], [at_least(text, found, 0.1)])


def beside(table: Table) -> str:
    there = {case.parameters["interests"] for case in table.cases("Magnet")} - {judged(table)}
    return ", ".join(f"more relays on {name}, which is not judged: {more(table, name):.3f}" for name in sorted(there))


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
        beside=beside,
        note="Judged on a month of edits of 1,000 pages that are edited often (8,227 users, 18 editors a page, 2.2 "
        "pages a user; the paper's trace has 5.4 and 1.6). The other log is one day of all pages. There 2,918 of 3,000 "
        "random pages have one editor, so users share nothing, and there is nothing that Magnet could save.",
    )
]
