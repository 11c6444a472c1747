"""Results in long form, and the conditions of the papers' rules on them.  [EXPERIMENTS 1]

A figure is measured into the table and looked at in the table alone, so that tables of several runs can be read
together. Numbers are means over seeds. Verdicts are given by `trellis lab` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trellis.errors import InputError

if TYPE_CHECKING:
    from figures.runs import Lab

Values = npt.NDArray[np.float64]
SEEDS_ASKED = 5


class Series(NamedTuple):
    parameters: dict[str, Any]
    steps: list[int]  # churn rounds, or 0 for what has none
    values: Values


class Table:
    """experiment, system, parameters, seed, step, metric, value: kept as one series a seed."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, str], dict[int, Series]] = {}

    def add(
        self,
        experiment: str,
        system: str,
        metric: str,
        seed: int,
        values: npt.ArrayLike,
        steps: Iterable[int] | None = None,
        **parameters: Any,
    ) -> None:
        listed = np.atleast_1d(np.asarray(values, np.float64))
        at = [0] * len(listed) if steps is None else list(steps)
        assert len(at) == len(listed)
        others = self._series.setdefault((experiment, system, metric), {})
        if any(other.parameters != parameters for other in others.values()):
            remedy = "read tables of equal --nodes, --rounds and --exponent together"
            raise InputError("", f"{experiment} was measured with other parameters than {parameters}", remedy)
        others[seed] = Series(parameters, at, listed)

    def by_seed(self, experiment: str, system: str, metric: str) -> list[Values]:
        found = self._series[experiment, system, metric]
        return [found[seed].values for seed in sorted(found)]

    def each(self, experiment: str, system: str, metric: str, of: Callable[[Values], Any] = np.mean) -> Values:
        """One number a seed, by default the mean over the steps."""
        return np.array([of(values) for values in self.by_seed(experiment, system, metric)])

    def mean(self, experiment: str, system: str, metric: str, of: Callable[[Values], Any] = np.mean) -> float:
        return float(self.each(experiment, system, metric, of).mean())

    def systems(self, experiment: str) -> list[str]:
        return list(dict.fromkeys(system for name, system, _ in self._series if name == experiment))

    def seeds(self, experiment: str) -> list[int]:
        """Those that every series of the experiment has."""
        held = [set(found) for (name, _, _), found in self._series.items() if name == experiment]
        return sorted(set.intersection(*held)) if held else []

    def rows(self) -> Iterator[dict[str, Any]]:
        for (experiment, system, metric), found in self._series.items():
            for seed, (parameters, steps, values) in found.items():
                about = {"experiment": experiment, "system": system, **parameters, "seed": seed}
                for step, value in zip(steps, values.tolist(), strict=True):
                    yield {**about, "step": step, "metric": metric, "value": value}

    def write(self, path: Path) -> None:
        with path.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in self.rows())

    def read(self, path: Path) -> None:
        """Adds what another run wrote."""
        groups: dict[tuple[str, str, str, int], tuple[dict[str, Any], list[int], list[float]]] = {}
        with path.open() as file:
            for line in file:
                row = json.loads(line)
                key = row.pop("experiment"), row.pop("system"), row.pop("metric"), row.pop("seed")
                step, value = row.pop("step"), row.pop("value")
                _, steps, values = groups.setdefault(key, (row, [], []))
                steps.append(step)
                values.append(value)
        for (experiment, system, metric, seed), (parameters, steps, values) in groups.items():
            self.add(experiment, system, metric, seed, values, steps, **parameters)


class Check(NamedTuple):
    """One condition of a rule, and what was found."""

    condition: str
    found: str
    holds: bool


class Rule(NamedTuple):
    """Columns R and S of the specification."""

    r: list[Check]
    s: list[Check] | None = None


class Report(NamedTuple):
    lines: list[str]  # our numbers beside the paper's
    readings: dict[str, Rule]  # the headline first, then other readings of the paper, for comparison


class Figure(NamedTuple):
    measure: Callable[[Lab, Table], None]
    judge: Callable[[Table], Report]
    paper: str  # what the paper reports
    seeds: int = SEEDS_ASKED


def at_most(what: str, found: float, bound: float) -> Check:
    return Check(f"{what} <= {bound:g}", f"{found:.4g}", found <= bound)


def at_least(what: str, found: float, bound: float) -> Check:
    return Check(f"{what} >= {bound:g}", f"{found:.4g}", found >= bound)


def within(what: str, found: float, target: float, percent: float) -> Check:
    """a ~ b (p%)."""
    return Check(f"{what} ~ {target:g} ({percent:g}%)", f"{found:.4g}", abs(found - target) <= percent / 100 * target)


def decreasing(what: str, each: list[Values]) -> Check:
    """Of one array of seeds a step: strictly, but a step may go wrong by one standard error over the seeds."""
    holds = True
    for before, after in pairwise(each):
        steps = after - before
        error = float(steps.std(ddof=1) / np.sqrt(len(steps))) if len(steps) > 1 else 0.0
        holds &= bool(steps.mean() < 0 or 0 <= steps.mean() <= error != 0)
    return Check(what, ", ".join(f"{values.mean():.4g}" for values in each), holds)


def show(name: str, figure: Figure, table: Table) -> str:
    """A figure's numbers and conditions as text."""
    report, seeds = figure.judge(table), table.seeds(name)
    few = f"; the rules ask for {figure.seeds} seeds" if len(seeds) < figure.seeds else ""
    lines = [f"  {line}" for line in report.lines]
    for reading, rule in report.readings.items():
        lines.append(f"  {reading}{few}:")
        for column, checks in (("R", rule.r), ("S", rule.s or [])):
            lines += [f"      {column} {'ok' if c.holds else 'NO':2}  {c.condition}: {c.found}" for c in checks]
    heading = f"\n{name}, seeds {', '.join(map(str, seeds))} (paper: {figure.paper})"
    return "\n".join([heading, *lines])


def grid(columns: Iterable[str], rows: Iterable[tuple[str, Iterable[float | None]]], width: int = 11) -> list[str]:
    """A small table: a label and numbers a row; None leaves a place empty."""
    lines = [" " * 34 + "".join(f"{column:>{width}}" for column in columns)]
    for label, values in rows:
        shown = ("" if value is None else f"{value:.4g}" for value in values)
        lines.append(f"{label:<34}" + "".join(f"{text:>{width}}" for text in shown))
    return lines
