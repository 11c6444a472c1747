"""OPT's selection in cycles: links by greedy coverage.  [VI §IV; A-VIT-24]

The rules are those of `OptNode._choose` in `trellis.protocols.opt`. The topics of the node that selects are numbered
from 0, and what it shares with a candidate is a row of bits. So the gain of a candidate is a count of bits.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.choice import ones
from trellis.jit import njit

IN_TABLE, LINKS_US, SPOKE = np.uint8(1), np.uint8(2), np.uint8(4)  # what a node knows of a neighbor
_KEPT, _OTHER, _TAKEN = np.int8(1), np.int8(2), np.int8(3)
_ONE = np.uint64(1)


class Cover(NamedTuple):
    """Scratch of a selection."""

    peers: Any  # uint32: the candidates. Those of the table come first, in its order.
    shared: Any  # uint64[candidates, words]: topics that the node shares with each
    state: Any  # int8[candidates]: not to be chosen, kept, another one, or taken
    at: Any  # int32[topics]: 1 + the number of a topic among those of the node that selects; 0: it does not want it
    counts: Any  # int32[topics of a node]: neighbors that cover each topic
    words: Any  # uint64[2, words]: topics covered fewer than K times, and fewer than K + 1 times
    known: Any  # uint8[nodes]: what the node knows of its neighbors; 0: no neighbor
    refused: Any  # int32[nodes]: stamp of the selection for which the node has refused
    mark: Any  # int32[nodes]
    picked: Any  # int32[candidates]: places of the chosen candidates
    chosen: Any  # uint32[candidates]: the new table


def make_cover(nodes: int, topics: int, topics_max: int, candidates: int) -> Cover:
    words = max(1, (topics_max + 63) // 64)
    return Cover(
        np.empty(candidates, np.uint32),
        np.empty((candidates, words), np.uint64),
        np.empty(candidates, np.int8),
        np.zeros(topics, np.int32),
        np.empty(max(1, topics_max), np.int32),
        np.empty((2, words), np.uint64),
        np.zeros(nodes, np.uint8),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.empty(candidates, np.int32),
        np.empty(candidates, np.uint32),
    )


@njit(folder=True)
def choose(node, neighbors, flags, links, offsets, topics, cover, count, in_table, bound, coverage, stamp):
    """Fill `cover.chosen` with the table of the node: confirmed links that are of use, then the best candidates.

    neighbors, flags  the neighbors of the node, `links` of them, and what it knows of them
    count             candidates in `cover.peers`; the first `in_table` are the present table
    stamp             `cover.refused` of a node that has refused holds it

    Return the size of the table.
    """
    first, own = offsets[node], offsets[node + 1] - offsets[node]
    words = (own + 63) >> 6
    for place in range(own):
        cover.at[topics[first + place]] = place + 1
        cover.counts[place] = 0
    for word in range(words):
        full = ~np.uint64(0) if word < words - 1 or own & 63 == 0 else (_ONE << np.uint64(own & 63)) - _ONE
        cover.words[0, word] = cover.words[1, word] = full
    room, chosen, spare = bound, 0, len(cover.peers) - 1
    for place in range(links):  # Links that others hold count, whatever they cover.
        cover.known[neighbors[place]] = flags[place]
        if flags[place] & LINKS_US:
            share(neighbors[place], offsets, topics, cover.at, cover.shared, spare, words)
            add(cover.shared[spare], cover.counts, cover.words, words, coverage)
            room -= 1
    for place in range(links):  # Links that both ends hold: the end with the smaller name keeps its entry.
        both = flags[place] & LINKS_US and flags[place] & IN_TABLE and node < neighbors[place]
        if both:
            share(neighbors[place], offsets, topics, cover.at, cover.shared, spare, words)
            if gain(cover.shared[spare], cover.words[1], words) > 0:
                cover.chosen[chosen] = neighbors[place]
                chosen += 1
    for place in range(count):
        peer = cover.peers[place]
        known = cover.known[peer]
        cover.state[place] = 0
        if known & LINKS_US or cover.refused[peer] == stamp:
            continue
        if share(peer, offsets, topics, cover.at, cover.shared, place, words):
            confirmed = known & IN_TABLE and known & SPOKE
            cover.state[place] = _KEPT if confirmed else _OTHER
    taken = take(cover, _KEPT, 0, in_table, 0, room, words, coverage)
    kept = taken
    taken = take(cover, _OTHER, 0, count, taken, room, words, coverage)
    if taken == room and kept == taken and kept > 0 and gain(cover.words[0], cover.words[0], words) > 0:
        replace_one(cover, kept, count, words, coverage)
    for place in range(taken):
        cover.chosen[chosen] = cover.peers[cover.picked[place]]
        chosen += 1
    for place in range(own):
        cover.at[topics[first + place]] = 0
    for place in range(links):
        cover.known[neighbors[place]] = 0
    return chosen


@njit(folder=True)
def share(peer, offsets, topics, at, shared, row, words):
    """Set the bits of the topics that the node shares with `peer`. Return whether there are any."""
    for word in range(words):
        shared[row, word] = 0
    found = False
    for slot in range(offsets[peer], offsets[peer + np.uint32(1)]):
        place = at[topics[slot]]
        if place > 0:
            shared[row, (place - 1) >> 6] |= _ONE << np.uint64((place - 1) & 63)
            found = True
    return found


@njit(folder=True)
def add(bits, counts, missing, words, coverage):
    """Count a neighbor for each of the topics in `bits`."""
    for word in range(words):
        left = bits[word]
        while left:
            low = left & (~left + _ONE)
            place = 64 * word + ones(low - _ONE)
            counts[place] += 1
            if counts[place] >= coverage:
                missing[0, word] &= ~low
                if counts[place] > coverage:
                    missing[1, word] &= ~low
            left &= left - _ONE


@njit(folder=True)
def remove(bits, counts, missing, words, coverage):
    """Take back what `add` has counted."""
    for word in range(words):
        left = bits[word]
        while left:
            low = left & (~left + _ONE)
            place = 64 * word + ones(low - _ONE)
            counts[place] -= 1
            if counts[place] <= coverage:
                missing[1, word] |= low
                if counts[place] < coverage:
                    missing[0, word] |= low
            left &= left - _ONE


@njit(folder=True)
def gain(bits, missing, words):
    """Return how many of the missing topics are in `bits`."""
    found = 0
    for word in range(words):
        found += ones(bits[word] & missing[word])
    return found


@njit(folder=True)
def take(cover, state, begin, end, taken, most, words, coverage):
    """Take candidates of a state, each time the first one of those that cover most topics. Return how many are taken.

    `most` is the limit of all that are taken, with the first `taken` that are taken already.
    """
    while taken < most:
        best, greatest = -1, 0
        for place in range(begin, end):
            if cover.state[place] == state:
                found = gain(cover.shared[place], cover.words[0], words)
                if found > greatest:
                    best, greatest = place, found
        if best < 0:
            break
        cover.picked[taken], cover.state[best] = best, _TAKEN
        add(cover.shared[best], cover.counts, cover.words, words, coverage)
        taken += 1
    return taken


@njit(folder=True)
def replace_one(cover, kept, count, words, coverage):
    """Replace the least useful confirmed link by the best candidate, if that covers more topics."""
    least, loss = -1, 0
    for turn in range(kept):
        found = gain(cover.shared[cover.picked[turn]], cover.words[1], words)
        if least < 0 or found < loss:
            least, loss = turn, found
    remove(cover.shared[cover.picked[least]], cover.counts, cover.words, words, coverage)
    best, greatest = -1, loss
    for place in range(count):
        if cover.state[place] == _OTHER:
            found = gain(cover.shared[place], cover.words[0], words)
            if found > greatest:
                best, greatest = place, found
    if best >= 0:
        cover.picked[least] = best
