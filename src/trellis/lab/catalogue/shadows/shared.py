"""What the figures of Shadows have in common: `syn(unif)`, `coin(1000)`, rho = 3, lambda = 3, started from LowODA."""

from __future__ import annotations

from typing import Any

from trellis.lab.experiment import Case, cases
from trellis.lab.table import Table, last
from trellis.plan.maintain_config import BACKUPS

SIZES = {"smoke": {"nodes": 400, "rounds": 200}, "paper": {"nodes": 2000, "rounds": 1000}}
BEYOND = {"nodes": 10_000, "rounds": 1000}
LISTED, CARRIED = "shadows(primal-dual)", "shadows(primal-dual-carry)"
GREEDY, WEIGHTED = "shadows(greedy)", "shadows(greedy-weighted)"
UNCOVERED = "shadows(primal-dual-uncovered)"  # as OMen's text words it
EVENTS = ("join", "leave")
MAINTAINED = "shadows.maintained"


def size(scale: str) -> dict[str, Any]:
    return {**SIZES, "beyond": BEYOND}[scale]


def maintained(scale: str, systems: tuple[str, ...], coverage: tuple[int, ...] = (3,)) -> list[Case]:
    return cases(MAINTAINED, systems, {"coverage": coverage}, popularity="unif", **size(scale))


def backup_sets(scale: str, popularity: tuple[str, ...] = ("unif",), routines: tuple[str, ...] = ()) -> list[Case]:
    nodes = size(scale)["nodes"]
    return cases("shadows.backups", routines or tuple(BACKUPS), {"popularity": popularity}, nodes=nodes, coverage=3)


def at_end(table: Table, metric: str, system: str, coverage: int = 3) -> float:
    return table.mean(metric, system, last, coverage=coverage)
