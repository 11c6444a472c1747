"""Fit power laws to tails of distributions.  [Magnet Fig. 7; Vitis Fig. 8; Clauset, Shalizi, Newman 2009]

"Exponent" has two meanings, which must not be confused (Magnet Fig. 7 does not say which it uses):

    the exponent    a of P(X = x) ~ x^-a for whole x >= x_min, by maximum likelihood
    the slope       of log P(X >= x) over log x, by least squares; a power law of exponent a has about 1 - a
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import zeta

from trellis.measure.distributions import Distribution

EXPONENT_MIN, EXPONENT_MAX = 1.0 + 1e-6, 25.0  # Steeper than the latter, no tail of ours is a power law.
TAIL_MIN = 10  # An x_min whose tail has fewer numbers is not tried.
CANDIDATES_MAX = 200  # Most values of x_min to try. If there are more, they are spread evenly over the ranks.


@dataclass(frozen=True)
class PowerLaw:
    """A power law fitted to a tail."""

    exponent: float
    error: float  # standard error of the exponent
    x_min: int  # where the tail begins
    tail: int  # how many numbers it has
    distance: float  # Kolmogorov-Smirnov distance: the largest difference between the CDFs of the tail and of the law

    @property
    def is_near(self) -> bool:
        """Return whether the law is near enough to be drawn. This is a rule of thumb, not a test."""
        return self.distance < 0.1


@dataclass(frozen=True)
class CcdfSlope:
    """A line fitted to a CCDF on logarithmic axes."""

    slope: float
    r_squared: float
    decades: float  # range of the values, as a power of ten


def fit_power_law(numbers: Distribution, x_min: int | None = None) -> PowerLaw | None:
    """Fit by discrete maximum likelihood. Without `x_min`, choose the one whose fit is nearest to its tail.

    Return None if there is nothing to fit: a tail with fewer than two different positive values, or one that falls
    faster than any power law up to the exponent 25.
    """
    if x_min is not None:
        return _fit(numbers, max(x_min, 1))
    tails = numbers.total - np.cumsum(numbers.counts) + numbers.counts
    possible = numbers.values[(numbers.values > 0) & (tails >= TAIL_MIN)]
    if len(possible) > CANDIDATES_MAX:
        possible = possible[np.linspace(0, len(possible) - 1, CANDIDATES_MAX).astype(np.int64)]
    fits = [fit for value in possible if (fit := _fit(numbers, int(value))) is not None]
    return min(fits, key=lambda fit: fit.distance, default=None)


def ccdf_slope(numbers: Distribution, x_min: int = 1) -> CcdfSlope | None:
    """Fit a line through the points (log x, log P(X >= x)), one for each different value from `x_min` on.

    Return None if there are fewer than two different values.
    """
    tail = numbers.values >= max(x_min, 1)
    if np.count_nonzero(tail) < 2:
        return None
    x, y = np.log10(numbers.values[tail]), np.log10(numbers.ccdf[tail])
    slope, intercept = np.polyfit(x, y, 1)
    rest = float(np.sum((y - slope * x - intercept) ** 2))
    return CcdfSlope(float(slope), 1 - rest / float(np.sum((y - y.mean()) ** 2)), float(x[-1] - x[0]))


def _fit(numbers: Distribution, x_min: int) -> PowerLaw | None:
    tail = numbers.values >= x_min
    values, counts = numbers.values[tail], numbers.counts[tail]
    if len(values) < 2:
        return None
    size = int(counts.sum())
    mean_log = float(np.log(values) @ counts) / size

    def loss(exponent: float) -> float:  # -log likelihood of one number; convex in the exponent
        return float(np.log(zeta(exponent, x_min))) + exponent * mean_log

    from scipy.optimize import minimize_scalar  # The import takes 0.3 s, and few commands fit a power law.

    best = minimize_scalar(loss, bounds=(EXPONENT_MIN, EXPONENT_MAX), method="bounded", options={"xatol": 1e-9})
    exponent = float(best.x)
    if exponent > EXPONENT_MAX - 1e-3:
        return None
    # The Fisher information of one number is the second derivative of the log of the normalizing constant.
    step = min(1e-3, (exponent - 1) / 4)
    below, at, above = np.log(zeta(exponent + step * np.array([-1, 0, 1]), x_min))
    error = float(size * max(below - 2 * at + above, 1e-15) / step**2) ** -0.5
    return PowerLaw(exponent, error, x_min, size, _distance(exponent, x_min, values, counts))


def _distance(exponent: float, x_min: int, values: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> float:
    """Return the Kolmogorov-Smirnov distance of the law.

    The tail's CDF is flat between its values, so the difference is largest at a value or just before one.
    """
    at_least = np.cumsum(counts[::-1])[::-1] / counts.sum()
    norm = zeta(exponent, x_min)
    before = np.abs(at_least - zeta(exponent, values) / norm)
    beyond = np.append(at_least[1:], 0.0)
    at = np.abs(beyond - zeta(exponent, values + 1) / norm)
    return float(max(before.max(), at.max()))
