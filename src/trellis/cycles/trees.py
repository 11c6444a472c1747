"""Magnet's multicast trees in cycles: joins by graft and by greedy path, forwarders that prune themselves, relays.

The rules are those of `trellis.protocols.magnet.trees`. [MG §3.3, Alg. 2; A-MAG-10 to -14, -21] Trees are joined when
all nodes have their positions, one join after the other, so labels and homes stay the same.

I1  The parent of a part is nearer to the root, and the part's node is its successor or a finger.
I2  `children` counts the parts that name a part as their parent. A part in a tree has children, or its node subscribes
    to the topic, or it is the root.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.oscar import has_finger, next_hop
from trellis.cycles.parts import Parts, find_part, make_part, make_parts, more_parts
from trellis.jit import njit

NONE, ROOT = -1, -2  # of `parent`
_ONE = np.uint64(1)


class Trees(NamedTuple):
    """The trees of all topics."""

    parts: Parts
    parent: Any  # int32[parts]: NONE: not in the tree; ROOT: the home location
    children: Any  # int32[parts]
    is_wanted: Any  # bool[parts]: the node subscribes to the topic
    homes: Any  # int32[topics]
    counts: Any  # int64[3]: messages by which joins climbed and descended; changes of trees


class Reached(NamedTuple):
    """What one publication on every topic would do, by topic."""

    relays: Any  # int64[topics]: nodes that get it and do not subscribe
    reached: Any  # int64[topics]: subscribers that get it
    hops: Any  # int64[topics]: links between the home and these subscribers, added up


def make_trees(homes: Any, room: int) -> Trees:
    """Return trees without nodes. `homes`: the home location of each topic."""
    filled = np.full(room, NONE, np.int32), np.zeros(room, np.int32), np.zeros(room, np.bool_)
    return Trees(make_parts(room), *filled, homes, np.zeros(3, np.int64))


def more_trees(trees: Trees, room: int) -> Trees:
    """Return the same trees with room for `room` parts."""
    used = int(trees.parts.used[0])
    made = make_trees(trees.homes, room)
    for name in ("parent", "children", "is_wanted"):
        getattr(made, name)[:used] = getattr(trees, name)[:used]
    return made._replace(parts=more_parts(trees.parts, room), counts=trees.counts)


@njit(folder=True)
def join(trees, ring, wants, node, topic, start, is_graft):
    """Let a node join the tree of a topic. `start`: a subscriber where a graft begins; -1: at the home.  [Alg. 2]"""
    part = play_part(trees, wants, node, topic)
    if trees.parent[part] != NONE:
        return
    trees.counts[2] += 1
    home = np.int64(trees.homes[topic])
    if home == node:
        trees.parent[part] = ROOT
        return
    root = play_part(trees, wants, home, topic)
    here = NONE
    if is_graft and start >= 0:
        trees.counts[0] += 1
        here = find_part(trees.parts, start, topic)
        if here >= 0 and trees.parent[here] == NONE:
            here = NONE  # It is not in the tree (yet).
    if here >= 0:
        here = climb(trees, ring, here, home, node, topic)
    else:
        trees.parent[root] = ROOT
        here = root
    descend(trees, ring, wants, here, node, topic, not is_graft)


@njit(folder=True)
def play_part(trees, wants, node, topic):
    """Return the part of a node. It is in the tree only if it has a parent."""
    part, is_new = make_part(trees.parts, node, topic)
    if is_new:
        trees.is_wanted[part] = subscribes(wants, node, topic)
    return part


@njit(folder=True)
def subscribes(wants, node, topic):
    first, last = wants.offsets[node], wants.offsets[node + 1]
    while first < last:
        middle = (first + last) // 2
        if wants.topics[middle] < topic:
            first = middle + 1
        else:
            last = middle
    return first < wants.offsets[node + 1] and wants.topics[first] == topic


@njit(folder=True)
def climb(trees, ring, here, home, joiner, topic):
    """Climb from a part to the grafting point, or to the root.  [l. 7-11]"""
    while trees.parent[here] != ROOT:
        node = np.int64(trees.parts.node[here])
        if is_inside(ring, node, home, joiner):
            hop = find_part(trees.parts, hop_to(ring, node, joiner), topic)
            if hop >= 0 and trees.parent[hop] == here:
                break
        here = np.int64(trees.parent[here])
        trees.counts[0] += 1
    return here


@njit(folder=True)
def is_inside(ring, node, start, end):
    """Return whether a node is on the open arc between two others."""
    begin = ring.labels[start]
    return ring.labels[node] - begin - _ONE < ring.labels[end] - begin - _ONE


@njit(folder=True)
def hop_to(ring, node, joiner):
    """Return the next hop: the joiner if it is in the routing table, else the closest link before it.  [l. 12-13]"""
    if ring.after[node] == joiner or has_finger(ring, node, joiner):
        return np.int64(joiner)
    return next_hop(ring, node, ring.labels[joiner])


@njit(folder=True)
def descend(trees, ring, wants, here, joiner, topic, reparents):
    """Follow the greedy route down to the joiner. Nodes on it become forwarders.  [l. 12-14; A-MAG-12]

    A node of the tree keeps its parent, unless it `reparents` (greedy-path). A forwarder that leads nowhere by this
    prunes itself.
    """
    while trees.parts.node[here] != joiner:
        hop = hop_to(ring, np.int64(trees.parts.node[here]), joiner)
        child = play_part(trees, wants, hop, topic)
        trees.counts[1] += 1
        if trees.parent[child] == NONE or (reparents and trees.parent[child] != here):
            before = np.int64(trees.parent[child])
            trees.parent[child] = here
            trees.children[here] += 1
            use_link(trees, ring, child, here, 1)
            if before >= 0:
                lose_child(trees, ring, child, before)
        elif trees.parent[child] != here:
            prune(trees, ring, here)
        here = child


@njit(folder=True)
def lose_child(trees, ring, child, parent):
    """Take a child from its former parent."""
    trees.children[parent] -= 1
    use_link(trees, ring, child, parent, -1)
    prune(trees, ring, parent)


@njit(folder=True)
def prune(trees, ring, part):
    """Let a forwarder without children leave the tree, and those above that are not needed any more (A-MAG-14)."""
    while trees.children[part] == 0 and not trees.is_wanted[part] and trees.parent[part] >= 0:
        parent = np.int64(trees.parent[part])
        trees.parent[part] = NONE
        trees.children[parent] -= 1
        use_link(trees, ring, part, parent, -1)
        part = parent


@njit(folder=True)
def use_link(trees, ring, child, parent, change):
    """Count that a tree uses, or does not use any more, the link from a parent to a child."""
    node, peer = trees.parts.node[parent], trees.parts.node[child]
    for slot in range(ring.wanted[node]):
        if ring.fingers[node, slot] == peer:
            ring.uses[node, slot] += change
            return
    ring.uses[node, ring.uses.shape[1] - 1] += change


@njit(folder=True)
def reach(trees, topics):
    """Return what one publication on every topic would do now."""
    relays, reached, hops = np.zeros(topics, np.int64), np.zeros(topics, np.int64), np.zeros(topics, np.int64)
    used = trees.parts.used[0]
    depth = np.full(used, -1, np.int32)
    for part in range(used):
        if trees.parent[part] == NONE:
            continue
        above, far = part, 0
        while depth[above] < 0 and trees.parent[above] != ROOT:
            above, far = np.int64(trees.parent[above]), far + 1
        far += max(depth[above], 0)
        topic = trees.parts.topic[part]
        if trees.is_wanted[part]:
            reached[topic] += 1
            hops[topic] += far
        else:
            relays[topic] += 1
        above = part
        while depth[above] < 0:
            depth[above] = far
            far -= 1
            if trees.parent[above] == ROOT:
                break
            above = np.int64(trees.parent[above])
    return Reached(relays, reached, hops)
