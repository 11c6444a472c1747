"""Compute lower bounds of the number of links of a TCO."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from trellis.jit import njit
from trellis.measure.similarity import STEPS_MAX
from trellis.measure.threads import in_threads, split_evenly
from trellis.model.interests import Interests


def links_lower_bound(interests: Interests, *, steps_max: int = STEPS_MAX) -> int:
    """Return a number of links that every TCO of the instance has at least. It is the largest of three bounds.

    Let (V, E) be any TCO.

    Span      Nodes that share a topic are connected in (V, E), and so are all nodes that a chain of shared topics
              joins. With c such classes of nodes, |E| >= |V| - c. (So |E| >= |t.nodes| - 1 for each topic.)
    Trees     G(t) is connected, so it has at least |t.nodes| - 1 links. A link belongs to G(t) only for the topics that
              its ends share. These are at most s_max, the most topics that any two nodes share. Summing the links of
              all G(t), s_max |E| >= sum_t (|t.nodes| - 1).
    Cover     Each topic of v with another subscriber is shared with a neighbor of v. A neighbor shares at most s_v
              topics with v, where s_v is the maximum over all nodes. So deg(v) >= ceil(live topics of v / s_v), where
              live topics have another subscriber. The degrees sum to 2 |E|.

    Computing s_v exactly may cost more than `steps_max` steps (the sum over topics of subscribers squared). Then the
    number of live topics of v is used instead of s_v, and the second largest such number instead of s_max: no two nodes
    share more.
    """
    popularity = interests.popularity
    live = np.diff(np.concatenate([[0], np.cumsum(popularity[interests.node_topics] > 1)])[interests.node_offsets])
    if not np.any(live):
        return 0
    missing = int(np.sum(popularity[popularity > 1] - 1))
    if int(np.sum(popularity**2)) <= steps_max:
        shared = most_shared(interests)
        shared_max = int(shared.max())
    else:
        shared = live
        shared_max = int(np.partition(live, -2)[-2])
    degrees = -(-live // np.maximum(shared, 1))
    return max(_span(interests), -(-missing // shared_max), -(-int(degrees.sum()) // 2))


def most_shared(interests: Interests) -> npt.NDArray[np.int64]:
    """Return for each node the most topics that it shares with any other node."""
    popular = np.concatenate([[0], np.cumsum(interests.popularity[interests.node_topics])])
    steps = np.diff(popular[interests.node_offsets])
    most = np.zeros(len(interests.nodes), np.int64)
    bounds, costs = split_evenly(steps + 1, part_cost=1 << 24, parts_max=1024)

    def measure(_: int, begin: int, end: int) -> None:
        _most_shared(
            interests.node_offsets,
            interests.node_topics,
            interests.topic_offsets,
            interests.topic_nodes,
            begin,
            most[begin:end],
        )

    in_threads(measure, bounds, costs)
    return most


def _span(interests: Interests) -> int:
    """Return |V| minus the number of classes of nodes that chains of shared topics join."""
    nodes, topics = len(interests.nodes), len(interests.topics)
    subscriptions = (interests.subscription_nodes, interests.node_topics + nodes)
    graph = sparse.coo_array((np.ones(interests.subscriptions, np.int8), subscriptions), shape=(nodes + topics,) * 2)
    _, label = connected_components(graph, directed=False)
    return nodes - len(np.unique(label[:nodes]))


@njit(cache=True, nogil=True)
def _most_shared(node_offsets, node_topics, topic_offsets, topic_nodes, begin, most):  # type: ignore[no-untyped-def]
    shared = np.zeros(len(node_offsets) - 1, np.int32)
    for index in range(len(most)):
        n = begin + index
        topics = node_topics[node_offsets[n] : node_offsets[n + 1]]
        for topic in topics:
            for m in topic_nodes[topic_offsets[topic] : topic_offsets[topic + 1]]:
                if m != n:
                    shared[m] += 1
                    most[index] = max(most[index], shared[m])
        for topic in topics:
            for m in topic_nodes[topic_offsets[topic] : topic_offsets[topic + 1]]:
                shared[m] = 0
