"""Routing tables in cycles: T-Man with the selection of Vitis and RVR.  [VI Alg. 2-4, Eq. 1]

The rules are those of `trellis.protocols.vitis` (`table.py`, `select.py`, `ring_node.py`) and
`trellis.protocols.small_world`. A table is a row: successor, predecessor, long links, then friends by utility. RVR is
the same without friends. Descriptors have no ages here: everybody is there.

A selection sees candidates in this order: the table, then what the partner tells (itself, its samples, its table), then
those that hold a link to the node, then its own samples. Of equal utility the first one wins.

T1  no row holds the node itself or a repetition.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below, shuffle, unit
from trellis.jit import njit

_PEER = np.uint32((1 << 26) - 1)  # of an entry of `trellis.cycles.newscast`
_RING = 2.0**64
_ZERO = np.uint64(0)


class Tables(NamedTuple):
    """The routing tables of all nodes."""

    peers: Any  # int32[nodes, size]
    utility: Any  # float64[nodes, size]: of each entry
    count: Any  # int32[nodes]
    beside: Any  # int32[nodes, 2]: successor and predecessor; -1: not known
    told: Any  # int32[nodes, 2]: the same, as the node last told its neighbors
    draws: Any  # float64[nodes, long links]: where each of them should lead, drawn once (A-VIT-3)
    distances: Any  # uint64[nodes, long links]: the same, for the present estimate of the network's size
    estimate: Any  # float64[nodes] (A-SUB-3)


class Rule(NamedTuple):
    """How tables are chosen."""

    size: int  # RT-SIZE
    sw_neighbors: int  # k: successor, predecessor and long links; RVR: all
    strangers: bool  # take friends that share no topic
    network_size: int  # n for long links; 0: estimated


class Links(NamedTuple):
    """Who has a link with whom, whichever end holds it, in CSR form."""

    offsets: Any  # int64[nodes + 1]
    peers: Any  # int32


class Candidates(NamedTuple):
    """Scratch of a selection."""

    peers: Any  # int32
    utility: Any  # float64
    away: Any  # uint64: how far clockwise from the node
    free: Any  # bool: not taken yet
    picked: Any  # int32[size]: which of them are chosen, in the order of the table
    mark: Any  # int32[nodes]
    wanted: Any  # bool[topics]: by the node that selects


def make_tables(nodes: int, rule: Rule, chance: Any) -> Tables:
    """Return empty tables, with the draws of long links made."""
    long_links = rule.sw_neighbors - 2
    tables = Tables(
        np.full((nodes, rule.size), -1, np.int32),
        np.zeros((nodes, rule.size)),
        np.zeros(nodes, np.int32),
        np.full((nodes, 2), -1, np.int32),
        np.full((nodes, 2), -1, np.int32),
        np.empty((nodes, long_links)),
        np.empty((nodes, long_links), np.uint64),
        np.full(nodes, max(2.0, float(rule.network_size))),
    )
    draw_long_links(tables, chance)
    return tables


@njit(folder=True)
def draw_long_links(tables, chance):
    for node in range(len(tables.count)):
        for link in range(tables.draws.shape[1]):
            tables.draws[node, link] = unit(chance)
        place_long_links(tables, node)


@njit(folder=True)
def place_long_links(tables, node):
    """Symphony's draw: a distance x in [1/n, 1] of the circle with density proportional to 1/x."""
    size = log(tables.estimate[node])
    for link in range(tables.draws.shape[1]):
        tables.distances[node, link] = np.uint64(_RING * exp(size * (tables.draws[node, link] - 1.0)))


@njit(folder=True)
def table_cycle(tables, wants, views, links, order, chance, mark, rule):
    """Let each node of `order` swap tables with a random neighbor, in random order.  [VI Alg. 2-3]

    Return the number of exchanges, and of selections that changed a table.
    """
    scratch = make_candidates(tables, wants, views, links, mark)
    kept = np.empty(rule.size, np.int32)
    shuffle(order, chance)
    mark[:] = 0
    stamp, exchanges, changes = 0, 0, 0
    for turn in range(len(order)):
        node = order[turn]
        if tables.count[node] > 0:
            partner = np.int64(tables.peers[node, below(chance, tables.count[node])])
        elif views.count[node] > 0:
            partner = np.int64(views.entries[node * (views.size + 1) + below(chance, views.count[node])] & _PEER)
        else:
            continue
        changes += exchange(tables, wants, views, links, node, partner, scratch, stamp, kept, rule)
        stamp += 2
        exchanges += 1
    return exchanges, changes


