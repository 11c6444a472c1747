"""Relay paths in cycles while nodes join and leave: the state that lookups leave behind.  [VI §III-B, §III-D]

The rules are those of `trellis.protocols.vitis.relays`. A node has a part in a topic if it looks the topic up, for
itself or for others. Its part has a next hop, and the next hop remembers the node as a child, with an edge.

- A node renews its next hops at its tick, once per period. A new next hop is asked at once, and asks its own next hop.
- A node that needs a next hop no more tells it at its own next tick. The next hop stops to relay then, but it sends
  events to the child until its own tick: the edge *fades*.
- A next hop drops a child at its tick if their link has ended.

So a path that is not needed any more disappears from its lower end, about half a period for each hop. Until then it
carries events to nodes that do not want them.

Difference from the protocol: a node that is asked between two of its ticks chooses its next hop among its present
links. In the protocol it chooses among those that it had at its last tick.

L1  `children` counts the edges below a part that do not fade.
L2  a part that relays for others, and at which lookups do not end, has a next hop or is the rendezvous.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.parts import Parts, find_part, is_short, make_part, make_parts, more_parts
from trellis.cycles.spread import is_linked, next_hop
from trellis.jit import njit

NONE, ROOT = -2, -1  # values of `up`: the topic is not looked up; no neighbor is closer
_USED, _FREE = range(2)  # of `counts`
MARGIN = 2_000  # further parts for which there must be room before a tick, beside some for each part of the node
HOPS = 16
PART_BYTES = 70 + 2 * 17  # with its share of the hash table and of the edges


class Relays(NamedTuple):
    """The parts of all nodes in all topics, and the edges between them. A list ends with -1."""

    parts: Parts
    up: Any  # int32[parts]: the next hop
    children: Any  # int32[parts]
    own: Any  # bool[parts]: the node looks the topic up for itself
    slot: Any  # int64[parts]: the node's subscription to the topic; -1: it does not want it
    of_node: Any  # int32[nodes]: a part of the node
    of_topic: Any  # int32[topics]: a part of the topic
    next_of_node: Any  # int32[parts]
    next_of_topic: Any  # int32[parts]
    first_up: Any  # int32[parts]: an edge to a next hop, present or former
    first_down: Any  # int32[parts]: an edge from a child
    child: Any  # int32[edges]: a part
    parent: Any  # int32[edges]: a part
    fades: Any  # bool[edges]
    next_up: Any  # int32[edges]: the next edge of the same child
    next_down: Any  # int32[edges]: the next edge of the same parent
    counts: Any  # int64[2]: edges used so far; the first free one among them


def no_relays() -> Relays:
    """Return what stands for the relay paths of a network in which nobody joins or leaves."""
    return make_relays(0, 0, 0)


def relay_parts(subscriptions: int) -> int:
    """Return for how many parts there is room at first. A run from nothing rarely needs more."""
    return 2 * subscriptions + 2 * MARGIN


def make_relays(nodes: int, topics: int, room: int) -> Relays:
    """Return relay paths of nobody, with room for `room` parts and twice as many edges."""
    edges = 2 * room
    return Relays(
        parts=make_parts(room),
        up=np.full(room, NONE, np.int32),
        children=np.zeros(room, np.int32),
        own=np.zeros(room, np.bool_),
        slot=np.full(room, -1, np.int64),
        of_node=_empty(nodes),
        of_topic=_empty(topics),
        next_of_node=_empty(room),
        next_of_topic=_empty(room),
        first_up=_empty(room),
        first_down=_empty(room),
        child=_empty(edges),
        parent=_empty(edges),
        fades=np.zeros(edges, np.bool_),
        next_up=_empty(edges),
        next_down=_empty(edges),
        counts=np.array([0, -1], np.int64),
    )


def _empty(size: int) -> Any:
    return np.full(size, -1, np.int32)


def more_relays(relays: Relays, room: int) -> Relays:
    """Return the same relay paths with room for `room` parts."""
    found = make_relays(len(relays.of_node), len(relays.of_topic), room)
    for one, other in zip(found[1:], relays[1:], strict=True):
        one[: len(other)] = other
    return found._replace(parts=more_parts(relays.parts, room))


def tick_all(relays: Relays, wants: Any, links: Any, alive: Any, looks_up: Any, order: Any, ends: bool) -> Relays:
    """Let each node of `order` renew its relay paths, one after the other. Return the relay paths.

    looks_up  bool[subscriptions]: whether the node looks the topic up for itself
    ends      whether lookups end at subscribers (A-VIT-17)
    """
    done = 0
    while True:
        done = tick_cycle(relays, wants, links, alive, looks_up, order, done, ends)
        if done == len(order):
            return relays
        relays = more_relays(relays, 2 * len(relays.up) + MARGIN)


@njit(folder=True)
def tick_cycle(relays, wants, links, alive, looks_up, order, begin, ends):
    """Let nodes renew their relay paths until there may be no room for more. Return how many of `order` are done."""
    for turn in range(begin, len(order)):
        node = np.int64(order[turn])
        if is_full(relays, wants, node):
            return turn
        drop_children(relays, links, alive, node, ends)
        look_up(relays, wants, looks_up, node)
        part = np.int64(relays.of_node[node])
        while part >= 0:
            if is_needed(relays, part, ends):
                place = wants.topic_places[relays.parts.topic[part]]
                relays.up[part] = next_hop(wants.places, links.offsets, links.peers, node, place)
            else:
                relays.up[part] = NONE
            part = np.int64(relays.next_of_node[part])
        part = np.int64(relays.of_node[node])
        while part >= 0:
            tell_former_hops(relays, links, alive, part, ends)
            part = np.int64(relays.next_of_node[part])
        part = np.int64(relays.of_node[node])
        while part >= 0:
            ask(relays, wants, links, alive, part, ends)
            part = np.int64(relays.next_of_node[part])
    return len(order)


@njit(folder=True)
def is_full(relays, wants, node):
    margin = MARGIN + HOPS * (wants.offsets[node + 1] - wants.offsets[node])
    part = np.int64(relays.of_node[node])
    while part >= 0:
        margin += HOPS
        part = np.int64(relays.next_of_node[part])
    return is_short(relays.parts, margin) or relays.counts[_USED] + margin > len(relays.child)


@njit(folder=True)
def is_needed(relays, part, ends):
    """Return whether the node looks the topic up: for itself, or for children at whose lookups it does not end."""
    return relays.own[part] or (relays.children[part] > 0 and not (ends and relays.slot[part] >= 0))


@njit(folder=True)
def drop_children(relays, links, alive, node, ends):
    """Remove edges that fade, and those of children that are no neighbors any more."""
    part = np.int64(relays.of_node[node])
    while part >= 0:
        edge = np.int64(relays.first_down[part])
        while edge >= 0:
            following = np.int64(relays.next_down[edge])
            child = np.int64(relays.parts.node[relays.child[edge]])
            if relays.fades[edge]:
                remove(relays, edge)
            elif not alive[child] or not is_linked(links.offsets, links.peers, node, child):
                relays.children[part] -= 1
                remove(relays, edge)
            edge = following
        if not is_needed(relays, part, ends):
            relays.up[part] = NONE
        part = np.int64(relays.next_of_node[part])


@njit(folder=True)
def look_up(relays, wants, looks_up, node):
    """Note which topics the node looks up for itself."""
    for slot in range(wants.offsets[node], wants.offsets[node + 1]):
        if looks_up[slot]:
            relays.own[part_of(relays, wants, node, np.int64(wants.topics[slot]))] = True
        else:
            part = find_part(relays.parts, node, np.int64(wants.topics[slot]))
            if part >= 0:
                relays.own[part] = False


@njit(folder=True)
def part_of(relays, wants, node, topic):
    """Return the part of a node in a topic, a new one if it has none."""
    part, new = make_part(relays.parts, node, topic)
    if new:
        relays.up[part], relays.slot[part] = NONE, slot_of(wants, node, topic)
        relays.next_of_node[part], relays.of_node[node] = relays.of_node[node], part
        relays.next_of_topic[part], relays.of_topic[topic] = relays.of_topic[topic], part
    return part


@njit(folder=True)
def slot_of(wants, node, topic):
    low, high = np.int64(wants.offsets[node]), np.int64(wants.offsets[node + 1])
    end = high
    while low < high:
        middle = (low + high) // 2
        if np.int64(wants.topics[middle]) < topic:
            low = middle + 1
        else:
            high = middle
    return low if low < end and np.int64(wants.topics[low]) == topic else np.int64(-1)


@njit(folder=True)
def tell_former_hops(relays, links, alive, part, ends):
    """Tell former next hops that a path is not needed. One that is no neighbor notices it at its own tick."""
    node, edge = np.int64(relays.parts.node[part]), np.int64(relays.first_up[part])
    while edge >= 0:
        following, parent = np.int64(relays.next_up[edge]), np.int64(relays.parent[edge])
        hop = np.int64(relays.parts.node[parent])
        if hop != relays.up[part] and not relays.fades[edge]:
            if not alive[hop]:
                relays.children[parent] -= 1
                remove(relays, edge)
            elif is_linked(links.offsets, links.peers, node, hop):
                relays.fades[edge] = True
                relays.children[parent] -= 1
                if not is_needed(relays, parent, ends):
                    relays.up[parent] = NONE
        edge = following


@njit(folder=True)
def ask(relays, wants, links, alive, part, ends):
    """Ask the next hop to relay the topic, which may ask its own."""
    while relays.up[part] >= 0 and alive[relays.up[part]]:
        if is_short(relays.parts, 1) or relays.counts[_USED] >= len(relays.child):
            return  # The next tick of the last node goes on.
        topic = np.int64(relays.parts.topic[part])
        hop = np.int64(relays.up[part])
        parent = part_of(relays, wants, hop, topic)
        edge = np.int64(relays.first_up[part])
        while edge >= 0 and relays.parent[edge] != parent:
            edge = np.int64(relays.next_up[edge])
        if edge < 0:
            connect(relays, part, parent)
        elif relays.fades[edge]:
            relays.fades[edge] = False
        else:
            relays.children[parent] -= 1  # It was asked before.
        relays.children[parent] += 1
        if relays.up[parent] != NONE or not is_needed(relays, parent, ends):
            return
        relays.up[parent] = next_hop(wants.places, links.offsets, links.peers, hop, wants.topic_places[topic])
        part = parent


@njit(folder=True)
def connect(relays, part, parent):
    """Add an edge from a child to its next hop."""
    edge = relays.counts[_FREE]
    if edge >= 0:
        relays.counts[_FREE] = relays.next_up[edge]
    else:
        edge = relays.counts[_USED]
        relays.counts[_USED] += 1
    relays.child[edge], relays.parent[edge], relays.fades[edge] = part, parent, False
    relays.next_up[edge], relays.first_up[part] = relays.first_up[part], edge
    relays.next_down[edge], relays.first_down[parent] = relays.first_down[parent], edge


@njit(folder=True)
def remove(relays, edge):
    """Remove an edge. `children` is the caller's."""
    relays.fades[edge] = False
    unchain(relays.first_up, relays.next_up, relays.child[edge], edge)
    unchain(relays.first_down, relays.next_down, relays.parent[edge], edge)
    relays.next_up[edge], relays.counts[_FREE] = relays.counts[_FREE], edge


@njit(folder=True)
def unchain(first, following, part, edge):
    if first[part] == edge:
        first[part] = following[edge]
        return
    one = first[part]
    while following[one] != edge:
        one = following[one]
    following[one] = following[edge]


@njit(folder=True)
def leave_paths(relays, node, ends):
    """Let a node that leaves tell its neighbors: it needs no paths, and relays no more."""
    part = np.int64(relays.of_node[node])
    while part >= 0:
        relays.up[part], relays.own[part], relays.children[part] = NONE, False, 0
        while relays.first_up[part] >= 0:
            edge = np.int64(relays.first_up[part])
            parent = np.int64(relays.parent[edge])
            relays.children[parent] -= not relays.fades[edge]
            remove(relays, edge)
            if not is_needed(relays, parent, ends):
                relays.up[parent] = NONE
        while relays.first_down[part] >= 0:
            remove(relays, np.int64(relays.first_down[part]))
        part = np.int64(relays.next_of_node[part])
