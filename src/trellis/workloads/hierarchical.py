"""Generate HIERARCHICAL-TOPICS: preferential attachment among topics that are leaves of a binary tree.  [Magnet 4.4]

Readings: a0 is the exponent of popularity values, so by rank the initial weights fall as i^(-1/(a0 - 1)) (E-4). They
are assigned to the leaves at random. The distance of two topics is the height of their lowest common ancestor (E-6).
Every topic starts with one random peer, and a peer without a topic gets one. Both count inside Z * initFrac (E-7). That
may be less than one topic per peer or one peer per topic. Then more than initFrac of the subscriptions are random, and
the mean may end a little above Z if Z is close to 1. `Grown.initial_share` tells how many were random.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trellis.errors import InputError
from trellis.model.interests import Interests
from trellis.workloads import kernels
from trellis.workloads.configs import Hierarchical
from trellis.workloads.generate import base_of, numbered
from trellis.workloads.popularity import weight_tables

ATTEMPTS_PER_SUBSCRIPTION = 1000  # An attempt fails if the peer already has the topic.


def generate_hierarchical(config: Hierarchical, seed: int | str) -> Interests:
    """Return the workload as an instance."""
    grown = grow(config, seed)
    return Interests.from_ids(numbered("n", config.nodes), numbered("t", config.topics), grown.nodes, grown.topics)


class Grown(NamedTuple):
    """The node and the topic of each subscription, in the order in which they are made."""

    nodes: npt.NDArray[np.int64]
    topics: npt.NDArray[np.int64]
    drawn: int  # the first subscriptions: one of each topic, then by popularity
    begun: int  # these, and the home topics of peers that had none

    @property
    def initial_share(self) -> float:
        """Return the share of subscriptions that do not follow from others, which is what initFrac asks for."""
        return self.begun / max(1, len(self.nodes))


def grow(config: Hierarchical, seed: int | str) -> Grown:
    """Make the subscriptions one by one."""
    total = round(config.z * config.nodes)
    initial = max(round(total * config.init_frac), config.topics)
    tables = weight_tables(-np.log(np.arange(1, config.topics + 1)) / (config.alpha0 - 1))
    distance = np.arange(config.topics.bit_length() - 1)  # x - 1 for each distance x
    weights = np.exp(-config.lambda_ * distance)
    distance_cdf = np.cumsum(weights) / weights.sum()
    distance_cdf[-1] = 1.0
    node_of, topic_of = np.empty((2, max(total, initial + config.nodes)), np.int64)
    with np.errstate(over="ignore"):
        drawn, begun, count = kernels.grow_hierarchy(
            base_of(seed, "hierarchy"),
            config.nodes,
            tables.keep[0],
            tables.other[0],
            distance_cdf,
            initial,
            total,
            ATTEMPTS_PER_SUBSCRIPTION * total + 1_000_000,
            node_of,
            topic_of,
        )
    if count < initial:
        raise InputError(
            f"--alpha0 {config.alpha0:g} --init-frac {config.init_frac:g}",
            "all nodes have the popular topics, and hardly any other is drawn",
            "raise the first or lower the second",
        )
    if count < total:
        raise InputError(
            f"--lambda {config.lambda_:g} --z {config.z:g}",
            "the topics near those of a node are used up before the mean is reached",
            "lower either, or give more topics",
        )
    return Grown(node_of[:count], topic_of[:count], drawn, begun)
