"""Series as plain values that JSON can hold, shortened where they are long. Of a series is kept

    every value                 where it has at most `WHOLE_MAX`, or where the rule of an entry reads its single steps
                                (`Experiment.by_step`)
    a summary                   of all others: the functions of `table.SUMMARIES`
    and `POINTS` of its points  where a plot draws it step by step

A rule that asks for anything else is stopped by an assertion (`Series.values`, `Series.of`), never misled.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from trellis.lab.table import SUMMARIES, Series, Values

WHOLE_MAX, POINTS = 32, 48
EXACT, DIGITS = 17, 9  # digits of single numbers, and of those in series and summaries


def encoded(series: Series, is_whole: bool, is_drawn: bool) -> Any:
    """Return a series as plain values: a number, a list of all values, or an object."""
    steps, values = series.steps, series.values
    if len(values) == 1 and steps[0] == 0:
        return _short(values[0], EXACT)
    if is_whole or len(values) <= WHOLE_MAX:
        counted = np.array_equal(steps, np.arange(1, len(values) + 1))
        return _shorts(values) if counted else {"at": _shorts(steps), "is": _shorts(values)}
    summary = {name: _short(function(values)) for name, function in SUMMARIES.items()}
    if not is_drawn:
        return {"of": summary}
    chosen = np.unique(np.linspace(0, len(values) - 1, POINTS).round().astype(int))
    return {"of": summary, "at": _shorts(steps[chosen]), "is": [float(f"{v:.5g}") for v in values[chosen]]}


def decoded(found: Any) -> Series:
    if isinstance(found, list):
        return Series(np.arange(1, len(found) + 1, dtype=float), _values(found))
    if not isinstance(found, dict):
        return Series(np.zeros(1), _values([found]))
    summary = {name: _long(value) for name, value in found["of"].items()} if "of" in found else None
    steps, points = _values(found.get("at", [])), _values(found.get("is", []))
    if len(steps) != len(points):
        raise ValueError(f"{len(steps)} steps and {len(points)} values")
    return Series(steps, points, summary)


def _short(value: float, digits: int = DIGITS) -> Any:
    """Return a number that JSON can hold."""
    if not isfinite(value):
        return str(float(value))
    return int(value) if float(value).is_integer() and abs(value) < 1e15 else float(f"{value:.{digits}g}")


def _shorts(values: Values) -> list[Any]:
    return [_short(float(value)) for value in values]


def _long(value: Any) -> float:
    return float(value)


def _values(found: list[Any]) -> Values:
    return np.array([_long(value) for value in found], float)
