"""What OMen's figures have in common: social interests, machines that come and go, lambda = 5, L = 1.

OMen and OMen-G build backup sets by the rule of section 4.2 in every figure. Systems that build them by another rule
say so in their names, as OMen(primal-dual-carry), which is the default of live meshes.

Figures that need neither messages nor processor times run on the cycle engine, but for the smallest scale. All others
run the protocols' own code.
"""

from __future__ import annotations

from typing import Any

from trellis.lab.experiment import LARGE_NODES, Case, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Check, each_of

CHURNED = "omen.churned"
RULE = "primal-dual-uncovered"  # buildBackupsByPD as section 4.2 words it
SCALES = ("smoke", "medium", "paper")
# FB and TW 1K and 10K; smaller sizes stand for both.
SIZES = {"smoke": (40, 80), "medium": (250, 1000), "paper": (1000, 10_000)}
EVENTS = {"smoke": 40, "medium": 120, "paper": 100_000}  # as many as the trace has (E-9)
LARGE_EVENTS = 300  # of 14,000 that the trace has for 10,000 nodes: all would take hours on the cycle engine
# Figures of messages and processor times run the protocol's own code, message by message: minutes for a dozen events.
TIMED = {"smoke": 40, "medium": 120, "paper": 40}
SEEDS = {"smoke": 2, "medium": 1, "paper": 3, "beyond": 1}


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
            "events": min(EVENTS[scale], LARGE_EVENTS) if nodes >= LARGE_NODES else EVENTS[scale],
            **more,
        }
        for system in systems:
            grid = {"coverage": coverage} if system.startswith("OMen") else {}
            found += cases(CHURNED, system, grid, **fixed, **rule_of(system), **engine(scale, system, cycles))
    return found


def tw(
    scale: str, at_hand: AtHand, systems: tuple[str, ...], *, cycles: bool = False, events: int | None = None
) -> list[Case]:
    """Twitter interests: always a substitute. Diameters are measured in all runs, so that figures share them."""
    nodes, every = SIZES[scale][0], {"smoke": 10, "medium": 20, "paper": 50}[scale]
    fixed = {
        "interests": "followers",
        "churn": at_hand.machines(),
        "nodes": nodes,
        "events": EVENTS[scale] if events is None else events,
        "diameters": every,
    }
    found = []
    for system in systems:
        grid = {"coverage": (5,)} if system.startswith("OMen") else {}
        found += cases(CHURNED, system, grid, **fixed, **rule_of(system), **engine(scale, system, cycles))
    return found


def engine(scale: str, system: str, cycles: bool = True) -> dict[str, Any]:
    """Return the parameter that names the engine of a run, where it is not the event engine."""
    return {"engine": "cycles"} if cycles and scale != "smoke" and system.startswith(("OMen", "spidercast")) else {}


def rule_of(system: str) -> dict[str, str]:
    """Return the parameter that names the rule for backup sets, where the name of the system does not."""
    return {"backups": RULE} if system.startswith("OMen") and "(" not in system else {}


def whole(table: Table, what: str = "every topic is connected after the last event, in every run") -> Check:
    return each_of(what, table.everywhere("split_end"), lambda split: split == 0)
