"""Routing tables in cycles: T-Man with the selection of Vitis and RVR.  [VI Alg. 2-4, Eq. 1]

The rules are those of `trellis.protocols.vitis` (`table.py`, `select.py`, `ring_node.py`) and
`trellis.protocols.small_world`. A table is a row: successor, predecessor, long links, then friends by utility. RVR is
the same without friends. Descriptors have no ages here: `presence.py` says how long those that left are still known.

A selection sees candidates in this order: the table, then what the partner tells (itself, its samples, its table), then
those that hold a link to the node and whose profile came since its own last one, then its own samples. Of equal utility
the first one wins.

Profiles come once per period, at the same moment of it. So whether the profile of a neighbor comes between a node's own
profile and its next swap of tables depends on the moments that the two have drawn, and does not change. The protocol
has it so (`OverlayNode._renew_table`); only about half of those that hold a link to a node are candidates of it.

T1  no row holds the node itself or a repetition.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below, draw, shuffle, unit
from trellis.cycles.presence import without_buried
from trellis.cycles.spread import is_linked
from trellis.jit import njit

_PEER = np.uint32((1 << 26) - 1)  # of an entry of `trellis.cycles.newscast`
_RING = 2.0**64
_ZERO, _ONE, _32 = np.uint64(0), np.uint32(1), np.uint64(32)


class Tables(NamedTuple):
    """The routing tables of all nodes."""

    peers: Any  # uint32[nodes, size]
    utility: Any  # float64[nodes, size]: of each entry
    count: Any  # int32[nodes]
    beside: Any  # int32[nodes, 2]: successor and predecessor; -1: not known
    told: Any  # int32[nodes, 2]: the same, as the node last told its neighbors
    draws: Any  # float64[nodes, long links]: where each of them should lead, drawn once (A-VIT-3)
    distances: Any  # uint64[nodes, long links]: the same, for the present estimate of the network's size
    estimate: Any  # float64[nodes] (A-SUB-3)
    beats: Any  # uint32[nodes]: the moment of the period at which the node sends its profile
    turns: Any  # uint32[nodes]: and at which it swaps tables


class Rule(NamedTuple):
    """How tables are chosen."""

    size: int  # RT-SIZE
    sw_neighbors: int  # k: successor, predecessor and long links; RVR: all
    strangers: bool  # take friends that share no topic
    network_size: int  # n for long links; 0: estimated


class Links(NamedTuple):
    """Return which nodes are linked, whichever end holds the link, in CSR form."""

    offsets: Any  # int64[nodes + 1]
    peers: Any  # uint32


NO_LINKS = Links(np.empty(0, np.int64), np.empty(0, np.uint32))


class Candidates(NamedTuple):
    """Scratch of a selection."""

    peers: Any  # uint32
    utility: Any  # float64
    away: Any  # uint64: how far clockwise from the node
    free: Any  # bool: not taken yet
    picked: Any  # int32[size]: which of them are chosen, in the order of the table
    mark: Any  # int32[nodes]
    wanted: Any  # uint8[topics]: by the node that selects
    told: Any  # uint32[size]: the table of the node that begins an exchange


def make_tables(nodes: int, rule: Rule, chance: Any) -> Tables:
    """Return empty tables, with the draws of long links made."""
    long_links = rule.sw_neighbors - 2
    tables = Tables(
        np.zeros((nodes, rule.size), np.uint32),
        np.zeros((nodes, rule.size)),
        np.zeros(nodes, np.int32),
        np.full((nodes, 2), -1, np.int32),
        np.full((nodes, 2), -1, np.int32),
        np.empty((nodes, long_links)),
        np.empty((nodes, long_links), np.uint64),
        np.full(nodes, max(2.0, float(rule.network_size))),
        np.empty(nodes, np.uint32),
        np.empty(nodes, np.uint32),
    )
    draw_long_links(tables.estimate, tables.draws, tables.distances, chance)
    draw_moments(tables.beats, tables.turns, chance)
    return tables


@njit(folder=True)
def draw_long_links(sizes, draws, distances, chance):
    for node in range(len(sizes)):
        for link in range(draws.shape[1]):
            draws[node, link] = unit(chance)
        place_long_links(sizes, draws, distances, node)


@njit(folder=True)
def draw_moments(beats, turns, chance):
    for node in range(len(beats)):
        beats[node], turns[node] = draw(chance) >> _32, draw(chance) >> _32


@njit(folder=True)
def place_long_links(sizes, draws, distances, node):
    """Symphony's draw: a distance x in [1/n, 1] of the circle with density proportional to 1/x."""
    size = log(sizes[node])
    for link in range(draws.shape[1]):
        distances[node, link] = np.uint64(_RING * exp(size * (draws[node, link] - 1.0)))


