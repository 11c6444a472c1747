"""Build simple topic-connected overlays for comparison: ring, star, random.

They take the nodes by rank (`trellis.plan.ties`) and the topics in the order of their names. So they depend only on
names and seed. They return each link once, topic by topic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trellis.model.interests import OffsetArray
from trellis.model.names import IdArray
from trellis.plan.components import join_at_random

Links = tuple[IdArray, IdArray]


def ring(offsets: OffsetArray, topics: IdArray, topic_count: int) -> Links:
    """Build RingPT: for each topic, a ring of its nodes in the order of their keys.  [SC §3.9.2]

    The keys take the place of the paper's identifiers. Two nodes have one link. Links that several rings have in common
    are merged.
    """
    slot_at, node_at, start = _by_topic(offsets, topics, topic_count)
    topic_at = topics[slot_at]
    last = start[topic_at + 1] - 1
    nth = np.arange(len(node_at))
    following = np.where(nth < last, nth + 1, start[topic_at])  # The last node closes the ring,
    linked = (nth < last) | (last - start[topic_at] > 1)  # if that is a link of its own.
    return _each_once(len(offsets) - 1, node_at[linked], node_at[following[linked]])


def star(offsets: OffsetArray, topics: IdArray, topic_count: int) -> Links:
    """Link, for each topic, all its nodes to the one with the smallest key."""
    slot_at, node_at, start = _by_topic(offsets, topics, topic_count)
    hub = node_at[start[topics[slot_at]]]
    return _each_once(len(offsets) - 1, hub[hub != node_at], node_at[hub != node_at])


def random(
    offsets: OffsetArray,
    topics: IdArray,
    topic_count: int,
    component: IdArray,
    node_keys: npt.NDArray[np.uint64],
    topic_keys: npt.NDArray[np.uint64],
) -> Links:
    """Add random links that contribute, until all topics are connected.

    The nodes of each topic come in random order. Each node that is not connected with those before it is linked to one
    of them, all equally likely. So every link contributes. The order and the draws are hashes of both keys, and do not
    depend on other nodes and topics.
    """
    slot_at, node_at, start = _by_topic(offsets, topics, topic_count)
    chance = _mix(_mix(node_keys[node_at]) ^ topic_keys[topics[slot_at]])
    order = np.lexsort((chance, topics[slot_at]))
    slot_at, node_at, chance = slot_at[order], node_at[order], chance[order]
    draws = (_mix(chance) >> np.uint64(32)).astype(np.int64)
    u, v = np.empty((2, len(topics)), np.int32)
    gains = np.empty(len(topics), np.int32)
    links = join_at_random(offsets, topics, component.copy(), start, slot_at, node_at, draws, u, v, gains)
    return np.minimum(u[:links], v[:links]), np.maximum(u[:links], v[:links])


def _by_topic(offsets: OffsetArray, topics: IdArray, topic_count: int) -> tuple[IdArray, IdArray, OffsetArray]:
    """Return slots and their nodes by topic, ascending, and where each topic starts."""
    slot_at = np.argsort(topics, kind="stable").astype(np.int32)
    owner = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    start = np.zeros(topic_count + 1, np.int64)
    np.cumsum(np.bincount(topics, minlength=topic_count), out=start[1:])
    return slot_at, owner[slot_at], start


def _each_once(nodes: int, u: IdArray, v: IdArray) -> Links:
    """Return each pair once as (i, j), i < j, in the order of first appearance."""
    i, j = np.minimum(u, v), np.maximum(u, v)
    _, first = np.unique(i.astype(np.int64) * nodes + j, return_index=True)
    first.sort()
    return i[first], j[first]


def _mix(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return SplitMix64 of the words: 64 bits that look independent of the given ones."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
