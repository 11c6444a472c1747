"""The parts that nodes play for topics, in cycles: a hash table from (node, topic) to the number of a part.

Membership trees and multicast trees have one part for each node in each tree. Parts are numbered as they come, and are
never removed: one that has ended can begin again. A table has room for a number of parts, and is made larger between
two steps of a run.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.jit import njit

_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


class Parts(NamedTuple):
    heads: Any  # int32, twice as many as parts at least: the number of a part; -1: free
    node: Any  # int32[parts]
    topic: Any  # int32[parts]
    used: Any  # int64[1]


def make_parts(room: int) -> Parts:
    """Return a table with room for `room` parts."""
    heads = 1 << max(4, (2 * room - 1).bit_length())
    return Parts(
        np.full(heads, -1, np.int32), np.empty(room, np.int32), np.empty(room, np.int32), np.zeros(1, np.int64)
    )


def more_parts(parts: Parts, room: int) -> Parts:
    """Return the same table with room for `room` parts."""
    found, used = make_parts(room), int(parts.used[0])
    found.node[:used], found.topic[:used], found.used[0] = parts.node[:used], parts.topic[:used], used
    fill_heads(found)
    return found


@njit(folder=True)
def fill_heads(parts):
    for part in range(parts.used[0]):
        parts.heads[head_of(parts, parts.node[part], parts.topic[part])] = part


@njit(folder=True)
def head_of(parts, node, topic):
    """Return where the part is in `heads`, or the free place where it belongs."""
    mixed = ((np.uint64(node) << _SHIFT) + np.uint64(topic)) * _MIX
    last = len(parts.heads) - 1
    at = np.int64(mixed >> _SHIFT) & last
    while True:
        part = parts.heads[at]
        if part < 0 or (parts.node[part] == node and parts.topic[part] == topic):
            return at
        at = (at + 1) & last


@njit(folder=True)
def find_part(parts, node, topic):
    """Return the number of a part, or -1."""
    return np.int64(parts.heads[head_of(parts, node, topic)])


@njit(folder=True)
def make_part(parts, node, topic):
    """Return the number of a part, and whether it is new."""
    at = head_of(parts, node, topic)
    part = np.int64(parts.heads[at])
    if part >= 0:
        return part, False
    part = parts.used[0]
    parts.heads[at], parts.node[part], parts.topic[part] = part, node, topic
    parts.used[0] = part + 1
    return part, True


@njit(folder=True)
def is_short(parts, margin):
    """Return whether there is room for fewer than `margin` further parts."""
    return parts.used[0] + margin > len(parts.node)