@njit(folder=True)
def close_ring_cycle(tables, wants, views, links, order, chance, mark, rule):
    """Let each node swap tables with whoever stands, as its ring neighbors told, between them and it.

    Return the number of exchanges, and of selections that changed a table.
    """
    scratch = make_candidates(tables, wants, views, links, mark)
    kept, nearer = np.empty(rule.size, np.int32), np.empty(4, np.int32)
    shuffle(order, chance)
    mark[:] = 0
    stamp, exchanges, changes = 0, 0, 0
    for turn in range(len(order)):
        node = order[turn]
        for one in range(nearer_ones(tables, wants.places, node, nearer)):
            changes += exchange(tables, wants, views, links, node, np.int64(nearer[one]), scratch, stamp, kept, rule)
            stamp += 2
            exchanges += 1
        tables.told[node, 0], tables.told[node, 1] = tables.beside[node, 0], tables.beside[node, 1]
    return exchanges, changes


@njit(folder=True)
def nearer_ones(tables, places, node, nearer):
    """Fill `nearer`, and return how many they are."""
    count = 0
    for side in range(2):
        beside = tables.beside[node, side]
        if beside < 0:
            continue
        gap = places[beside] - places[node]
        for told in range(2):
            other = tables.told[beside, told]
            if other < 0 or other == node or is_in_table(tables, node, other):
                continue
            far = places[other] - places[node]
            new = far < gap if side == 0 else far > gap
            for place in range(count):
                new = new and nearer[place] != other
            if new:
                nearer[count] = other
                count += 1
    return count


@njit(folder=True)
def is_in_table(tables, node, other):
    for place in range(tables.count[node]):
        if tables.peers[node, place] == other:
            return True
    return False


@njit(folder=True)
def make_candidates(tables, wants, views, links, mark):
    most = 0
    for node in range(len(tables.count)):
        most = max(most, links.offsets[node + 1] - links.offsets[node])
    most += 2 * (tables.peers.shape[1] + views.size + 1)
    return Candidates(
        np.empty(most, np.int32),
        np.empty(most, np.float64),
        np.empty(most, np.uint64),
        np.empty(most, np.bool_),
        np.empty(tables.peers.shape[1], np.int32),
        mark,
        np.zeros(len(wants.topic_places), np.bool_),
    )


@njit(folder=True)
def exchange(tables, wants, views, links, node, partner, scratch, stamp, kept, rule):
    """Swap buffers: both select from what the other had before. Return how many of the two tables changed."""
    count = tables.count[partner]
    for place in range(count):
        kept[place] = tables.peers[partner, place]
    changes = 0
    found = gather(tables, views, links, partner, node, tables.peers[node], tables.count[node], scratch, stamp + 1)
    changes += select(tables, wants, partner, found, scratch, rule)
    found = gather(tables, views, links, node, partner, kept, count, scratch, stamp + 2)
    changes += select(tables, wants, node, found, scratch, rule)
    return changes


@njit(folder=True)
def gather(tables, views, links, node, teller, told, told_count, scratch, stamp):
    """Put the candidates of `node` into `scratch`. Return how many they are."""
    peers, mark = scratch.peers, scratch.mark
    mark[node] = stamp
    count = tables.count[node]
    for place in range(count):
        peers[place] = tables.peers[node, place]
        scratch.utility[place] = tables.utility[node, place]
        mark[peers[place]] = stamp
    count = add(np.int32(teller), peers, mark, stamp, count)
    begin = teller * (views.size + 1)
    for place in range(begin, begin + views.count[teller]):
        count = add(np.int32(views.entries[place] & _PEER), peers, mark, stamp, count)
    for place in range(told_count):
        count = add(told[place], peers, mark, stamp, count)
    for place in range(links.offsets[node], links.offsets[node + 1]):
        count = add(links.peers[place], peers, mark, stamp, count)
    begin = node * (views.size + 1)
    for place in range(begin, begin + views.count[node]):
        count = add(np.int32(views.entries[place] & _PEER), peers, mark, stamp, count)
    return count


@njit(folder=True)
def add(peer, peers, mark, stamp, count):
    if mark[peer] == stamp:
        return count
    mark[peer] = stamp
    peers[count] = peer
    return count + 1


