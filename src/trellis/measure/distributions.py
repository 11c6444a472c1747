"""Describe how a whole number is distributed over nodes or topics: moments, percentiles, histogram, CCDF."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from trellis.model.interests import Interests
from trellis.model.overlay import Overlay

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, eq=False)
class Distribution:
    """Different values, ascending, and how often each occurs. Without any number, every measure is 0."""

    values: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, numbers: npt.ArrayLike) -> Distribution:
        values, counts = np.unique(np.asarray(numbers, np.int64), return_counts=True)
        return cls(values, counts.astype(np.int64))

    @cached_property
    def total(self) -> int:
        """Return how many numbers there are."""
        return int(self.counts.sum())

    @cached_property
    def sum(self) -> int:
        return int(self.values @ self.counts)

    @property
    def minimum(self) -> int:
        return int(self.values[0]) if self.total else 0

    @property
    def maximum(self) -> int:
        return int(self.values[-1]) if self.total else 0

    @property
    def mean(self) -> float:
        return self.sum / self.total if self.total else 0.0

    @property
    def variance(self) -> float:
        """Return the variance of the numbers themselves, not an estimate from a sample."""
        return self._moment(2)

    @property
    def standard_deviation(self) -> float:
        return self.variance**0.5

    @property
    def ccdf(self) -> npt.NDArray[np.float64]:
        """Return for each value the share of the numbers that are at least as large."""
        return np.cumsum(self.counts[::-1])[::-1] / max(self.total, 1)

    def percentile(self, percent: float) -> int:
        """Return the smallest of the numbers that at least `percent` % of the numbers do not exceed."""
        if not self.total:
            return 0
        wanted = min(max(percent / 100 * self.total, 1), self.total)
        return int(self.values[np.searchsorted(np.cumsum(self.counts), wanted, side="left")])

    def to_json(self) -> dict[str, Any]:
        return {
            "min": self.minimum,
            "mean": self.mean,
            "max": self.maximum,
            "standard_deviation": self.standard_deviation,
            **{f"p{percent}": self.percentile(percent) for percent in PERCENTILES},
            "histogram": {"values": self.values.tolist(), "counts": self.counts.tolist()},
        }

    def _moment(self, order: int) -> float:
        return float((self.values - self.mean) ** order @ self.counts) / max(self.total, 1)


def degrees(overlay: Overlay) -> Distribution:
    """Return the distribution of degrees. D(V, E) is its maximum, d(V, E) = 2|E|/|V| its mean."""
    return Distribution.of(overlay.degrees)


def subscription_sizes(interests: Interests) -> Distribution:
    """Return the distribution of |v.topics| over the nodes."""
    return Distribution.of(interests.sizes)


def popularity(interests: Interests) -> Distribution:
    """Return the distribution of |t.nodes| over the topics with subscribers. Interest tables list no others."""
    popular = interests.popularity
    return Distribution.of(popular[popular > 0])
