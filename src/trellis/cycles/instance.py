"""What a run in cycles is about: nodes, topics and who wants what, as arrays.

Nodes are numbered in the order of `sorted(names)`. Where the protocols let the smaller name win a tie, kernels let the
smaller number win.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.ring import places_of


class Wants(NamedTuple):
    """Interests in CSR form, both ways, and where everything is on the ring."""

    places: Any  # uint64[nodes]
    topic_places: Any  # uint64[topics]
    offsets: Any  # int64[nodes + 1]
    topics: Any  # uint16[subscriptions], or uint32 for many topics: of each node, ascending
    topic_offsets: Any  # int64[topics + 1]
    subscribers: Any  # uint32[subscriptions]: of each topic, ascending
    slots: Any  # int64[subscriptions]: the place of each of `subscribers` in `topics`
    rates: Any  # float64[topics], or empty: all topics count alike
    totals: Any  # float64[nodes]: rates of all topics of a node, or how many they are


@dataclass(frozen=True, eq=False)
class Instance:
    nodes: list[str]  # sorted
    topics: list[str]  # sorted
    wants: Wants

    @property
    def subscriptions(self) -> int:
        return len(self.wants.topics)


def make_instance(interests: Mapping[str, tuple[str, ...]], rates: Mapping[str, float] | None = None) -> Instance:
    """Return the arrays of `interests`, topics by node. A topic without a rate has rate 0."""
    nodes = sorted(interests)
    topics = sorted({topic for wanted in interests.values() for topic in wanted})
    number = {topic: place for place, topic in enumerate(topics)}
    sizes = np.array([len(interests[node]) for node in nodes], np.int64)
    listed = np.fromiter(
        (place for node in nodes for place in sorted(number[topic] for topic in interests[node])),
        np.uint16 if len(topics) <= 1 << 16 else np.uint32,  # short rows are in the cache more often
        int(sizes.sum()),
    )
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    by_topic = np.argsort(listed, kind="stable")
    popularity = np.bincount(listed, minlength=len(topics))
    weights = np.array([rates.get(topic, 0.0) for topic in topics] if rates is not None else [], np.float64)
    totals = np.array(sizes, np.float64)
    if rates is not None:
        totals = np.array([weights[listed[a:b]].sum() for a, b in pairwise(offsets)], np.float64)
    wants = Wants(
        places_of(nodes),
        places_of(topics),
        offsets,
        listed,
        np.concatenate([[0], np.cumsum(popularity)]).astype(np.int64),
        np.repeat(np.arange(len(nodes), dtype=np.uint32), sizes)[by_topic],
        by_topic.astype(np.int64),
        weights,
        totals,
    )
    return Instance(nodes, topics, wants)
