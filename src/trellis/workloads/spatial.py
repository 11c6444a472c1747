"""Generate users on a square who subscribe to what is near.  [Magnet 4.3; Wong et al.; E-5]

The square does not wrap around at its border (E-5). Topic i belongs to user i, so both have the same number. A user
also subscribes to its own topic.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from trellis.model.interests import Interests
from trellis.workloads.configs import Spatial
from trellis.workloads.generate import numbered, uniform_numbers

Floats = npt.NDArray[np.float64]


def generate_spatial(config: Spatial, seed: int | str) -> Interests:
    """Return the workload as an instance."""
    pairs = near_pairs(config, points(config, seed))
    own = np.arange(config.nodes)
    return Interests.from_ids(
        numbered("n", config.nodes),
        numbered("t", config.nodes),
        np.concatenate([own, pairs[:, 0], pairs[:, 1]]),
        np.concatenate([own, pairs[:, 1], pairs[:, 0]]),
    )


def points(config: Spatial, seed: int | str) -> Floats:
    """Return the position of each user on the unit square."""
    return uniform_numbers(seed, "points", 0, config.nodes, per_node=2)


def near_pairs(config: Spatial, at: Floats) -> npt.NDArray[np.int64]:
    """Return the pairs of users within the radius of each other, each pair once."""
    if config.radius is not None:
        pairs, squared = _within(at, config.radius)
        return pairs[squared <= config.radius * config.radius]
    # A mean of t means n t subscriptions: n own topics, and two for each pair. So the radius for this mean is the
    # distance of the last pair when exactly that many nearest pairs are taken.
    wanted = round(config.nodes * (config.target_mean - 1) / 2)
    if wanted == 0:
        return np.empty((0, 2), np.int64)
    reach = math.sqrt(config.target_mean / (math.pi * config.nodes))  # exact except at the border
    pairs, squared = _within(at, reach)
    while len(pairs) < wanted:
        reach *= 1.2
        pairs, squared = _within(at, reach)
    farthest = float(np.partition(squared, wanted - 1)[wanted - 1])
    return pairs[squared <= farthest]


def _within(at: Floats, radius: float) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return pairs at most `radius` apart (a little more, for rounding), and their squared distances."""
    found = cKDTree(at).query_pairs(radius * (1 + 1e-9), output_type="ndarray")
    pairs: npt.NDArray[np.int64] = found.astype(np.int64)
    squared: Floats = ((at[pairs[:, 0]] - at[pairs[:, 1]]) ** 2).sum(axis=1)
    return pairs, squared
