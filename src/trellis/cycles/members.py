"""Magnet's membership service in cycles: random samples of the subscribers of every topic.  [MG §3.4; A-MAG-17, -19]

The rules are those of `trellis.protocols.magnet.membership`, with samples that are truncated as written. A part keeps
the sample that it has last sent to its parent. One difference: a node that finds another parent is forgotten by the
former one at once, and not after three silent rounds.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below
from trellis.cycles.oscar import next_hop, owns
from trellis.cycles.parts import Parts, find_part, make_part, make_parts, more_parts
from trellis.jit import njit


class Members(NamedTuple):
    """The membership trees of all topics."""

    parts: Parts
    parent: Any  # int32[parts]; -1: none
    first: Any  # int32[parts]: the first child; -1: none
    following: Any  # int32[parts]: the next child of the same parent
    preceding: Any  # int32[parts]: the child before, or -1
    sibling: Any  # int32[parts]: the next part of the same node; -1: none
    is_live: Any  # bool[parts]: the node is in the tree now
    is_own: Any  # bool[parts]: the node subscribes, and has told its parent so
    size: Any  # int8[parts]: of the sample
    sample: Any  # int32[parts, k]: what was sent to the parent last
    firsts: Any  # int32[nodes]: the first part of a node; -1: none
    views: Any  # int32[topics, k]: the sample that home(t) has sent down last
    view_sizes: Any  # int8[topics]
    entries: Any  # int32[nodes]: scratch
    mark: Any  # int64[nodes]: scratch
    stamps: Any  # int64[2]: scratch: merged samples so far; and messages


def make_members(nodes: int, topics: int, size: int, room: int) -> Members:
    """Return a service that knows nobody. `size`: entries in a sample, k in the paper."""
    return Members(
        make_parts(room),
        np.full(room, -1, np.int32),
        np.full(room, -1, np.int32),
        np.full(room, -1, np.int32),
        np.full(room, -1, np.int32),
        np.full(room, -1, np.int32),
        np.zeros(room, np.bool_),
        np.zeros(room, np.bool_),
        np.zeros(room, np.int8),
        np.empty((room, size), np.int32),
        np.full(nodes, -1, np.int32),
        np.empty((topics, size), np.int32),
        np.zeros(topics, np.int8),
        np.empty(nodes, np.int32),
        np.zeros(nodes, np.int64),
        np.zeros(2, np.int64),
    )


def more_members(members: Members, room: int) -> Members:
    """Return the same service with room for `room` parts."""
    used = int(members.parts.used[0])
    made = make_members(len(members.firsts), len(members.views), members.sample.shape[1], room)
    for name in ("parent", "first", "following", "preceding", "sibling", "is_live", "is_own", "size", "sample"):
        getattr(made, name)[:used] = getattr(members, name)[:used]
    kept = {name: getattr(members, name) for name in ("firsts", "views", "view_sizes", "entries", "mark", "stamps")}
    return made._replace(parts=more_parts(members.parts, room), **kept)


@njit(folder=True)
def begin_part(members, node, topic):
    """Let a node that has a position now be in the tree of one of its topics. Return its part."""
    part, _ = take_part(members, node, topic)
    members.is_own[part] = True
    return part


@njit(folder=True)
def sampling_round(members, control, node, places, chance):
    """Let a node send its samples to its parents, and views down where it is the home."""
    part = np.int64(members.firsts[node])
    while part >= 0:
        following = np.int64(members.sibling[part])
        if members.is_live[part]:
            if members.first[part] < 0 and not members.is_own[part]:
                leave_parent(members, part)
                members.is_live[part] = False
            elif owns(control, node, places[members.parts.topic[part]]):
                leave_parent(members, part)
                topic = members.parts.topic[part]
                count = merge(members, part, chance)
                members.view_sizes[topic] = count
                members.views[topic, :count] = members.entries[:count]
            else:
                send_up(members, control, part, places, chance)
        part = following


@njit(folder=True)
def take_part(members, node, topic):
    """Return the part of a node in the tree of a topic, and whether the node was not in it before."""
    part, is_new = make_part(members.parts, node, topic)
    if is_new:
        members.sibling[part], members.firsts[node] = members.firsts[node], part
    was_live = members.is_live[part]
    members.is_live[part] = True
    return part, not was_live


@njit(folder=True)
def send_up(members, control, part, places, chance):
    """Send a merged sample to the parent. A parent that comes into the tree by this sends on at once."""
    while part >= 0:
        part = tell_parent(members, control, part, places, chance)


@njit(folder=True)
def tell_parent(members, control, part, places, chance):
    """Send a merged sample to the parent. Return the part of the parent if it comes into the tree by this, or -1."""
    node, topic = np.int64(members.parts.node[part]), np.int64(members.parts.topic[part])
    if owns(control, node, places[topic]):
        return np.int64(-1)
    hop = next_hop(control, node, places[topic])
    if hop < 0:
        hop = np.int64(control.after[node])
    count = merge(members, part, chance)
    if count == 0:
        return np.int64(-1)
    members.sample[part, :count] = members.entries[:count]
    members.size[part] = count
    members.stamps[1] += 1
    parent, is_new = np.int64(members.parent[part]), False
    if parent < 0 or members.parts.node[parent] != hop or not members.is_live[parent]:
        leave_parent(members, part)
        parent, is_new = take_part(members, hop, topic)
        members.parent[part], members.preceding[part] = parent, -1
        members.following[part] = members.first[parent]
        if members.first[parent] >= 0:
            members.preceding[members.first[parent]] = part
        members.first[parent] = part
    return parent if is_new else np.int64(-1)


@njit(folder=True)
def leave_parent(members, part):
    """Take a part from the children of its parent."""
    parent = members.parent[part]
    if parent < 0:
        return
    before, behind = members.preceding[part], members.following[part]
    if before >= 0:
        members.following[before] = behind
    else:
        members.first[parent] = behind
    if behind >= 0:
        members.preceding[behind] = before
    members.parent[part] = -1


@njit(folder=True)
def merge(members, part, chance):
    """Put at most k entries of the children's samples and the node itself into `entries`. Return their number."""
    entries, mark, count = members.entries, members.mark, 0
    members.stamps[0] += 1
    stamp = members.stamps[0]
    if members.is_own[part]:
        node = members.parts.node[part]
        entries[0], mark[node], count = node, stamp, 1
    child = np.int64(members.first[part])
    while child >= 0:
        for place in range(members.size[child]):
            node = members.sample[child, place]
            if mark[node] != stamp:
                mark[node], entries[count] = stamp, node
                count += 1
        child = np.int64(members.following[child])
    size = members.sample.shape[1]
    if count <= size:
        return count
    for place in range(size):
        other = place + below(chance, count - place)
        entries[place], entries[other] = entries[other], entries[place]
    return size


@njit(folder=True)
def asked_sample(members, home, topic, chance):
    """Put the sample that a home answers with into `entries`, and return its size (A-MAG-19)."""
    part = find_part(members.parts, home, topic)
    return merge(members, part, chance) if part >= 0 and members.is_live[part] else 0
