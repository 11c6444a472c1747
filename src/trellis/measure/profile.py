"""Profile an instance: its size, its skew, and how similar its nodes are. `trellis profile` prints the result."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trellis.measure import similarity as alike
from trellis.measure.distributions import Distribution, popularity, subscription_sizes
from trellis.measure.fairness import gini
from trellis.measure.powerlaw import CcdfSlope, PowerLaw, ccdf_slope, fit_power_law
from trellis.measure.threads import Progress
from trellis.model.interests import Interests


@dataclass(frozen=True, eq=False)
class Skew:
    """A distribution, its inequality, and how its tail falls (None if it has none)."""

    distribution: Distribution
    gini: float
    power_law: PowerLaw | None
    ccdf_slope: CcdfSlope | None

    @classmethod
    def of(cls, distribution: Distribution) -> Skew:
        return cls(
            distribution,
            gini(np.repeat(distribution.values, distribution.counts)),
            fit_power_law(distribution),
            ccdf_slope(distribution),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **self.distribution.to_json(),
            "gini": self.gini,
            "power_law": None if self.power_law is None else asdict(self.power_law),
            "ccdf_slope": None if self.ccdf_slope is None else asdict(self.ccdf_slope),
        }


@dataclass(frozen=True)
class Rates:
    """Publication rates of the topics."""

    min: float
    mean: float
    max: float
    gini: float


@dataclass(frozen=True, eq=False)
class Profile:
    """The profile of an instance."""

    nodes: int
    topics: int  # topics with subscribers
    subscriptions: int
    sizes: Skew  # topics per node
    popularity: Skew  # nodes per topic
    rates: Rates | None  # None: all are equal
    similarity: alike.Similarity | None  # None: not requested

    def to_json(self) -> dict[str, Any]:
        """Return plain Python values, ready for `json.dumps`."""
        return {
            "nodes": self.nodes,
            "topics": self.topics,
            "subscriptions": self.subscriptions,
            "sizes": self.sizes.to_json(),
            "popularity": self.popularity.to_json(),
            "rates": None if self.rates is None else asdict(self.rates),
            "similarity": None
            if self.similarity is None
            else {
                "measured": self.similarity.measured,
                "seed": self.similarity.seed,
                "mean": self.similarity.mean,
                "tdi": self.similarity.top_intersection.tolist(),
                "histogram": self.similarity.histogram.tolist(),
            },
        }


def profile(
    interests: Interests,
    *,
    similarity: bool = True,
    d: int = alike.D,
    sample: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Profile:
    """Measure an instance. Similarity takes most of the time; see `similarity.sample_within` for large instances."""
    return Profile(
        nodes=len(interests.nodes),
        topics=int(np.count_nonzero(interests.popularity)),
        subscriptions=interests.subscriptions,
        sizes=Skew.of(subscription_sizes(interests)),
        popularity=Skew.of(popularity(interests)),
        rates=_rates(interests),
        similarity=alike.similarity(interests, d_max=d, sample=sample, seed=seed, progress=progress)
        if similarity
        else None,
    )


def _rates(interests: Interests) -> Rates | None:
    rates = interests.rates
    if rates is None or not len(rates):
        return None
    return Rates(float(rates.min()), float(rates.mean()), float(rates.max()), gini(rates))
