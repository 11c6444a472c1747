"""What Magnet's figures have in common: pairs of runs, Magnet and the strawman, and the saving between them.

At the papers' sizes runs are made by the cycle engine. The smallest ones run the protocol's own code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.lab.experiment import Case, Parameters, cases
from trellis.lab.table import Missing, Table, Values, first

COST = "magnet.cost"
BOTH = ("Magnet", "strawman")
NODES = {"smoke": 150, "paper": 10_000}
SEEDS = {"smoke": 2, "paper": 3, "beyond": 1}
# At a small scale topics and subscriptions shrink with the nodes: 10 of 200 instead of 50 of 1,000.
MULTI = {"smoke": {"topics": 200, "subs": 10}, "paper": {"topics": 1000, "subs": 50}}


def engine(scale: str) -> dict[str, str]:
    """Return the parameter that names the engine of a run."""
    return {"model": "protocol"} if scale == "smoke" else {"engine": "cycles"}


def pairs(grid: Mapping[str, Sequence[Any]] | None = None, **fixed: Any) -> list[Case]:
    return cases(COST, BOTH, grid, **fixed)


def multi(scale: str, b_p: int, b_n: int, **more: Any) -> list[Case]:
    return pairs(
        None,
        **{
            "workload": "multi",
            "nodes": NODES[scale],
            "b_p": b_p,
            "b_n": b_n,
            "alpha": 0.0,
            **engine(scale),
            **MULTI[scale],
            **more,
        },
    )


def fig3_points(scale: str) -> list[tuple[int, int]]:
    """b_p of b_n categories, at the ratios 1/10 and 1/5."""
    modes = (1, 3, 5) if scale == "smoke" else (1, 2, 3, 4, 5)
    return [(b_p, b_p * ratio) for ratio in (10, 5) for b_p in modes]


def savings(table: Table, **where: Any) -> Values:
    """1 - Magnet / strawman, in percent, one number a seed."""
    mine, other = (table.each("cost", name, **where) for name in BOTH)
    return 100 * (1 - mine / np.maximum(other, 1e-9))


def saving(table: Table, **where: Any) -> float:
    return float(savings(table, **where).mean())


def points(table: Table) -> list[Parameters]:
    """The parameters of all pairs."""
    return [case.parameters for case in table.cases("Magnet") if "cost" in table.metrics(case)]


def all_savings(table: Table) -> dict[str, float]:
    """Return the saving at every point, by its parameters. No two points have the same ones."""
    found = {}
    for where in points(table):
        same = [case for case in table.cases("strawman") if case.parameters == where]
        if not same:
            raise Missing(f"no strawman for {dict(where)}")
        mine = np.mean(
            [s.of(first) for c in table.cases("Magnet") if c.parameters == where for s in table.of_case(c, "cost")]
        )
        other = float(np.mean([s.of(first) for s in table.of_case(same[0], "cost")]))
        text = ", ".join(f"{name} {value}" for name, value in where.items() if name != "engine")
        assert text not in found, f"two points are called {text}"
        found[text] = float(100 * (1 - mine / max(other, 1e-9)))
    return found
