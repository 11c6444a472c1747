"""How few links a TCO of an instance can have: bounds that hold for every overlay."""

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
    """A number of links below which no overlay is a TCO. The greatest of three; (V, E) is any TCO.

    Span      Nodes that share a topic are connected in (V, E), hence so are all nodes that a chain of shared topics
              joins. With c such classes of nodes, |E| >= |V| - c. (So |E| >= |t.nodes| - 1 for each topic.)
    Trees     G(t) is connected, so it has at least |t.nodes| - 1 links. A link belongs to G(t) for the topics its
              ends share only, at most s_max: the most that any two nodes share. Counting the links of all G(t),
              s_max |E| >= sum_t (|t.nodes| - 1).
    Cover     Each topic of v that has another subscriber is shared with a neighbour of v. A neighbour shares at most
              s_v topics with v, the most that any node does, so deg(v) >= ceil(live topics of v / s_v).
              The degrees sum to 2 |E|.

    Where finding the s_v exactly costs more than `steps_max` steps (the sum over topics of subscribers squared), live
    topics of v, and for s_max the second largest number of live topics, stand in: no two nodes share more.
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
    """For each node the most topics that it shares with any other node."""
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
    """|V| less the number of classes of nodes that chains of shared topics join."""
    nodes, topics = len(interests.nodes), len(interests.topics)
    subscriptions = (interests.subscription_nodes, interests.node_topics + nodes)
    graph = sparse.coo_array((np.ones(interests.subscriptions, np.int8), subscriptions), shape=(nodes + topics,) * 2)
    _, label = connected_components(graph, directed=False)
    return nodes - len(np.unique(label[:nodes]))


@njit(cache=True, nogil=True)
def _most_shared(node_offsets, node_topics, topic_offsets, topic_nodes, begin, most):  # type: ignore[no-untyped-def]
    shared = np.zeros(len(node_offsets) - 1, np.int32)
    for place in range(len(most)):
        n = begin + place
        topics = node_topics[node_offsets[n] : node_offsets[n + 1]]
        for topic in topics:
            for m in topic_nodes[topic_offsets[topic] : topic_offsets[topic + 1]]:
                if m != n:
                    shared[m] += 1
                    most[place] = max(most[place], shared[m])
        for topic in topics:
            for m in topic_nodes[topic_offsets[topic] : topic_offsets[topic + 1]]:
                shared[m] = 0
