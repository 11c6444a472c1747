"""What OMen promises.  [OM §3.3, §5]"""

from __future__ import annotations

from trellis.lab.catalogue.omen.shared import RULE
from trellis.lab.experiment import Bars, Case, Experiment, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Check, Rule, each_of

L = (1, 2, 3, 5)
PLACEMENTS = ("crash-uniform", "crash-adjacent", "crash-ring", "crash-hub")
DEPARTURES = "crash-uniform,crash-adjacent,leave,restart"
MIXED = "crash-uniform,crash-adjacent,join,leave,restart"
COUNT = {"smoke": 2, "paper": 100}


def run_2l(scale: str, at_hand: AtHand) -> list[Case]:
    return cases("omen.promises", "OMen", {"L": L}, kinds=MIXED, count=COUNT[scale], backups=RULE)


def rule_2l(table: Table) -> Rule:
    bounded = [
        each_of(f"L = {k}: at most 2L views at every instant of every run", table.each("bounded", L=k),
                lambda v: v == 1)
        for k in table.values_of("L")
    ]  # fmt: skip
    # A run ends with the first promise that it breaks, so it shows nothing about the instants after that.
    ended = each_of("no run ended early, with another promise broken", table.everywhere("kept"), lambda v: v == 1)
    return Rule([*bounded, ended])


def run_conc(scale: str, at_hand: AtHand) -> list[Case]:
    """Repairs alone, and joins once more with the fallback (`net`), which the paper does not have."""
    alone = {"L": L, "kinds": (*PLACEMENTS, DEPARTURES, MIXED)}
    shared = {"count": COUNT[scale], "backups": RULE}
    return cases("omen.promises", "OMen", alone, net=False, **shared) + cases(
        "omen.promises", "OMen", {"L": L}, kinds=MIXED, net=True, **shared
    )


def rule_conc(table: Table) -> Rule:
    def whole(kinds: str, net: bool = False) -> Check:
        how = "with the fallback" if net else "repairs alone"
        found = table.everywhere("connected", kinds=kinds, net=net)
        return each_of(f"{kinds}, {how}: topic-connected again in every run", found, lambda v: v == 1)

    departures = [whole(kinds) for kinds in (*PLACEMENTS, DEPARTURES)]
    return Rule([*departures, whole(MIXED)], [*departures, whole(MIXED, net=True)])


def runs(table: Table) -> str:
    """Return how much was tried: a promise about all runs is never shown by some."""
    count, crashes = (float(table.everywhere(metric).sum()) for metric in ("runs", "crashes"))
    return f"{count:,.0f} runs of 14 nodes, {crashes:,.0f} events"


EXPERIMENTS = [
    Experiment(
        "omen-claim-2L",
        "At most 2L views at every instant",
        "§5",
        "A node keeps views of at most 2L others.",
        run_2l,
        rule_2l,
        (Bars(("bounded", "kept"), "share of runs"),),
        beside=runs,
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
        beside=runs,
        note="By the repair of docs/omen.md, without the fallback below it; joins with the fallback beside it. Twin "
        "joins on a new topic are among the joins drawn. Independent repairs, which the papers' text would give, are "
        "not run beside it.",
    ),
]
