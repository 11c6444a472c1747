"""Verdicts: conditions on the table of results, and what follows from them.

reproduced       every condition of R holds, on the paper's data or a workload that the paper defines, at its size
reproduced (converged model)
                 the same, but an idealised model produced the numbers and not the protocol
shape only       R fails, or the data is a substitute, or the size is not the paper's; every condition of S holds
not reproduced   neither
no data          the figure needs a data set that is not at hand, and no substitute could stand for it
not yet          it cannot be judged now; the entry says why
incomplete       rows are missing or failed
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
CONVERGED = "reproduced (converged model)"
WORDS = ("reproduced", CONVERGED, "shape only", "not reproduced", "no data", "not yet", "incomplete")


class Check(NamedTuple):
    """One condition, and what was found."""

    condition: str
    found: str
    holds: bool


class Rule(NamedTuple):
    """Columns R and S of the specification. Without S, what R asks for is the shape as well."""

    r: list[Check]
    s: list[Check] | None = None


class Verdict(NamedTuple):
    word: str
    r: Sequence[Check] = ()
    s: Sequence[Check] = ()
    reason: str = ""  # why it is not better, where that is not seen from the checks


def judged(rule: Rule, limits: Sequence[str] = (), *, is_model: bool = False) -> Verdict:
    """`limits`: what keeps it from `reproduced` whatever R says, for instance a substitute data set.

    `is_model`: an idealised model produced the numbers, so that `reproduced` has to say so.
    """
    exact = bool(rule.r) and all(check.holds for check in rule.r)
    shape = rule.r if rule.s is None else rule.s
    holds = bool(shape) and all(check.holds for check in shape)
    # Who meets the stricter rule has the shape as well, even where S words it differently.
    best = CONVERGED if is_model else "reproduced"
    word = best if exact and not limits else "shape only" if holds or exact else "not reproduced"
    return Verdict(word, rule.r, rule.s or (), "; ".join(limits))


def at_most(what: str, found: float, bound: float) -> Check:
    return Check(f"{what} <= {bound:g}", number(found), bool(found <= bound))


def at_least(what: str, found: float, bound: float) -> Check:
    return Check(f"{what} >= {bound:g}", number(found), bool(found >= bound))


def between(what: str, found: float, low: float, high: float) -> Check:
    return Check(f"{what} in [{low:g}, {high:g}]", number(found), bool(low <= found <= high))


def within(what: str, found: float, target: float, percent: float) -> Check:
    """a ~ b (p%)."""
    return Check(
        f"{what} ~ {target:g} ({percent:g}%)", number(found), bool(abs(found - target) <= percent / 100 * abs(target))
    )


def below(what: str, smaller: float, larger: float) -> Check:
    return Check(what, f"{number(smaller)} < {number(larger)}", bool(smaller < larger))


def equal(what: str, found: float, target: float) -> Check:
    return Check(f"{what} = {target:g}", number(found), bool(found == target))


def holds(what: str, found: object, value: Any) -> Check:
    return Check(what, str(found), bool(value))


def missing(what: str, why: str) -> Check:
    """A condition that could not be looked at: it does not hold."""
    return Check(what, why, False)


def falling(what: str, each: Sequence[Values]) -> Check:
    """decr(x): strictly, but a step may go wrong by one standard error over the seeds. One array of seeds a step."""
    return _monotonic(what, each, -1)


def rising(what: str, each: Sequence[Values]) -> Check:
    return _monotonic(what, each, 1)


def _monotonic(what: str, each: Sequence[Values], sign: int) -> Check:
    good = len(each) > 1
    for before, after in pairwise(each):
        common = min(len(before), len(after))
        steps = sign * (after[:common] - before[:common])
        error = float(steps.std(ddof=1) / np.sqrt(len(steps))) if len(steps) > 1 else 0.0
        good &= bool(steps.mean() > 0 or (error > 0 and steps.mean() >= -error))
    return Check(what, ", ".join(number(float(values.mean())) for values in each), bool(good))


def higher_at_the_end(what: str, each: Sequence[Values]) -> Check:
    """The last step is above the first one by more than a standard error over the seeds: a flat line does not rise."""
    common = min(len(each[0]), len(each[-1]))
    steps = each[-1][:common] - each[0][:common]
    error = float(steps.std(ddof=1) / np.sqrt(len(steps))) if len(steps) > 1 else 0.0
    shown = ", ".join(number(float(values.mean())) for values in each)
    return Check(what, shown, bool(len(each) > 1 and steps.mean() > error))


def never_rising(what: str, values: Sequence[float], slack: float = 0.0) -> Check:
    good = all(later <= earlier + slack for earlier, later in pairwise(values))
    return Check(what, ", ".join(map(number, values)), good)


def in_order(what: str, values: Sequence[float], strict: bool = True) -> Check:
    """The values ascend as they are listed."""
    good = all(a < b if strict else a <= b for a, b in pairwise(values))
    return Check(what, ", ".join(map(number, values)), good)


def each_of(what: str, values: Sequence[float] | Values, test: Callable[[float], bool]) -> Check:
    """For every seed and point: a bound that may never be broken. An instance has enough digits to show that it is."""
    listed = np.asarray(values, float).ravel()
    broken = [value for value in listed if not test(float(value))]
    shown = f"{len(listed) - len(broken)} of {len(listed)}"
    return Check(what, shown + (f"; for instance {broken[0]:,.7g}" if broken else ""), bool(len(listed)) and not broken)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 and float(value).is_integer() else f"{value:.4g}"
