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

# A part is one record of 32 bytes. A round reads and writes most of it, and parts are far from each other in memory.
PART = np.dtype(
    [
        ("topic", np.int32),
        ("parent", np.int32),  # its part; -1: none. A parent is live, since it has a child.
        ("hop", np.int32),  # its node
        ("first", np.int32),  # the first child; -1: none
        ("following", np.int32),  # the next child of the same parent; -1: none
        ("preceding", np.int32),  # the child before; -1: none
        ("sibling", np.int32),  # the next part of the same node; -1: none
        ("is_live", np.bool_),  # The node is in the tree now.
        ("is_own", np.bool_),  # The node subscribes, and has told its parent so.
        ("size", np.int8),  # of the sample
        ("free", np.int8),  # nothing: it fills the record
    ]
)


class Members(NamedTuple):
    """The membership trees of all topics."""

    parts: Parts
    table: Any  # PART[parts]
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
        np.zeros(room, PART),
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
    made.table[:used], made.sample[:used] = members.table[:used], members.sample[:used]
    kept = {name: getattr(members, name) for name in ("firsts", "views", "view_sizes", "entries", "mark", "stamps")}
    return made._replace(parts=more_parts(members.parts, room), **kept)


@njit(folder=True)
def begin_part(members, node, topic):
    """Let a node that has a position now be in the tree of one of its topics. Return its part."""
    part, _ = take_part(members, node, topic)
    members.table[part].is_own = True
    return part


@njit(folder=True)
def sampling_round(members, control, node, places, chance):
    """Let a node send its samples to its parents, and views down where it is the home."""
    part = np.int64(members.firsts[node])
    while part >= 0:
        row = members.table[part]
        following = np.int64(row.sibling)
        if row.is_live:
            if row.first < 0 and not row.is_own:
                leave_parent(members, part)
                row.is_live = False
            elif owns(control, node, places[row.topic]):
                leave_parent(members, part)
                count = merge(members, part, node, chance)
                members.view_sizes[row.topic] = count
                members.views[row.topic, :count] = members.entries[:count]
            else:
                send_up(members, control, part, places, chance)
        part = following


@njit(folder=True)
def take_part(members, node, topic):
    """Return the part of a node in the tree of a topic, and whether the node was not in it before."""
    part, is_new = make_part(members.parts, node, topic)
    row = members.table[part]
    if is_new:
        row.topic = topic
        row.parent = row.first = row.following = row.preceding = -1
        row.sibling, members.firsts[node] = members.firsts[node], part
    was_live = row.is_live
    row.is_live = True
    return part, not was_live


@njit(folder=True)
def send_up(members, control, part, places, chance):
    """Send a merged sample to the parent. A parent that comes into the tree by this sends on at once."""
    while part >= 0:
        part = tell_parent(members, control, part, places, chance)


@njit(folder=True)
def tell_parent(members, control, part, places, chance):
    """Send a merged sample to the parent. Return the part of the parent if it comes into the tree by this, or -1."""
    node, row = np.int64(members.parts.node[part]), members.table[part]
    place = places[row.topic]
    if owns(control, node, place):
        return np.int64(-1)
    hop = next_hop(control, node, place)
    if hop < 0:
        hop = np.int64(control.after[node])
    count = merge(members, part, node, chance)
    if count == 0:
        return np.int64(-1)
    members.sample[part, :count] = members.entries[:count]
    row.size = count
    members.stamps[1] += 1
    if row.parent >= 0 and row.hop == hop:
        return np.int64(-1)
    leave_parent(members, part)
    parent, is_new = take_part(members, hop, row.topic)
    above = members.table[parent]
    row.parent, row.hop, row.preceding, row.following = parent, hop, -1, above.first
    if above.first >= 0:
        members.table[above.first].preceding = part
    above.first = part
    return parent if is_new else np.int64(-1)


@njit(folder=True)
def leave_parent(members, part):
    """Take a part from the children of its parent."""
    table, row = members.table, members.table[part]
    if row.parent < 0:
        return
    if row.preceding >= 0:
        table[row.preceding].following = row.following
    else:
        table[row.parent].first = row.following
    if row.following >= 0:
        table[row.following].preceding = row.preceding
    row.parent = -1


@njit(folder=True)
def merge(members, part, node, chance):
    """Put at most k entries of the children's samples and the node itself into `entries`. Return their number."""
    entries, mark, count = members.entries, members.mark, 0
    members.stamps[0] += 1
    stamp, row = members.stamps[0], members.table[part]
    if row.is_own:
        entries[0], mark[node], count = node, stamp, 1
    child = np.int64(row.first)
    while child >= 0:
        under = members.table[child]
        for place in range(under.size):
            other = members.sample[child, place]
            if mark[other] != stamp:
                mark[other], entries[count] = stamp, other
                count += 1
        child = np.int64(under.following)
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
    return merge(members, part, home, chance) if part >= 0 and members.table[part].is_live else 0
