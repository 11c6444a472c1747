"""Bounded tables and short lookups.  [VI §III]"""

from __future__ import annotations

from math import log

from trellis.lab.catalogue.vitis.shared import SEEDS
from trellis.lab.experiment import Case, Experiment, Lines, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, each_of, never_rising

SIZES = {"smoke": (60, 120, 240), "paper": (1000, 4000, 10_000)}
TABLE = 15


def run(scale: str, at_hand: AtHand) -> list[Case]:
    small = {"topics": 50, "subs": 10} if scale == "smoke" else {}
    return cases("vitis.lookups", "Vitis", {"nodes": SIZES[scale]}, level="random", cycles=50, **small)


def rule(table: Table) -> Rule:
    sizes = table.values_of("nodes")
    by_log = [table.mean("hops", nodes=n) / log(n) ** 2 for n in sizes]
    return Rule([
        each_of(f"no table ever above RT-SIZE = {TABLE}", table.everywhere("table max"), lambda v: v <= TABLE),
        never_rising("lookup hops / log^2 N do not rise with N", by_log),
    ])  # fmt: skip


EXPERIMENTS = [
    Experiment(
        "vitis-claim-bound",
        "Bounded tables, lookups in O(log^2 N) hops",
        "§III",
        "Tables never exceed RT-SIZE; delay grows no faster than log^2 N.",
        run,
        rule,
        (Lines("hops", "nodes", "mean lookup hops", log="x"),),
        seeds=SEEDS,
        note="With one long link hops / log^2 N rise towards 4 / pi^2 = 0.405 for any tables, perfect ones too; with "
        "two they do not (docs/vitis.md, Lookups beside log^2 N).",
    )
]
