"""Define how many topics a node subscribes to: a fixed number, uniform in an interval, or a power law over it.

[SpiderCast 3.1: uniform in [min:max]; Shadows VI, OMen 6.1: a power law in [10, 90]]
"""

from __future__ import annotations

import msgspec

from trellis.errors import InputError
from trellis.workloads.checks import check_at_least, check_choice, check_count, refuse_if

SHAPES = ("uniform", "powerlaw")


class Sizes(msgspec.Struct, frozen=True):
    """Subscription sizes from `low` to `high`, both included. Equal bounds fix the size."""

    low: int
    high: int
    shape: str = "uniform"  # uniform: each size equally likely; powerlaw: P(k) proportional to k^-exponent
    # A higher value makes large subscriptions rarer. The papers only say "a power law"; 3 fits their figures best
    # (E-1).
    exponent: float = 3.0

    def __post_init__(self) -> None:
        where = f"--subs {self}"
        refuse_if(self.low < 1, where, "a node needs a topic", "let the sizes begin at 1 or more")
        refuse_if(
            self.high < self.low,
            where,
            "the interval runs backwards",
            f"write the smaller size first: {self.high}:{self.low}",
        )
        check_count("subs", self.high)
        check_choice("sizes", self.shape, SHAPES)
        check_at_least("size-exponent", self.exponent, 0)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}:{self.high}"

    def check_within(self, topics: int, place: str) -> None:
        """Raise InputError for sizes that are larger than the number of topics."""
        refuse_if(
            self.high > topics,
            f"--subs {self}",
            f"a node cannot subscribe to {self.high} different topics of {topics} {place}",
            f"give at most {topics}, or more topics",
        )


def parse_subs(text: str, shape: str = "uniform", exponent: float = 3.0) -> Sizes:
    """Parse `10` or `10:90`, as typed after --subs."""
    low, colon, high = text.partition(":")
    try:
        bounds = int(low), int(high if colon else low)
    except ValueError:
        raise InputError(f"--subs {text}", "is neither a size nor an interval of sizes", "write 10 or 10:90") from None
    return Sizes(*bounds, shape, exponent)