@njit(folder=True)
def table_cycle(tables, wants, views, links, presence, order, chance, mark, rule, closing, heard):
    """Let each node of `order` swap tables with others, in random order.

    closing  False: with a random neighbor [VI Alg. 2-3]; True: with whoever stands, as its ring neighbors told, between
             them and it
    heard    only for `closing`: the links over which a profile has come; empty: a profile comes over every link at once

    Return the number of exchanges, and of selections that changed a table.
    """
    scratch = make_candidates(tables, wants, views, links, mark)
    kept, partners = np.empty(rule.size, np.uint32), np.empty(4, np.int64)
    shuffle(order, chance)
    mark[:] = 0
    stamp, exchanges, changes = 0, 0, 0
    for turn in range(len(order)):
        node, count = np.int64(order[turn]), 1
        if closing:
            count = nearer_ones(tables, wants.places, node, heard, partners)
            if len(heard.offsets) > 0:  # The profile leaves before the exchanges end.
                tables.told[node, 0], tables.told[node, 1] = tables.beside[node, 0], tables.beside[node, 1]
        elif tables.count[node] > 0:
            partners[0] = tables.peers[node, below(chance, tables.count[node])]
        elif views.count[node] > 0:
            partners[0] = views.entries[node * (views.size + 1) + below(chance, views.count[node])] & _PEER
        else:
            count = 0
        for one in range(count):
            if presence.alive[partners[one]]:
                changes += exchange(
                    tables, wants, views, links, presence, node, partners[one], scratch, stamp, kept, rule
                )
                stamp += 2
        exchanges += count
        if closing and len(heard.offsets) == 0:
            tables.told[node, 0], tables.told[node, 1] = tables.beside[node, 0], tables.beside[node, 1]
    return exchanges, changes


@njit(folder=True)
def nearer_ones(tables, places, node, heard, nearer):
    """Fill `nearer` with those that stand nearer to the node than its ring neighbors, and return how many they are."""
    count = 0
    for side in range(2):
        next_one = tables.beside[node, side]
        if next_one < 0 or (len(heard.offsets) > 0 and not is_linked(heard.offsets, heard.peers, node, next_one)):
            continue
        gap = places[next_one] - places[node]
        for turn in range(2):
            other = tables.told[next_one, turn]
            if other < 0 or other == node:
                continue
            far = places[other] - places[node]
            new = far < gap if side == 0 else far > gap
            for place in range(tables.count[node]):
                new = new and tables.peers[node, place] != other
            for place in range(count):
                new = new and nearer[place] != other
            if new:
                nearer[count] = other
                count += 1
    return count


@njit(folder=True)
def make_candidates(tables, wants, views, links, mark):
    most = 0
    for node in range(len(tables.count)):
        most = max(most, links.offsets[node + 1] - links.offsets[node])
    most += 2 * (tables.peers.shape[1] + views.size + 1)
    return Candidates(
        np.empty(most, np.uint32),
        np.empty(most, np.float64),
        np.empty(most, np.uint64),
        np.empty(most, np.bool_),
        np.empty(tables.peers.shape[1], np.int32),
        mark,
        np.zeros(len(wants.topic_places), np.uint8),
        np.empty(tables.peers.shape[1], np.uint32),
    )


@njit(folder=True)
def exchange(tables, wants, views, links, presence, node, partner, scratch, stamp, kept, rule):
    """Swap buffers: both select from what the other had before. Return how many of the two tables changed."""
    changes = 0
    for turn in range(2):
        one, other, told = (node, partner, kept) if turn else (partner, node, scratch.told)
        if turn == 0:
            counts = tables.count[partner], tables.count[node]
            for place in range(counts[0]):
                kept[place] = tables.peers[partner, place]
            for place in range(counts[1]):
                scratch.told[place] = tables.peers[node, place]
        changes += select(
            tables, wants, views, links, presence, one, other, told, counts[1 - turn], scratch, stamp + 1 + turn, rule
        )
    return changes


