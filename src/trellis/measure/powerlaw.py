"""Does a tail fall like a power law, and how steeply?  [Magnet Fig. 7; Vitis Fig. 8; Clauset, Shalizi, Newman 2009]

Two readings of "exponent", never to be mixed up (Magnet Fig. 7 does not say which):

    the exponent    a of P(X = x) ~ x^-a for whole x >= x_min, by maximum likelihood
    the slope       of log P(X >= x) over log x, by least squares; a power law of exponent a has about 1 - a
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import zeta

from trellis.measure.distributions import Distribution

EXPONENT_MIN, EXPONENT_MAX = 1.0 + 1e-6, 25.0  # steeper than the latter no tail of ours is a power law
TAIL_MIN = 10  # numbers in a tail, below which no x_min is tried
CANDIDATES_MAX = 200  # values of x_min tried; with more different values, evenly spread over their ranks


@dataclass(frozen=True)
class PowerLaw:
    exponent: float
    error: float  # standard error of the exponent
    x_min: int  # where the tail begins
    tail: int  # numbers in it
    distance: float  # Kolmogorov-Smirnov: greatest difference between the tail's CDF and the law's

    @property
    def is_near(self) -> bool:
        """Near enough to be worth a line in a picture: a rule of thumb, no test."""
        return self.distance < 0.1


@dataclass(frozen=True)
class CcdfSlope:
    slope: float
    r_squared: float
    decades: float  # how far the values reach, as a power of ten


def fit_power_law(numbers: Distribution, x_min: int | None = None) -> PowerLaw | None:
    """Discrete maximum likelihood; without `x_min`, the one whose fit is nearest to the tail it leaves.

    None where there is nothing to fit: a tail of fewer than two different positive values, or one that falls faster
    than any power law up to the exponent 25.
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
    """Least squares through the points (log x, log P(X >= x)), one for each different value from `x_min` on.

    None with fewer than two different values.
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

    from scipy.optimize import minimize_scalar  # imported here: it takes 0.3 s, and few commands fit a power law

    best = minimize_scalar(loss, bounds=(EXPONENT_MIN, EXPONENT_MAX), method="bounded", options={"xatol": 1e-9})
    exponent = float(best.x)
    if exponent > EXPONENT_MAX - 1e-3:
        return None
    # The Fisher information of one number is the second derivative of the log of the normalising constant.
    step = min(1e-3, (exponent - 1) / 4)
    below, at, above = np.log(zeta(exponent + step * np.array([-1, 0, 1]), x_min))
    error = float(size * max(below - 2 * at + above, 1e-15) / step**2) ** -0.5
    return PowerLaw(exponent, error, x_min, size, _distance(exponent, x_min, values, counts))


def _distance(exponent: float, x_min: int, values: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> float:
    """The tail's CDF is flat between its values, so the difference is greatest at a value or just before one."""
    at_least = np.cumsum(counts[::-1])[::-1] / counts.sum()
    norm = zeta(exponent, x_min)
    before = np.abs(at_least - zeta(exponent, values) / norm)
    beyond = np.append(at_least[1:], 0.0)
    at = np.abs(beyond - zeta(exponent, values + 1) / norm)
    return float(max(before.max(), at.max()))
