"""Cyclon in cycles: each node shuffles a few entries of its view with the oldest member of it, once per cycle.

The rules are those of `trellis.protocols.cyclon`. A view is a row of peers and a row of their ages, in no order.

C1  in each row the first `count` places are in use, without the node itself and repeats.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below, shuffle
from trellis.jit import njit

CONTACT_TRIES = 3


class Shuffled(NamedTuple):
    """The views of all nodes."""

    peers: Any  # int32[nodes, size]
    ages: Any  # int32[nodes, size]: in rounds and hops
    count: Any  # int32[nodes]
    contacts: Any  # int32[nodes, contacts]: whom a node knows when it joins, then -1
    tries: Any  # int8[nodes, contacts]: how often the contact will still be greeted


def make_shuffled(contacts: Any, size: int) -> Shuffled:
    """Return empty views of nodes that know `contacts`, an array of nodes x contacts."""
    contacts = np.ascontiguousarray(contacts, np.int32)
    return Shuffled(
        np.full((len(contacts), size), -1, np.int32),
        np.zeros((len(contacts), size), np.int32),
        np.zeros(len(contacts), np.int32),
        contacts,
        np.where(contacts >= 0, CONTACT_TRIES, 0).astype(np.int8),
    )


@njit(folder=True)
def cyclon_cycle(views, order, chance, shuffle_size, age_max):
    """Let each node of `order` shuffle once, in random order. Return the number of exchanges.

    order  the nodes that are there; it is shuffled
    """
    size = views.peers.shape[1]
    mine, my_ages = np.empty(size + 1, np.int32), np.empty(size + 1, np.int32)
    theirs, their_ages = np.empty(size + 1, np.int32), np.empty(size + 1, np.int32)
    places = np.arange(size)
    shuffle(order, chance)
    exchanges = 0
    for turn in range(len(order)):
        node = np.int64(order[turn])
        grow_older(views, node, age_max)
        partner = choose_partner(views, node, chance)
        if partner < 0:
            continue
        place = find(views, node, partner)
        if place >= 0:
            forget(views, node, place)
        my_count = offer(views, node, np.int64(-1), shuffle_size - 1, chance, places, mine, my_ages)
        their_count = offer(views, partner, node, shuffle_size, chance, places, theirs, their_ages)
        hear(views, partner, node)
        hear(views, node, partner)
        take(views, partner, mine, my_ages, 0, my_count, theirs, their_count, age_max)
        take(views, node, theirs, their_ages, 1, their_count, mine, my_count, age_max)
        take(views, node, theirs, their_ages, 0, 1, mine, 1, age_max)
        exchanges += 1
    return exchanges


@njit(folder=True)
def grow_older(views, node, age_max):
    place = 0
    while place < views.count[node]:
        views.ages[node, place] += 1
        if views.ages[node, place] > age_max:
            forget(views, node, place)  # the last one takes its place, and has not grown older yet
        else:
            place += 1


@njit(folder=True)
def choose_partner(views, node, chance):
    """Return a contact that was not heard yet, the oldest member of the view, or any contact; -1: nobody is known."""
    contacts, known = views.contacts.shape[1], 0
    for place in range(contacts):
        known += views.contacts[node, place] >= 0
        if views.tries[node, place] > 0:
            views.tries[node, place] -= 1
            return np.int64(views.contacts[node, place])
    count = views.count[node]
    if count == 0:
        return np.int64(views.contacts[node, below(chance, known)]) if known > 0 else -1
    oldest, tied = -1, 0
    for place in range(count):
        if views.ages[node, place] > oldest:
            oldest, tied = views.ages[node, place], 0
        tied += views.ages[node, place] == oldest
    drawn = below(chance, tied)
    for place in range(count):
        if views.ages[node, place] == oldest:
            if drawn == 0:
                return np.int64(views.peers[node, place])
            drawn -= 1
    return -1


@njit(folder=True)
def offer(views, node, to, most, chance, places, peers, ages):
    """Copy what `node` offers: itself at age 0, and up to `most` members, one hop older, without `to`.

    Return how many these are. `places` is scratch.
    """
    count, offered = views.count[node], 1
    peers[0], ages[0] = node, 0
    for place in range(count):
        places[place] = place
    for drawn in range(min(most, count)):
        other = drawn + below(chance, count - drawn)
        places[drawn], places[other] = places[other], places[drawn]
        place = places[drawn]
        if views.peers[node, place] != to:
            peers[offered], ages[offered] = views.peers[node, place], views.ages[node, place] + 1
            offered += 1
    return offered


@njit(folder=True)
def take(views, node, peers, ages, begin, end, given, given_end, age_max):
    """Fill the view with what was told: first into empty places, then in place of what was given away.

    given  what the node offered: itself, then members of its view
    """
    size, last = views.peers.shape[1], given_end - 1
    for told in range(begin, end):
        peer, place = peers[told], find(views, node, peers[told])
        if place < 0 and views.count[node] >= size:
            lost = -1
            while last > 0 and lost < 0:
                lost = find(views, node, given[last])
                last -= 1
            if lost < 0:
                continue
            forget(views, node, lost)
        if peer == node or ages[told] > age_max:
            continue
        if place < 0:
            place = views.count[node]
            views.peers[node, place] = peer
            views.count[node] += 1
        elif ages[told] >= views.ages[node, place]:
            continue
        views.ages[node, place] = ages[told]


@njit(folder=True)
def find(views, node, peer):
    """Return the place of `peer` in the view; -1 where it is not there."""
    for place in range(views.count[node]):
        if views.peers[node, place] == peer:
            return place
    return -1


@njit(folder=True)
def forget(views, node, place):
    """Drop an entry; the last one takes its place."""
    last = views.count[node] - 1
    views.peers[node, place], views.ages[node, place] = views.peers[node, last], views.ages[node, last]
    views.peers[node, last] = -1
    views.count[node] = last


@njit(folder=True)
def hear(views, node, peer):
    """`peer` has spoken to `node`: it need not be greeted any more."""
    for place in range(views.contacts.shape[1]):
        if views.contacts[node, place] == peer:
            views.tries[node, place] = 0