@njit(folder=True)
def select(tables, wants, node, count, scratch, rule):
    """selectNeighbors [VI Alg. 4] among the candidates in `scratch`. Return whether the table changed."""
    before, peers, picked = tables.count[node], scratch.peers, scratch.picked
    for place in range(count):
        scratch.away[place] = wants.places[peers[place]] - wants.places[node]
        scratch.free[place] = True
    if rule.size > rule.sw_neighbors:
        weigh(wants, node, before, count, scratch)
    taken = take_small_world(tables, wants.places, node, count, scratch, rule.network_size)
    left = rule.size - max(rule.sw_neighbors, taken)
    chosen = take_friends(taken, left, count, scratch, rule.strangers)
    changed = chosen != before
    for place in range(chosen):
        one = picked[place]
        tables.peers[node, place], tables.utility[node, place] = peers[one], scratch.utility[one]
        changed = changed or one >= before
    tables.count[node] = chosen
    for side in range(2):
        tables.beside[node, side] = tables.peers[node, side] if side < taken else -1
    return changed


@njit(folder=True)
def weigh(wants, node, begin, end, scratch):
    """Compute the utility of candidates to the node.  [VI Eq. 1]"""
    offsets, topics, wanted = wants.offsets, wants.topics, scratch.wanted
    for place in range(offsets[node], offsets[node + 1]):
        wanted[topics[place]] = True
    for one in range(begin, end):
        peer = scratch.peers[one]
        together = 0.0
        if len(wants.rates) == 0:
            shared = 0
            for place in range(offsets[peer], offsets[peer + 1]):
                shared += wanted[topics[place]]
            together = np.float64(shared)
        else:
            for place in range(offsets[peer], offsets[peer + 1]):
                if wanted[topics[place]]:
                    together += wants.rates[topics[place]]
        whole = wants.totals[node] + wants.totals[peer] - together
        scratch.utility[one] = together / whole if together > 0.0 else 0.0
    for place in range(offsets[node], offsets[node + 1]):
        wanted[topics[place]] = False


@njit(folder=True)
def take_small_world(tables, places, node, count, scratch, network_size):
    """Pick successor, predecessor and long links, each out of the rest.  [VI Alg. 4, l. 2-10]. Return their number."""
    away, free, picked = scratch.away, scratch.free, scratch.picked
    if count == 0:
        return 0
    first = last = 0
    for one in range(1, count):
        if away[one] < away[first]:
            first = one
        if away[one] > away[last]:
            last = one
    picked[0], free[first], taken = first, False, 1
    if count > 1:
        picked[1], free[last], taken = last, False, 2
    if network_size == 0:
        renew_estimate(tables, places, node, scratch.peers[first], scratch.peers[picked[taken - 1]])
    for link in range(tables.distances.shape[1]):
        best = nearest_to(tables.distances[node, link], count, scratch)
        if best < 0:
            break
        picked[taken], free[best] = best, False
        taken += 1
    return taken


@njit(folder=True)
def renew_estimate(tables, places, node, successor, predecessor):
    """Keep the estimate of the network's size until it is wrong by a factor of 2 (A-SUB-3)."""
    gap = np.float64(places[successor] - places[predecessor])
    estimate = max(2.0, 2.0 * _RING / (gap if gap > 0.0 else _RING))
    if not tables.estimate[node] / 2.0 <= estimate <= 2.0 * tables.estimate[node]:
        tables.estimate[node] = estimate
        place_long_links(tables, node)


@njit(folder=True)
def nearest_to(distance, count, scratch):
    """Return the free candidate nearest to a distance from the node; of two the one before it. -1: none is left."""
    away, free = scratch.away, scratch.free
    best, least, is_before = -1, _ZERO, False
    for one in range(count):
        if not free[one]:
            continue
        before, after = distance - away[one], away[one] - distance
        apart = min(before, after)
        if best < 0 or apart < least or (apart == least and before <= after and not is_before):
            best, least, is_before = one, apart, before <= after
    return best


@njit(folder=True)
def take_friends(taken, most, count, scratch, strangers):
    """Pick the free candidates of greatest utility, `most` at most, the first of equals.  [VI Alg. 4, l. 11-16]

    Return how many are picked in all.
    """
    utility, free, picked = scratch.utility, scratch.free, scratch.picked
    end = taken
    for one in range(count):
        if not free[one] or (not strangers and utility[one] <= 0.0):
            continue
        if end - taken == most:
            if most == 0 or utility[picked[end - 1]] >= utility[one]:
                continue
            end -= 1
        place = end
        while place > taken and utility[picked[place - 1]] < utility[one]:
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
    sources, filled = np.empty(incoming[nodes], np.int32), incoming[:nodes].copy()
    for turn in range(len(order)):
        node = order[turn]
        for place in range(tables.count[node]):
            peer = tables.peers[node, place]
            sources[filled[peer]] = node
            filled[peer] += 1
    offsets, peers = np.zeros(nodes + 1, np.int64), np.empty(incoming[nodes] * 2, np.int32)
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