@njit(folder=True)
def select(tables, wants, views, links, presence, node, teller, told, told_count, scratch, stamp, rule):
    """selectNeighbors [VI Alg. 4] of `node`, after `teller` has told of the nodes in its table, `told`.

    Return whether the table changed.
    """
    rows, utilities, peers, utility = tables.peers, tables.utility, scratch.peers, scratch.utility
    away, free, picked = scratch.away, scratch.free, scratch.picked
    before = tables.count[node]
    scratch.mark[node] = stamp
    for place in range(before):
        peers[place], utility[place] = rows[node, place], utilities[node, place]
        scratch.mark[peers[place]] = stamp
    count = gather(
        views.entries, views.count, views.size, links.offsets, links.peers, tables.beats, tables.turns, node, teller,
        told, told_count, peers, scratch.mark, stamp, before,
    )  # fmt: skip
    count = without_buried(presence, node, peers, before, count)
    friends = rule.size > rule.sw_neighbors
    if friends:
        weigh(
            wants.offsets, wants.topics, wants.rates, wants.totals, scratch.wanted, node, peers, utility, before, count
        )
    place_around(wants.places, node, peers, away, free, count)
    taken = take_ring(away, free, picked, count)
    if taken > 0 and rule.network_size == 0:
        renew_estimate(
            tables.estimate,
            tables.draws,
            tables.distances,
            wants.places,
            node,
            peers[picked[0]],
            peers[picked[taken - 1]],
        )
    if taken > 1:
        taken = take_long_links(tables.distances, node, away, free, picked, count)
    chosen = taken
    if friends:
        left = rule.size - max(rule.sw_neighbors, taken)
        chosen = take_friends(utility, free, picked, taken, left, count, rule.strangers)
    changed = chosen != before
    for place in range(chosen):
        one = picked[place]
        rows[node, place], utilities[node, place] = peers[one], utility[one]
        changed = changed or one >= before
    tables.count[node] = chosen
    for side in range(2):
        tables.beside[node, side] = rows[node, side] if side < taken else -1
    return changed


@njit(folder=True)
def gather(
    entries, view_count, view_size, offsets, linked, beats, turns, node, teller, told, told_count, peers, mark, stamp,
    count,
):  # fmt: skip
    """Add whom the teller tells of, whom links lead to and own samples to `peers`. Return how many there are then."""
    if mark[teller] != stamp:
        mark[teller] = stamp
        peers[count] = teller
        count += 1
    for turn in range(2):
        begin = np.uint64((node if turn else teller) * (view_size + 1))
        for place in range(begin, begin + np.uint64(view_count[node if turn else teller])):
            peer = entries[place] & _PEER
            if mark[peer] != stamp:
                mark[peer] = stamp
                peers[count] = peer
                count += 1
        if turn:
            break
        for place in range(told_count):
            peer = told[place]
            if mark[peer] != stamp:
                mark[peer] = stamp
                peers[count] = peer
                count += 1
        for place in range(np.uint64(offsets[node]), np.uint64(offsets[node + 1])):
            peer = linked[place]
            if mark[peer] != stamp and np.uint32(beats[peer] - beats[node]) < np.uint32(turns[node] - beats[node]):
                mark[peer] = stamp
                peers[count] = peer
                count += 1
    return count


@njit(folder=True)
def weigh(offsets, topics, rates, totals, wanted, node, peers, utility, begin, end):
    """Compute the utility of some candidates to the node.  [VI Eq. 1]"""
    first, last = np.uint64(offsets[node]), np.uint64(offsets[node + 1])
    for place in range(first, last):
        wanted[topics[place]] = 1
    own, plain = totals[node], len(rates) == 0
    for one in range(begin, end):
        peer, together = peers[one], 0.0
        if plain:
            shared = np.uint32(0)
            for place in range(np.uint64(offsets[peer]), np.uint64(offsets[peer + _ONE])):
                shared += wanted[topics[place]]
            together = np.float64(shared)
        else:
            for place in range(np.uint64(offsets[peer]), np.uint64(offsets[peer + _ONE])):
                if wanted[topics[place]]:
                    together += rates[topics[place]]
        utility[one] = together / (own + totals[peer] - together) if together > 0.0 else 0.0
    for place in range(first, last):
        wanted[topics[place]] = 0


