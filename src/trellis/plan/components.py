"""Compute the TC-components of an overlay, slot by slot, and links that join them.  [OMen §2; SH III]

A *slot* is one (node, topic) of the interests in CSR form. Two slots of a topic are in the same TC-component if their
nodes are connected through nodes of that topic. Each slot gets the number of one slot that stands for its TC-component.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from trellis.jit import njit
from trellis.model.interests import OffsetArray
from trellis.model.names import IdArray


def tc_components(offsets: OffsetArray, topics: IdArray, u: IdArray, v: IdArray) -> tuple[IdArray, IdArray]:
    """Return for each slot the slot that stands for its TC-component, and the contribution of each link (u, v)."""
    component = np.arange(len(topics), dtype=np.int32)
    gains = np.zeros(len(u), np.int32)
    _link_all(offsets, topics, np.asarray(u, np.int32), np.asarray(v, np.int32), component, gains)
    return component, gains


@njit(cache=True)
def _link_all(offsets, topics, u, v, parent, gains):
    for link in range(len(u)):
        gains[link] = _link(offsets, topics, parent, u[link], v[link])
    for slot in range(len(parent)):
        parent[slot] = _root(parent, slot)


@njit(cache=True)
def join_at_random(offsets, topics, parent, topic_start, slot_at, node_at, draws, u, v, gains):
    """Link, topic by topic, each node that is not yet connected with those before it to one of them.

    slot_at, node_at  the slots of each topic and their nodes, from topic_start[t] on, in random order
    draws             32 random bits for each of them, which choose one of those before it
    """
    links = 0
    for topic in range(len(topic_start) - 1):
        first = topic_start[topic]
        for at in range(first + 1, topic_start[topic + 1]):
            if _root(parent, slot_at[at]) != _root(parent, slot_at[first]):
                u[links], v[links] = node_at[first + draws[at] * (at - first) // 2**32], node_at[at]
                gains[links] = _link(offsets, topics, parent, u[links], v[links])
                links += 1
    return links


@njit(cache=True)
def _link(offsets, topics, parent, first, second):
    """Join the TC-components of both ends in all topics that they share. Return how many were joined."""
    gain, a, b = 0, offsets[first], offsets[second]
    while a < offsets[first + 1] and b < offsets[second + 1]:
        if topics[a] < topics[b]:
            a += 1
        elif topics[a] > topics[b]:
            b += 1
        else:
            low, high = _root(parent, a), _root(parent, b)
            if low != high:
                parent[max(low, high)] = min(low, high)
                gain += 1
            a += 1
            b += 1
    return gain


@njit(cache=True)
def _root(parent, slot):
    while parent[slot] != slot:
        parent[slot] = parent[parent[slot]]  # path halving
        slot = np.int64(parent[slot])
    return slot
