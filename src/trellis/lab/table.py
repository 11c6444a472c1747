"""The table of results, as rules and plots read it: system, parameters, seed, step, metric, value.

Kept as one series a (case, metric, seed). `each` gives one number a seed, `mean` their mean, `path` the mean over seeds
step by step. Cases are named by their system and by as many parameters as tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from trellis.lab.experiment import Case, Parameters

Values = npt.NDArray[np.float64]
Found = Mapping[str, Any]  # metric -> a number, a list of numbers, or (steps, values)


class Missing(Exception):
    """The table has no such numbers: rows were not run, or failed."""


class Series(NamedTuple):
    """A metric of one row, step by step; or some points of it with a summary of all (`kept.py`)."""

    steps: Values
    points: Values
    summary: Mapping[str, float] | None = None  # of every value, where only some points were kept

    @property
    def values(self) -> Values:
        """Return every value. A rule that reads them names its metric in `Experiment.by_step`."""
        assert self.summary is None, "only some points of this series were kept: name its metric in `by_step`"
        return self.points

    def of(self, what: Callable[[Values], Any]) -> float:
        """Return one number for all values. Where only a summary was kept, `what` must be one of `SUMMARIES`."""
        if self.summary is None:
            return float(what(self.points))
        names = [name for name, function in SUMMARIES.items() if function is what]
        assert names, f"{what} is no part of a summary: name the metric in `by_step`, or use one of {list(SUMMARIES)}"
        return float(self.summary[names[0]])


class Table:
    def __init__(self) -> None:
        self._found: dict[str, tuple[Case, dict[int, dict[str, Series]]]] = {}

    def add(self, case: Case, seed: int, found: Found) -> None:
        """What a measure gave: a number, a list (steps 1, 2, ...), or steps and values."""
        _, seeds = self._found.setdefault(case.identity, (case, {}))
        seeds[seed] = {metric: series_of(value) for metric, value in found.items()}

    # What there is.

    def cases(self, system: str | None = None, **where: Any) -> list[Case]:
        return [
            case
            for case, _ in self._found.values()
            if (system is None or case.system == system)
            and all(name in case.parameters and case.parameters[name] == value for name, value in where.items())
        ]

    def systems(self, **where: Any) -> list[str]:
        return list(dict.fromkeys(case.system for case in self.cases(**where)))

    def values_of(self, parameter: str, system: str | None = None, **where: Any) -> list[Any]:
        """The different values of a parameter, ascending where they can be ordered."""
        found = [case.parameters[parameter] for case in self.cases(system, **where) if parameter in case.parameters]
        different = list(dict.fromkeys(found))
        return sorted(different) if all(isinstance(value, int | float) for value in different) else different

    def seeds(self) -> list[int]:
        """Those that every case has."""
        held = [set(seeds) for _, seeds in self._found.values()]
        return sorted(set.intersection(*held)) if held else []

    def metrics(self, case: Case) -> list[str]:
        return list(dict.fromkeys(metric for found in self._seeds(case).values() for metric in found))

    # Numbers.

    def by_seed(self, metric: str, system: str | None = None, **where: Any) -> list[Series]:
        return self.of_case(self._one(metric, system, where), metric)

    def of_case(self, case: Case, metric: str) -> list[Series]:
        seeds = self._seeds(case)
        found = [seeds[seed][metric] for seed in sorted(seeds) if metric in seeds[seed]]
        if not found:
            raise Missing(f"{case.system} has no {metric}")
        return found

    def each(
        self, metric: str, system: str | None = None, of: Callable[[Values], Any] = np.mean, **where: Any
    ) -> Values:
        """One number a seed, by default the mean over the steps."""
        return np.array([series.of(of) for series in self.by_seed(metric, system, **where)], float)

    def mean(
        self, metric: str, system: str | None = None, of: Callable[[Values], Any] = np.mean, **where: Any
    ) -> float:
        return float(self.each(metric, system, of, **where).mean())

    def path(self, metric: str, system: str | None = None, **where: Any) -> Series:
        """Step by step the mean over the seeds; as far as all of them go."""
        found = self.by_seed(metric, system, **where)
        common = min(len(series.values) for series in found)
        return Series(found[0].steps[:common], np.mean([series.values[:common] for series in found], axis=0))

    def everywhere(
        self, metric: str, system: str | None = None, of: Callable[[Values], Any] = np.mean, **where: Any
    ) -> Values:
        """One number for each case and seed."""
        chosen = [case for case in self.cases(system, **where) if metric in self.metrics(case)]
        if not chosen:
            raise Missing(f"nothing has {metric}")
        return np.array([series.of(of) for case in chosen for series in self.of_case(case, metric)], float)

    # Helpers.

    def _seeds(self, case: Case) -> dict[int, dict[str, Series]]:
        return self._found[case.identity][1]

    def _one(self, metric: str, system: str | None, where: Parameters) -> Case:
        chosen = [case for case in self.cases(system, **where) if metric in self.metrics(case)]
        if not chosen:
            raise Missing(f"no {metric} of {system or 'any system'} with {dict(where)}")
        assert len(chosen) == 1, f"{metric} of {system} with {dict(where)} names {len(chosen)} cases: {chosen[:3]}"
        return chosen[0]

    def __iter__(self) -> Iterator[tuple[Case, dict[int, dict[str, Series]]]]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)


def last(values: Values) -> float:
    return float(values[-1])


def first(values: Values) -> float:
    return float(values[0])


def lower_middle(values: Values) -> float:
    """Return the quantile 0.4."""
    return float(np.quantile(values, 0.4))


def upper_middle(values: Values) -> float:
    """Return the quantile 0.6."""
    return float(np.quantile(values, 0.6))


# What is kept of a series whose points are not: a rule may ask for these of any series.
SUMMARIES: dict[str, Callable[[Values], Any]] = {
    "mean": np.mean,
    "median": np.median,
    "min": np.min,
    "max": np.max,
    "sum": np.sum,
    "first": first,
    "last": last,
    "q40": lower_middle,
    "q60": upper_middle,
}


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Rank correlation, ties at their mean rank; 0 where one of the two does not vary."""
    one, other = (_ranks(np.asarray(values, float)) for values in (x, y))
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])


def _ranks(values: Values) -> Values:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: Values = (ends - (counts - 1) / 2)[place]
    return means


def half_width(values: Values) -> float:
    """Of the 95% interval of a mean over seeds; not a number with one seed."""
    if len(values) < 2:
        return float("nan")
    return float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(len(values)))


def series_of(value: Any) -> Series:
    """Return what a measure gave as a series: a number, a list (steps 1, 2, ...), or steps and values."""
    if isinstance(value, Series):
        return value
    if isinstance(value, tuple):
        steps, values = (np.asarray(part, float) for part in value)
        assert len(steps) == len(values)
        return Series(steps, values)
    values = np.atleast_1d(np.asarray(value, float))
    return Series(np.arange(1, len(values) + 1, dtype=float) if np.ndim(value) else np.zeros(1), values)
