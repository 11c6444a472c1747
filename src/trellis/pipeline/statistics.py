"""Numbers about a distribution that fits on one machine: CCDF, power-law fits, Kolmogorov-Smirnov distance.

A distribution is two arrays: `value`, ascending and all different, and `count`, how many have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A discrete power law P(x) ~ x^-exponent for x >= value_min, by maximum likelihood."""

    exponent: float
    value_min: int
    tail: int  # how many have value_min or more
    distance: float  # Kolmogorov-Smirnov distance between tail and fit


def ccdf(count: npt.ArrayLike) -> Values:
    """For each value the share that has at least it."""
    counts = np.asarray(count, np.float64)
    return np.asarray(np.cumsum(counts[::-1])[::-1] / counts.sum(), np.float64)


def moments(value: npt.ArrayLike, count: npt.ArrayLike) -> dict[str, float]:
    """mean, variance, standard deviation and maximum, over the whole population.  [Vitis Fig. 9]"""
    values, counts = np.asarray(value, np.float64), np.asarray(count, np.float64)
    mean = float(np.average(values, weights=counts))
    variance = float(np.average((values - mean) ** 2, weights=counts))
    return {"mean": mean, "variance": variance, "standard_deviation": variance**0.5, "maximum": float(values.max())}


def ks_distance(
    value: npt.ArrayLike, count: npt.ArrayLike, other_value: npt.ArrayLike, other_count: npt.ArrayLike
) -> float:
    """The largest gap between the two cumulative distributions."""
    points = np.union1d(value, other_value)
    return float(np.max(np.abs(_cdf_at(points, value, count) - _cdf_at(points, other_value, other_count))))


def _cdf_at(points: Values, value: npt.ArrayLike, count: npt.ArrayLike) -> Values:
    counts = np.asarray(count, np.float64)
    below = np.concatenate([[0.0], np.cumsum(counts) / counts.sum()])
    return below[np.searchsorted(np.asarray(value), points, side="right")]


def loglog_slope(value: npt.ArrayLike, count: npt.ArrayLike, low: float = 0.5, high: float = 0.99) -> float:
    """Slope of log CCDF against log value between two quantiles; nan for fewer than 3 points.  [omen-fig7]"""
    values, share = np.asarray(value, np.float64), ccdf(count)
    inside = (values > 0) & (share <= 1 - low) & (share >= 1 - high)
    if inside.sum() < 3:
        return float("nan")
    return float(np.polyfit(np.log(values[inside]), np.log(share[inside]), 1)[0])


def power_law(value: npt.ArrayLike, count: npt.ArrayLike, *, tail_min: int = 50, tries: int = 60) -> Fit | None:
    """The fit whose tail lies closest to it; None where no tail of `tail_min` has two different values.

    Clauset, Shalizi and Newman (2009): for each candidate value_min the exponent by maximum likelihood, then the
    candidate with the smallest distance. Deviation: at most `tries` candidates, spread evenly over the different
    values, so that the cost does not grow with the data.
    """
    values, counts = np.asarray(value, np.int64), np.asarray(count, np.float64)
    values, counts = values[values > 0], counts[np.asarray(value) > 0]
    tails = np.cumsum(counts[::-1])[::-1]
    candidates = np.flatnonzero(tails >= tail_min)
    candidates = candidates[candidates < len(values) - 1]
    if not len(candidates):
        return None
    chosen = np.unique(candidates[np.linspace(0, len(candidates) - 1, tries).astype(int)])
    fits = [_fit_tail(values[start:], counts[start:]) for start in chosen]
    return min(fits, key=lambda fit: (fit.distance, fit.value_min))


def _fit_tail(values: npt.NDArray[np.int64], counts: Values) -> Fit:
    total, log_sum = counts.sum(), float(np.sum(counts * np.log(values)))
    smallest = int(values[0])

    def minus_log_likelihood(exponent: float) -> float:
        return float(total * np.log(special.zeta(exponent, smallest)) + exponent * log_sum)

    exponent = float(optimize.minimize_scalar(minus_log_likelihood, bounds=(1.01, 12.0), method="bounded").x)
    # The tail's own distribution stands still between its values while the fit's rises: look at both ends of a step.
    norm, seen = special.zeta(exponent, smallest), np.cumsum(counts) / total
    at = 1 - special.zeta(exponent, values + 1) / norm
    before_next = 1 - special.zeta(exponent, values[1:]) / norm
    distance = float(max(np.max(np.abs(seen - at)), np.max(np.abs(seen[:-1] - before_next))))
    return Fit(exponent, smallest, int(total), distance)
