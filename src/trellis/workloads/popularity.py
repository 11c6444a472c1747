"""How likely each topic and each subscription size is to be drawn.

Weights are kept as logarithms, so that no skew, however steep, makes a topic impossible.
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
    """What `kernels.draw_topics` draws from: row s is for a category of the smallest size plus s."""

    bounds: npt.NDArray[np.int64]
    keep: Floats
    other: npt.NDArray[np.int64]
    log_weight: Floats


def log_weights(config: Uniform | Zipf | Exponential) -> Floats:
    """For each topic, most popular first, the logarithm of its weight."""
    rank: Floats = np.arange(1.0, config.topics + 1)
    match config:
        case Uniform():
            return np.zeros(config.topics)
        case Zipf():
            return -config.alpha * np.log(rank)
        case Exponential():
            return rank * -exponential_rate(config)


def exponential_rate(config: Exponential) -> float:
    """The c for which the weights exp(-c i) give the top topics their share of the draws."""
    top, topics = config.top_topics, config.topics

    def surplus(c: float) -> float:
        # The sums of both geometric series; even shares in the limit c = 0.
        return (np.expm1(-c * top) / np.expm1(-c * topics) if c else top / topics) - config.share

    if topics == 1 or surplus(0.0) >= 0:
        return 0.0
    steepest = 1.0
    while surplus(steepest) < 0:
        steepest *= 2
    from scipy.optimize import brentq  # 0.3 s to import, and only exponential popularity needs it

    return float(brentq(surplus, 0.0, steepest, xtol=1e-15))


def even_bounds(topics: int, parts: int) -> npt.NDArray[np.int64]:
    """Where each of `parts` runs of topics begins, and the end; their sizes differ by one at most."""
    return np.arange(parts + 1, dtype=np.int64) * topics // parts


def tables_of(config: Uniform | Zipf | Exponential | Multimodal) -> Tables:
    if isinstance(config, Multimodal):
        bounds = even_bounds(config.topics, config.b_n)
        smallest = config.topics // config.b_n
        ranks = np.log(np.arange(1, smallest + 2))
        return category_tables(bounds, [-config.alpha * ranks[:-1], -config.alpha * ranks])
    return weight_tables(log_weights(config))


def weight_tables(log_weight: Floats) -> Tables:
    """Tables for all topics as one category."""
    return category_tables(np.array([0, len(log_weight)], np.int64), [log_weight])


def category_tables(bounds: npt.NDArray[np.int64], log_weight_of_size: list[Floats]) -> Tables:
    shape = len(log_weight_of_size), max(len(weights) for weights in log_weight_of_size)
    tables = Tables(bounds, np.zeros(shape), np.zeros(shape, np.int64), np.full(shape, -np.inf))
    for row, log_weight in enumerate(log_weight_of_size):
        weights = np.exp(log_weight - log_weight.max())
        count = len(weights)
        alias_table(weights, tables.keep[row, :count], tables.other[row, :count])
        tables.log_weight[row, :count] = log_weight - log_weight.max() - np.log(weights.sum())
    return tables


def sizes_from(sizes: Sizes, uniform: Floats) -> npt.NDArray[np.int64]:
    """The subscription size that each uniform number of [0, 1) stands for."""
    span = sizes.high - sizes.low + 1
    if sizes.shape == "uniform":
        return sizes.low + (uniform * span).astype(np.int64)
    # Relative to the smallest size, so that a steep power law does not vanish altogether.
    weights = (np.arange(sizes.low, sizes.high + 1) / sizes.low) ** -sizes.exponent
    reached = np.cumsum(weights) / weights.sum()
    reached[-1] = 1.0
    return sizes.low + np.searchsorted(reached, uniform, side="right")
