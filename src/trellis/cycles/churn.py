"""Joins and leaves in cycles: what becomes of samples, tables and proposals.  [VI Alg. 1, Alg. 6, §III-D]"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

import numpy as np

from trellis.cycles.chance import below
from trellis.cycles.newscast import CONTACT_TRIES, NONE
from trellis.cycles.presence import bury, is_silent
from trellis.jit import njit


@njit(folder=True)
def begin_views(views, node, living, chance):
    """Let a node that joins know some of the living, and nothing else."""
    begin, count, known = node * (views.size + 1), views.contacts.shape[1], 0
    for place in range(begin, begin + views.size + 1):
        views.entries[place] = NONE
    views.count[node], views.silent[node] = 0, 0
    for place in range(count):
        views.contacts[node, place], views.tries[node, place] = -1, 0
    most = min(count, len(living) - 1)  # The node itself is among them.
    while known < most:
        one = living[below(chance, len(living))]
        new = one != node
        for place in range(known):
            new = new and views.contacts[node, place] != one
        if new:
            views.contacts[node, known], views.tries[node, known] = one, CONTACT_TRIES
            known += 1
    views.greetings[node] = known


@njit(folder=True)
def begin_table(tables, proposals, offsets, node):
    """Let a node that joins have an empty table, and propose itself for all its topics."""
    tables.count[node] = 0
    for side in range(2):
        tables.beside[node, side] = tables.told[node, side] = -1
    for slot in range(offsets[node], offsets[node + 1]):
        proposals.gateway[slot], proposals.parent[slot], proposals.hops[slot] = node, node, 0


@njit(folder=True)
def leave_tables(tables, views, links, presence, gone):
    """Let the neighbors of a node that leaves forget it. `presence` says that it is gone."""
    for link in range(links.offsets[gone], links.offsets[gone + 1]):
        node = np.int64(links.peers[link])
        if presence.alive[node]:
            bury(presence, views, node, gone)
            drop_entry(tables, node, gone)
    tables.count[gone] = 0
    tables.beside[gone, 0] = tables.beside[gone, 1] = -1


@njit(folder=True)
def drop_entry(tables, node, gone):
    """Drop an entry of a table. The others keep their order."""
    left = 0
    for place in range(tables.count[node]):
        if tables.peers[node, place] != gone:
            tables.peers[node, left], tables.utility[node, left] = (
                tables.peers[node, place],
                tables.utility[node, place],
            )
            left += 1
    tables.count[node] = left
    for side in range(2):
        if tables.beside[node, side] == gone:
            tables.beside[node, side] = -1


@njit(folder=True)
def drop_silent(tables, views, presence, order):
    """Let all nodes drop those that have been silent for too long.  [VI Alg. 6, l. 4-5]"""
    for turn in range(len(order)):
        node, place = np.int64(order[turn]), 0
        while place < tables.count[node]:
            peer = np.int64(tables.peers[node, place])
            if is_silent(presence, node, peer):
                bury(presence, views, node, peer)
                drop_entry(tables, node, peer)
            else:
                place += 1


@njit(folder=True)
def known_links(links, before, mark):
    """Return the links that are in `before` as well, in CSR form."""
    nodes = len(links.offsets) - 1
    offsets, peers, end = np.zeros(nodes + 1, np.int64), np.empty(len(links.peers), np.uint32), 0
    mark[:] = -1
    for node in range(nodes):
        for link in range(before.offsets[node], before.offsets[node + 1]):
            mark[before.peers[link]] = node
        for link in range(links.offsets[node], links.offsets[node + 1]):
            if mark[links.peers[link]] == node:
                peers[end] = links.peers[link]
                end += 1
        offsets[node + 1] = end
    return offsets, peers[:end].copy()


@njit(folder=True)
def tell_tables(tables, told_peers, told_counts, order):
    """Note which tables nodes have at their ticks. Their profiles say so."""
    for turn in range(len(order)):
        node = order[turn]
        told_counts[node] = tables.count[node]
        for place in range(tables.count[node]):
            told_peers[node, place] = tables.peers[node, place]


@njit(folder=True)
def firm_links(links, tables, told_peers, told_counts):
    """Return the links that each node knows of, in CSR form: it holds them, or the other end has told that it does."""
    nodes = len(links.offsets) - 1
    offsets, peers, end = np.zeros(nodes + 1, np.int64), np.empty(len(links.peers), np.uint32), 0
    for node in range(nodes):
        for link in range(links.offsets[node], links.offsets[node + 1]):
            peer = np.int64(links.peers[link])
            if holds(tables.peers, tables.count, node, peer) or holds(told_peers, told_counts, peer, node):
                peers[end] = peer
                end += 1
        offsets[node + 1] = end
    return offsets, peers[:end].copy()


@njit(folder=True)
def holds(peers, counts, node, peer):
    """Return whether a node has a peer in its table."""
    place = 0
    while place < counts[node] and peers[node, place] != peer:
        place += 1
    return place < counts[node]
