"""Set how often each topic is published on: all alike, or by a power law.

[Magnet 4.2: alpha 0.75, by popularity; Vitis IV-D: 0.3 to 3, in random order]
"""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from trellis import ids
from trellis.model.interests import Interests
from trellis.workloads.checks import check_at_least, check_choice, check_count

MODELS = ("uniform", "powerlaw")
ORDERS = ("popularity", "random")


def rates(
    of: Interests | int,
    model: str = "powerlaw",
    *,
    alpha: float = 0.75,
    order: str = "popularity",
    seed: int | str = 0,
) -> npt.NDArray[np.float64]:
    """Return the rate of each topic, with mean 1, for `Interests.rates`.

    of     the interests, or a number of topics that are already numbered by popularity
    model  uniform: all 1; powerlaw: the i-th topic's rate is proportional to i^-alpha. A higher alpha puts more of
           the messages on fewer topics; at 3 nearly all are on one.
    order  which topic is the i-th: the i-th most popular one (Magnet), or the i-th in random order (Vitis)
    """
    check_choice("rates", model, MODELS)
    check_choice("rate-order", order, ORDERS)
    check_at_least("rate-alpha", alpha, 0)
    topics = of if isinstance(of, int) else len(of.topics)
    if isinstance(of, int):
        check_count("topics", of)
    if model == "uniform":
        return np.ones(topics)
    falling = np.arange(1, topics + 1) ** -float(alpha)
    out = np.empty(topics)
    out[_ranked(of, order, seed)] = falling * (topics / falling.sum())
    return out


def _ranked(of: Interests | int, order: str, seed: int | str) -> npt.NDArray[np.int64]:
    """Return the topics from the highest rate to the lowest."""
    if order == "random":
        topics = list(range(of if isinstance(of, int) else len(of.topics)))
        random.Random(ids.stream(seed, "workload", "rates")).shuffle(topics)
        return np.array(topics)
    if isinstance(of, int):
        return np.arange(of)
    return np.argsort(-of.popularity, kind="stable")
