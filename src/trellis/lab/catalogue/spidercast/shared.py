"""What SpiderCast's figures have in common: `sc(RSS, n, 100, 10)`, (K_g, K_r) = (3, 0), sizes 1,000 to 10,000."""

from __future__ import annotations

from typing import Any

from trellis.lab.experiment import Case, cases
from trellis.lab.table import Table
from trellis.lab.verdict import Check, Values, each_of

NODES = {
    "smoke": (200, 400, 800),
    "paper": (1000, 2000, 4000, 6000, 8000, 10000),
    "beyond": (20_000, 50_000, 100_000),
}
ALL_SCALES = ("smoke", "paper", "beyond")
STATIC = "spidercast.settled"
GREEDY = "spidercast(3,0)"
DISTRIBUTIONS = ("nyse", "zipf1", "rss", "unif")  # lowest mean degree first


def static(scale: str, systems: tuple[str, ...] | str = GREEDY, **more: Any) -> list[Case]:
    """Runs on RSS interests at the sizes of a scale, unless told otherwise; lists are varied.

    Small ones run the protocol's own code message by message, large ones the cycle engine.
    """
    given: dict[str, Any] = {"nodes": NODES[scale], "popularity": "rss", **more}
    if scale != "smoke":
        given["engine"] = "cycles"
    grid = {name: value for name, value in given.items() if isinstance(value, list | tuple)}
    return cases(STATIC, systems, grid, **{name: value for name, value in given.items() if name not in grid})


def degrees(table: Table, system: str = GREEDY, **where: Any) -> list[Values]:
    """The mean degree at each size, smallest first: one array of seeds a size."""
    return [table.each("degree", system, nodes=n, **where) for n in table.values_of("nodes", system, **where)]


def connected(table: Table, what: str, system: str | None = None, **where: Any) -> Check:
    return each_of(what, table.everywhere("split", system, **where), lambda split: split == 0)
