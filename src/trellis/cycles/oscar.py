"""OSCAR's ring in cycles: positions, links, and greedy routing from below.  [MG §2.1-2.2; A-MAG-5, -6, -7, -11]

The rules are those of `trellis.protocols.oscar` (`labels.py`, `table.py`, `ring.py`). A label is the first 64 bits of
the protocol's binary fraction, so that arithmetic wraps around the ring by itself. Only the order of labels decides
anything. If two nodes have no label left between them, the nodes behind them are spread out, in the same order.

Successors and predecessors are exact at any time: the protocol repairs them within two messages.

G1  `after` and `before` are one circle of all nodes on the ring, in the order of their labels, which are all different.
G2  `guests[a]` has `b` once for each finger of `b` that is `a`. Fingers of a node differ, and none is the node itself.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from trellis.jit import njit
from trellis.protocols.oscar.labels import hashed

GUESTS_WIDTH = 32  # columns of `guests` at first; they become more where a node has more guests
_ZERO, _ONE, _HALF = np.uint64(0), np.uint64(1), np.uint64(1 << 63)
_ROOM = np.uint64(1 << 16)  # Nodes that are spread out are at least so far apart.
_COUNT, _CROWDED = 0, 1  # of `state`


class Oscar(NamedTuple):
    """One ring of all nodes."""

    labels: Any  # uint64[nodes]
    after: Any  # int32[nodes]: the successor. The node itself: it is alone. -1: it is not on the ring.
    before: Any  # int32[nodes]: the predecessor
    wanted: Any  # int32[nodes]: how many fingers a node has at most
    shares: Any  # float64[nodes, fingers]: the draw of each finger's partition
    fingers: Any  # int32[nodes, fingers]; -1: none
    uses: Any  # int32[nodes, fingers + 1]: trees over each finger, and over the successor
    guests: Any  # int32[nodes, width]: the nodes whose finger a node is
    guest_count: Any  # int32[nodes]
    state: Any  # int64[2]: the nodes on the ring; whether a row of `guests` is full


def labels_of(names: Iterable[str]) -> Any:
    """Return the positions of names on a ring of uniform identifiers, as `uint64`."""
    return np.array([int.from_bytes(hashed(name).ljust(8, b"\0")[:8], "big") for name in names], np.uint64)


def make_oscar(nodes: int, links: int, random: Any) -> Oscar:
    """Return a ring without nodes. `random` is a numpy generator. It draws the fingers' partitions (A-MAG-4)."""
    fewer, odd = (links - 2) // 2, links % 2
    wanted = fewer + (random.integers(0, 2, nodes) if odd else np.zeros(nodes, np.int64))
    most = fewer + odd
    return Oscar(
        np.zeros(nodes, np.uint64),
        np.full(nodes, -1, np.int32),
        np.full(nodes, -1, np.int32),
        wanted.astype(np.int32),
        random.random((nodes, most)),
        np.full((nodes, most), -1, np.int32),
        np.zeros((nodes, most + 1), np.int32),
        np.full((nodes, GUESTS_WIDTH), -1, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(2, np.int64),
    )


def widened(ring: Oscar) -> Oscar:
    """Return the same ring with room for twice as many guests of a node."""
    ring.state[_CROWDED] = 0
    return ring._replace(guests=np.concatenate([ring.guests, np.full_like(ring.guests, -1)], axis=1))


@njit(folder=True)
def is_crowded(ring):
    """Return whether a row of `guests` is full, so that the ring must be widened."""
    return ring.state[_CROWDED] != 0


@njit(folder=True)
def put_behind(ring, node, last, label):
    """Put a node behind `last`, at a label before that one's successor. `last` is -1: it is the first node."""
    ring.labels[node] = label
    if last < 0:
        ring.after[node] = ring.before[node] = node
    else:
        following = ring.after[last]
        ring.after[last] = ring.before[following] = node
        ring.before[node], ring.after[node] = last, following
        ring.uses[last, ring.uses.shape[1] - 1] = 0
    ring.state[_COUNT] += 1


@njit(folder=True)
def middle_behind(ring, last):
    """Return the label in the middle between a node and its successor (A-MAG-6), where there is one."""
    arc = ring.labels[ring.after[last]] - ring.labels[last]
    if arc == _ONE:
        spread_out(ring, last)
        arc = ring.labels[ring.after[last]] - ring.labels[last]
    return ring.labels[last] + (_HALF if arc == _ZERO else arc >> _ONE)


@njit(folder=True)
def spread_out(ring, last):
    """Spread out nodes behind `last` evenly, as few as have room between them then (A-MAG-7)."""
    begin, node, count = ring.labels[last], np.int64(ring.after[last]), np.uint64(1)
    while node != last and (ring.labels[node] - begin) // count < _ROOM:
        node, count = np.int64(ring.after[node]), count + _ONE
    # From a node around to itself the arc is 2^64, which 64 bits cannot say.
    arc = ring.labels[node] - begin if node != last else ~_ZERO
    step, moved = arc // count, np.int64(ring.after[last])
    place = begin
    while moved != node:
        place += step
        ring.labels[moved] = place
        moved = np.int64(ring.after[moved])


@njit(folder=True)
def next_hop(ring, node, target):
    """Return the successor or finger closest to `target` from below, or -1 if the node itself is closer."""
    begin = ring.labels[node]
    most, best, far = target - begin, np.int64(-1), _ZERO
    if ring.after[node] != node:
        distance = ring.labels[ring.after[node]] - begin
        if distance <= most:
            best, far = np.int64(ring.after[node]), distance
    for slot in range(ring.wanted[node]):
        peer = ring.fingers[node, slot]
        if peer >= 0:
            distance = ring.labels[peer] - begin
            if far < distance <= most:
                best, far = np.int64(peer), distance
    return best


@njit(folder=True)
def owns(ring, node, target):
    """Return whether a node is the first one at or after a position (A-MAG-5)."""
    if ring.after[node] == node:
        return True
    begin = ring.labels[ring.before[node]]
    return _ZERO < target - begin <= ring.labels[node] - begin


@njit(folder=True)
def last_before(ring, node, target):
    """Follow the greedy route from `node`. Return the last node before a position, and the links that were crossed."""
    hops = 0
    while True:
        hop = next_hop(ring, node, target)
        if hop < 0 or ring.labels[hop] == target:
            return node, hops
        node, hops = hop, hops + 1


@njit(folder=True)
def home_of(ring, node, target):
    """Follow the route of a request from `node`. Return the node that owns a position, and the links crossed."""
    hops = 0
    while not owns(ring, node, target):
        hop = next_hop(ring, node, target)
        node, hops = (hop if hop >= 0 else np.int64(ring.after[node])), hops + 1
    return node, hops


@njit(folder=True)
def has_finger(ring, node, peer):
    slot = 0
    while slot < ring.wanted[node] and ring.fingers[node, slot] != peer:
        slot += 1
    return slot < ring.wanted[node]


@njit(folder=True)
def list_links(ring, node, found):
    """Write the nodes with which a node has a link to `found`, each once, and return their number."""
    if ring.after[node] == node:
        return 0
    found[0], count = ring.after[node], 1
    for slot in range(ring.wanted[node]):
        peer = ring.fingers[node, slot]
        if peer >= 0 and peer != found[0]:
            found[count] = peer
            count += 1
    down = count
    for place in range(ring.guest_count[node] + 1):
        peer = ring.guests[node, place] if place < ring.guest_count[node] else ring.before[node]
        known = False
        for other in range(down):
            known = known or found[other] == peer
        if place == ring.guest_count[node]:
            known = known or is_guest(ring, node, peer)
        if not known:
            found[count] = peer
            count += 1
    return count


@njit(folder=True)
def is_guest(ring, node, peer):
    place = 0
    while place < ring.guest_count[node] and ring.guests[node, place] != peer:
        place += 1
    return place < ring.guest_count[node]


@njit(folder=True)
def add_finger(ring, node, slot, peer):
    """Make `peer` a finger."""
    ring.fingers[node, slot], ring.uses[node, slot] = peer, 0
    count = ring.guest_count[peer]
    ring.guests[peer, count] = node
    ring.guest_count[peer] = count + 1
    if count + 1 == ring.guests.shape[1]:
        ring.state[_CROWDED] = 1


@njit(folder=True)
def drop_finger(ring, node, slot):
    """Give up a finger."""
    peer = ring.fingers[node, slot]
    ring.fingers[node, slot] = -1
    last = ring.guest_count[peer] - 1
    for place in range(last):
        if ring.guests[peer, place] == node:
            ring.guests[peer, place] = ring.guests[peer, last]
            break
    ring.guest_count[peer] = last


@njit(folder=True)
def links_of(ring):
    """Return all links as two arrays of their ends, each link once."""
    nodes, width = ring.guests.shape
    found = np.empty(width + ring.fingers.shape[1] + 2, np.int32)
    ends = 0
    for node in range(nodes):
        ends += ring.after[node] >= 0 and list_links(ring, node, found)
    one, other = np.empty(ends // 2, np.int32), np.empty(ends // 2, np.int32)
    end = 0
    for node in range(nodes):
        count = list_links(ring, node, found) if ring.after[node] >= 0 else 0
        for place in range(count):
            if node < found[place]:
                one[end], other[end] = node, found[place]
                end += 1
    return one, other
