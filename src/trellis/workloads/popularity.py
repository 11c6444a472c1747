"""Compute how likely each topic and each subscription size is to be drawn.

Weights are kept as logarithms, so that even a steep skew makes no topic impossible.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trellis.workloads.configs import Exponential, Multimodal, Uniform, Zipf
from trellis.workloads.kernels import alias_table
from trellis.workloads.sizes import Sizes

Floats = npt.NDArray[np.float64]


class Tables(NamedTuple):
    """The tables from which `kernels.draw_topics` draws. Row s is for a category of the smallest size plus s."""

    bounds: npt.NDArray[np.int64]
    keep: Floats
    other: npt.NDArray[np.int64]
    log_weight: Floats


def log_weights(config: Uniform | Zipf | Exponential) -> Floats:
    """Return the logarithm of the weight of each topic, most popular first."""
    rank: Floats = np.arange(1.0, config.topics + 1)
    match config:
        case Uniform():
            return np.zeros(config.topics)
        case Zipf():
            return -config.alpha * np.log(rank)
        case Exponential():
            return rank * -exponential_rate(config)


def exponential_rate(config: Exponential) -> float:
    """Return the c with which the weights exp(-c i) give the top topics their share of the draws."""
    top, topics = config.top_topics, config.topics

    def surplus(c: float) -> float:
        # The sums of both geometric series. In the limit c = 0 all shares are equal.
        return (np.expm1(-c * top) / np.expm1(-c * topics) if c else top / topics) - config.share

    if topics == 1 or surplus(0.0) >= 0:
        return 0.0
    steepest = 1.0
    while surplus(steepest) < 0:
        steepest *= 2
    from scipy.optimize import brentq  # The import takes 0.3 s, and only exponential popularity needs it.

    return float(brentq(surplus, 0.0, steepest, xtol=1e-15))


def even_bounds(topics: int, parts: int) -> npt.NDArray[np.int64]:
    """Return where each of `parts` groups of consecutive topics begins, and the end.

    Their sizes differ by at most one.
    """
    return np.arange(parts + 1, dtype=np.int64) * topics // parts


def tables_of(config: Uniform | Zipf | Exponential | Multimodal) -> Tables:
    """Return the tables of a configuration."""
    if isinstance(config, Multimodal):
        bounds = even_bounds(config.topics, config.b_n)
        smallest = config.topics // config.b_n
        ranks = np.log(np.arange(1, smallest + 2))
        return category_tables(bounds, [-config.alpha * ranks[:-1], -config.alpha * ranks])
    return weight_tables(log_weights(config))


def weight_tables(log_weight: Floats) -> Tables:
    """Return tables with all topics in one category."""
    return category_tables(np.array([0, len(log_weight)], np.int64), [log_weight])


def category_tables(bounds: npt.NDArray[np.int64], log_weight_of_size: list[Floats]) -> Tables:
    """Return the tables of categories. The s-th weights are those of a category of the smallest size plus s."""
    shape = len(log_weight_of_size), max(len(weights) for weights in log_weight_of_size)
    tables = Tables(bounds, np.zeros(shape), np.zeros(shape, np.int64), np.full(shape, -np.inf))
    for row, log_weight in enumerate(log_weight_of_size):
        weights = np.exp(log_weight - log_weight.max())
        count = len(weights)
        alias_table(weights, tables.keep[row, :count], tables.other[row, :count])
        tables.log_weight[row, :count] = log_weight - log_weight.max() - np.log(weights.sum())
    return tables


def sizes_from(sizes: Sizes, uniform: Floats) -> npt.NDArray[np.int64]:
    """Return the subscription size for each uniform number in [0, 1)."""
    span = sizes.high - sizes.low + 1
    if sizes.shape == "uniform":
        return sizes.low + (uniform * span).astype(np.int64)
    # Relative to the smallest size, so that weights of a steep power law do not all become 0.
    weights = (np.arange(sizes.low, sizes.high + 1) / sizes.low) ** -sizes.exponent
    reached = np.cumsum(weights) / weights.sum()
    reached[-1] = 1.0
    return sizes.low + np.searchsorted(reached, uniform, side="right")
