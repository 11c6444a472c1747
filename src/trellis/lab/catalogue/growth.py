"""What the entries beyond the papers have in common: sizes, and conditions on how a number grows with the nodes.

The papers' figures end at 10,000 nodes. These entries go on to 100,000, with all else equal. Their rules are ours: they
say what the designs lead to expect of larger networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log

from trellis.lab.verdict import Check, number

FIGURE = "beyond the papers"
LIMIT = "no paper has a figure of these sizes"
SCALES = ("smoke", "beyond")
SEEDS = {"smoke": 2, "beyond": 1}
NODES = {"smoke": (250, 500, 1000), "beyond": (10_000, 30_000, 100_000)}
MILLION = (100_000, 1_000_000)
SLACK = 1.1  # by which a number may exceed its bound: one seed at the largest sizes

Shape = Callable[[float], float]


def sizes(scale: str) -> tuple[int, ...]:
    return NODES.get(scale, NODES["beyond"])


def constant(nodes: float) -> float:
    return 1.0


def logarithm(nodes: float) -> float:
    return log(nodes)


def logarithm_squared(nodes: float) -> float:
    return log(nodes) ** 2


WORDS: dict[Shape, str] = {
    constant: "does not grow",
    logarithm: "grows like log n at most",
    logarithm_squared: "grows like log^2 n at most",
}


def grows(what: str, nodes: Sequence[int], found: Sequence[float], shape: Shape, slack: float = SLACK) -> Check:
    """Check every size against the smallest one: f(n) / f(n_0) <= slack * shape(n) / shape(n_0)."""
    assert len(nodes) == len(found)
    bounds = [slack * found[0] * shape(n) / shape(nodes[0]) for n in nodes]
    good = len(nodes) > 1 and all(value <= bound for value, bound in zip(found, bounds, strict=True))
    told = ", ".join(f"{number(value)} at {n:,}" for n, value in zip(nodes, found, strict=True))
    return Check(f"{what} {WORDS[shape]} (within {100 * (slack - 1):.0f}%)", told, good)
