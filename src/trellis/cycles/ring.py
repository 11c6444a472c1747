"""The identifier ring in cycles: T-Man that keeps the nearest nodes on either side.

The rules are those of `trellis.protocols.ring` and `trellis.protocols.tman`. Places on the ring are the upper 64 bits
of the protocol's 160, so that arithmetic wraps by itself.

R1  the first `count` entries of a row stand clockwise from the node, without the node itself and repeats.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below, shuffle
from trellis.jit import njit
from trellis.protocols.ring import identifier

PLACE_BITS = 64
_PEER, _AGE_SHIFT = np.uint32((1 << 26) - 1), np.uint32(26)  # of an entry of `trellis.cycles.newscast`


class Rings(NamedTuple):
    """What all nodes know of the ring."""

    peers: Any  # int32[nodes, 2 * kept]
    ages: Any  # int32[nodes, 2 * kept]: in rounds and hops
    count: Any  # int32[nodes]


class Buffer(NamedTuple):
    """What a node tells another, or candidates among which it selects."""

    peers: Any  # int32
    ages: Any  # int32
    away: Any  # uint64: how far clockwise


def places_of(names: Iterable[str]) -> Any:
    """Return the places of nodes or topics on the ring, as `uint64`."""
    return np.array([identifier(name) >> (160 - PLACE_BITS) for name in names], np.uint64)


def make_rings(nodes: int, kept: int) -> Rings:
    """Return rings on which nobody knows anybody. `kept` are kept on either side."""
    return Rings(
        np.full((nodes, 2 * kept), -1, np.int32), np.zeros((nodes, 2 * kept), np.int32), np.zeros(nodes, np.int32)
    )


@njit(folder=True)
def ring_cycle(rings, places, views, alive, gone, order, chance, mark, age_max):
    """Let each node of `order` exchange buffers once, in random order. Return the number of exchanges.

    places  uint64[nodes]
    views   Newscast's, which give the samples
    alive   bool[nodes]: who answers
    gone    bool[nodes]: who is known to be gone, and is kept on no ring
    order   the nodes that are there; it is shuffled
    mark    int32[nodes], scratch
    """
    most = 2 * rings.peers.shape[1] + views.size + 2
    mine, theirs, found = make_buffer(most), make_buffer(most), make_buffer(2 * most)
    at = np.zeros(len(mark), np.int32)
    shuffle(order, chance)
    mark[:] = 0
    stamp, exchanges = 0, 0
    for turn in range(len(order)):
        node = np.int64(order[turn])
        grow_older(rings, gone, node, age_max)
        partner = choose_partner(rings, views, node, chance)
        if partner < 0 or not alive[partner]:
            continue
        stamp += 4
        my_count = tell(rings, views, node, mark, stamp, at, mine)
        their_count = tell(rings, views, partner, mark, stamp + 1, at, theirs)
        learn(rings, places, gone, partner, mine, my_count, mark, stamp + 2, at, age_max, found)
        learn(rings, places, gone, node, theirs, their_count, mark, stamp + 3, at, age_max, found)
        exchanges += 1
    return exchanges


@njit(folder=True)
def make_buffer(size):
    return Buffer(np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.uint64))


@njit(folder=True)
def grow_older(rings, gone, node, age_max):
    left = 0
    for place in range(rings.count[node]):
        age = rings.ages[node, place] + 1
        if age <= age_max and not gone[rings.peers[node, place]]:
            rings.peers[node, left], rings.ages[node, left] = rings.peers[node, place], age
            left += 1
    rings.count[node] = left


@njit(folder=True)
def choose_partner(rings, views, node, chance):
    """Return a random entry of the ring, or a sample where there is none; -1: nobody is known."""
    if rings.count[node] > 0:
        return np.int64(rings.peers[node, below(chance, rings.count[node])])
    if views.count[node] > 0:
        return np.int64(views.entries[node * (views.size + 1) + below(chance, views.count[node])] & _PEER)
    return -1


@njit(folder=True)
def tell(rings, views, node, mark, stamp, at, buffer):
    """Fill `buffer`: the node itself at age 0, samples, and the ring, one hop older. Return how many these are.

    Where a node is both a sample and on the ring, the ring's age is told, as `TMan` does it.
    """
    peers, ages, count = buffer.peers, buffer.ages, 1
    peers[0], ages[0] = node, 0
    mark[node] = stamp
    begin = node * (views.size + 1)
    for place in range(begin, begin + views.count[node]):
        entry = views.entries[place]
        peer = np.int32(entry & _PEER)
        peers[count], ages[count] = peer, np.int32(entry >> _AGE_SHIFT) + 1
        mark[peer], at[peer] = stamp, count
        count += 1
    for place in range(rings.count[node]):
        peer, age = rings.peers[node, place], rings.ages[node, place] + 1
        if mark[peer] == stamp:
            ages[at[peer]] = age
        else:
            peers[count], ages[count] = peer, age
            count += 1
    return count


@njit(folder=True)
def learn(rings, places, gone, node, told, told_count, mark, stamp, at, age_max, found):
    """Keep the nearest on either side, of those on the ring and those told, each at its youngest."""
    peers, ages, away, count = found.peers, found.ages, found.away, 0
    for place in range(rings.count[node]):
        peers[count], ages[count] = rings.peers[node, place], rings.ages[node, place]
        mark[peers[count]], at[peers[count]] = stamp, count
        count += 1
    for place in range(told_count):
        peer, age = told.peers[place], told.ages[place]
        if peer == node or gone[peer]:
            continue
        if mark[peer] == stamp:
            ages[at[peer]] = min(ages[at[peer]], age)
        elif age <= age_max:
            peers[count], ages[count] = peer, age
            mark[peer], at[peer] = stamp, count
            count += 1
    for place in range(count):  # sorted by insertion: those on the ring stand in order already
        peer, age, far, turn = peers[place], ages[place], places[peers[place]] - places[node], place
        while turn > 0 and away[turn - 1] > far:
            peers[turn], ages[turn], away[turn] = peers[turn - 1], ages[turn - 1], away[turn - 1]
            turn -= 1
        peers[turn], ages[turn], away[turn] = peer, age, far
    kept, left = rings.peers.shape[1] // 2, 0
    for turn in range(count):
        if turn < kept or turn >= count - kept:
            rings.peers[node, left], rings.ages[node, left] = peers[turn], ages[turn]
            left += 1
    rings.count[node] = left
