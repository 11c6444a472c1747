"""What OMen's figures have in common: social interests, machines that come and go, lambda = 5, L = 1.

OMen and OMen-G build backup sets by the rule of section 4.2 in every figure. Systems that build them by another rule
say so in their names, as OMen(primal-dual-carry), which is the default of live meshes.

Figures of views without churn run on the cycle engine, but for the smallest scale. So does SpiderCast under churn in
figures that need neither messages nor times. All others run the protocols' own code. `CHURN_IN_CYCLES` lets OMen take
the cycle engine in these figures as well.
"""

from __future__ import annotations

from typing import Any

from trellis.lab.experiment import Case, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Check, each_of

CHURNED = "omen.churned"
RULE = "primal-dual-uncovered"  # buildBackupsByPD as section 4.2 words it
SCALES = ("smoke", "medium", "paper")
# FB and TW 1K and 10K; smaller sizes stand for both.
SIZES = {"smoke": (40, 80), "medium": (250, 1000), "paper": (1000, 10_000)}
EVENTS = {"smoke": 40, "medium": 120, "paper": 100_000}  # as many as the trace has (E-9)
SEEDS = {"smoke": 2, "medium": 1, "paper": 3, "beyond": 1}
CHURN_IN_CYCLES = False  # OMen has higher degrees over a whole trace in cycles (docs/cycles.md, "What is open").


def fb(
    scale: str,
    at_hand: AtHand,
    systems: tuple[str, ...],
    sizes: tuple[int, ...] = (),
    coverage: tuple[int, ...] = (5,),
    *,
    cycles: bool = False,
    **more: Any,
) -> list[Case]:
    """Facebook interests under Google's churn, at the first size unless told otherwise.

    `cycles`: OMen and SpiderCast may run on the cycle engine.
    """
    found = []
    for nodes in sizes or SIZES[scale][:1]:
        fixed = {
            "interests": at_hand.friends(nodes),
            "churn": at_hand.machines(),
            "nodes": nodes,
            "events": EVENTS[scale],
            **more,
        }
        for system in systems:
            grid = {"coverage": coverage} if system.startswith("OMen") else {}
            found += cases(CHURNED, system, grid, **fixed, **rule_of(system), **churn_engine(scale, system, cycles))
    return found


def tw(scale: str, at_hand: AtHand, systems: tuple[str, ...], *, cycles: bool = False) -> list[Case]:
    """Twitter interests: always a substitute. Diameters are measured in all runs, so that figures share them."""
    nodes, every = SIZES[scale][0], {"smoke": 10, "medium": 20, "paper": 50}[scale]
    fixed = {
        "interests": "followers",
        "churn": at_hand.machines(),
        "nodes": nodes,
        "events": EVENTS[scale],
        "diameters": every,
    }
    found = []
    for system in systems:
        grid = {"coverage": (5,)} if system.startswith("OMen") else {}
        found += cases(CHURNED, system, grid, **fixed, **rule_of(system), **churn_engine(scale, system, cycles))
    return found


def engine(scale: str, system: str, cycles: bool = True) -> dict[str, Any]:
    """Return the parameter that names the engine of a run, where it is not the event engine."""
    return {"engine": "cycles"} if cycles and scale != "smoke" and system.startswith(("OMen", "spidercast")) else {}


def churn_engine(scale: str, system: str, cycles: bool) -> dict[str, Any]:
    """Return the same for a run with churn. `cycles`: its figure needs neither messages nor times."""
    return engine(scale, system, cycles and (CHURN_IN_CYCLES or system.startswith("spidercast")))


def rule_of(system: str) -> dict[str, str]:
    """Return the parameter that names the rule for backup sets, where the name of the system does not."""
    return {"backups": RULE} if system.startswith("OMen") and "(" not in system else {}


def whole(table: Table, what: str = "every topic is connected after the last event, in every run") -> Check:
    return each_of(what, table.everywhere("split_end"), lambda split: split == 0)
