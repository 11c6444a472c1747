"""What OMen promises.  [OM §3.3, §5]"""

from __future__ import annotations

from trellis.lab.catalogue.omen.shared import RULE
from trellis.lab.experiment import Bars, Case, Experiment, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, each_of

L = (1, 2, 3, 5)
PLACEMENTS = ("crash-uniform", "crash-adjacent", "crash-ring", "crash-hub")
MIXED = "crash-uniform,crash-adjacent,join,leave,restart"
COUNT = {"smoke": 2, "paper": 100}


def run_2l(scale: str, at_hand: AtHand) -> list[Case]:
    return cases("omen.promises", "OMen", {"L": L}, kinds=MIXED, count=COUNT[scale], backups=RULE)


def rule_2l(table: Table) -> Rule:
    return Rule([
        each_of(f"L = {k}: at most 2L views at every instant of every run", table.each("bounded", L=k),
                lambda v: v == 1)
        for k in table.values_of("L")
    ])  # fmt: skip


def run_conc(scale: str, at_hand: AtHand) -> list[Case]:
    return cases("omen.promises", "OMen", {"L": L, "kinds": (*PLACEMENTS, MIXED)}, count=COUNT[scale], backups=RULE)


def rule_conc(table: Table) -> Rule:
    return Rule([
        each_of(f"{kinds}: topic-connected again in every run", table.everywhere("connected", kinds=kinds),
                lambda v: v == 1)
        for kinds in table.values_of("kinds")
    ])  # fmt: skip


EXPERIMENTS = [
    Experiment(
        "omen-claim-2L",
        "At most 2L views at every instant",
        "§5",
        "A node keeps views of at most 2L others.",
        run_2l,
        rule_2l,
        (Bars(("bounded", "kept"), "share of runs"),),
        always_exact=True,
        note="14 nodes and 6 topics a run, drawn anew for each; every node is asked every second.",
    ),
    Experiment(
        "omen-claim-conc",
        "Up to L concurrent events are mended",
        "§3.3, §5",
        "With up to L concurrent churn events the overlay is always topic-connected again.",
        run_conc,
        rule_conc,
        (Bars(("connected",), "share of runs that end topic-connected"),),
        always_exact=True,
        note="By the repair of docs/omen.md. Twin joins on a new topic are among the joins drawn; "
        "independent repairs, which the papers' text would give, are not run beside it.",
    ),
]