@njit(folder=True)
def place_around(places, node, peers, away, free, count):
    """Compute how far clockwise the candidates are from the node."""
    own = places[node]
    for one in range(count):
        away[one] = places[peers[one]] - own
        free[one] = True


@njit(folder=True)
def take_ring(away, free, picked, count):
    """Pick successor and predecessor.  [VI Alg. 4, l. 2-7]. Return how many there are: 2, or 1 of one candidate."""
    first = last = 0
    for one in range(1, count):
        if away[one] < away[first]:
            first = one
        if away[one] > away[last]:
            last = one
    if count > 0:
        picked[0], free[first] = first, False
    if count > 1:
        picked[1], free[last] = last, False
    return min(count, 2)


@njit(folder=True)
def renew_estimate(sizes, draws, distances, places, node, successor, predecessor):
    """Keep the estimate of the network's size until it is wrong by a factor of 2 (A-SUB-3)."""
    gap = np.float64(places[successor] - places[predecessor])
    estimate = max(2.0, 2.0 * _RING / (gap if gap > 0.0 else _RING))
    if not sizes[node] / 2.0 <= estimate <= 2.0 * sizes[node]:
        sizes[node] = estimate
        place_long_links(sizes, draws, distances, node)


@njit(folder=True)
def take_long_links(distances, node, away, free, picked, count):
    """Pick the candidate nearest to each of the drawn distances; of two the one before it.  [VI Alg. 4, l. 8-10]

    Successor and predecessor are picked. Return how many are picked in all.
    """
    taken = 2
    for link in range(min(distances.shape[1], count - taken)):
        distance = distances[node, link]
        best, least, is_before = -1, _ZERO, False
        for one in range(count):
            if free[one]:
                before, after = distance - away[one], away[one] - distance
                apart = min(before, after)
                if best < 0 or apart < least or (apart == least and before <= after and not is_before):
                    best, least, is_before = one, apart, before <= after
        picked[taken], free[best] = best, False
        taken += 1
    return taken


@njit(folder=True)
def take_friends(utility, free, picked, taken, most, count, strangers):
    """Pick the free candidates of greatest utility, `most` at most, the first of equals.  [VI Alg. 4, l. 11-16]

    Return how many are picked in all.
    """
    end = taken
    for one in range(count):
        value = utility[one]
        if not free[one] or (not strangers and value <= 0.0):
            continue
        if end - taken == most:
            if most == 0 or utility[picked[end - 1]] >= value:
                continue
            end -= 1
        place = end
        while place > taken and utility[picked[place - 1]] < value:
            picked[place] = picked[place - 1]
            place -= 1
        picked[place] = one
        end += 1
    return end


@njit(folder=True)
def links_of(tables, order, mark):
    """Return the links: each node's table, then those that have it in theirs, in the order of `order`.

    mark  int32[nodes], scratch
    """
    nodes, size = len(tables.count), tables.peers.shape[1]
    incoming = np.zeros(nodes + 1, np.int64)
    for node in range(nodes):
        for place in range(tables.count[node]):
            incoming[tables.peers[node, place] + 1] += 1
    for node in range(nodes):
        incoming[node + 1] += incoming[node]
    sources, filled = np.empty(incoming[nodes], np.uint32), incoming[:nodes].copy()
    for turn in range(len(order)):
        node = order[turn]
        for place in range(tables.count[node]):
            peer = tables.peers[node, place]
            sources[filled[peer]] = np.uint32(node)
            filled[peer] += 1
    offsets, peers = np.zeros(nodes + 1, np.int64), np.empty(incoming[nodes] * 2, np.uint32)
    mark[:] = -1
    end = 0
    for node in range(nodes):
        for place in range(min(size, tables.count[node])):
            peers[end] = tables.peers[node, place]
            mark[peers[end]] = node
            end += 1
        for place in range(incoming[node], incoming[node + 1]):
            if mark[sources[place]] != node:
                peers[end] = sources[place]
                end += 1
        offsets[node + 1] = end
    return Links(offsets, peers[:end].copy())
