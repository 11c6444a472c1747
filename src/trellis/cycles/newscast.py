"""Newscast in cycles: each node exchanges its view with a random member of it, once per cycle.

The rules are those of `trellis.protocols.newscast`. The view of a node is a row of entries, and an entry is one number:
its age times 2^26, plus the peer. Entries stand youngest first. So a merge is one pass over two sorted rows that ends
when the view is full, and a row of 20 entries fits into two cache lines.

V1  in each row entries ascend, without the node itself and repeats; the places that are not used hold NONE.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below, shuffle
from trellis.jit import njit

NODES_MAX = 1 << 26
AGE_MAX = 61  # the greatest age that an entry may have
CONTACT_TRIES = 3  # as in `trellis.protocols.sampling.Contacts`
_AGE, _PEER = np.uint32(NODES_MAX), np.uint32(NODES_MAX - 1)
NONE = np.uint32((1 << 32) - 1 - NODES_MAX)  # above every entry, also one round older


class Views(NamedTuple):
    """The views of all nodes."""

    size: int  # entries of a view at most (Newscast's c)
    entries: Any  # uint32[nodes * (size + 1) + 1]
    count: Any  # int32[nodes]
    silent: Any  # int32[nodes]: rounds since the node last heard anybody
    contacts: Any  # int32[nodes, contacts]: whom it knows when it joins, then -1
    tries: Any  # int8[nodes, contacts]: how often the contact will still be greeted
    greetings: Any  # int8[nodes]: contacts that will still be greeted


def make_views(contacts: Any, size: int) -> Views:
    """Return empty views of nodes that know `contacts`, an array of nodes x contacts."""
    nodes = len(contacts)
    contacts = np.ascontiguousarray(contacts, np.int32)
    tries = np.where(contacts >= 0, CONTACT_TRIES, 0).astype(np.int8)
    return Views(
        size,
        np.full(nodes * (size + 1) + 1, NONE, np.uint32),  # `merge` looks one entry beyond a row
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        contacts,
        tries,
        (tries > 0).sum(axis=1).astype(np.int8),
    )


def peers_of(views: Views, node: int) -> Any:
    """Return the members of a view, youngest first."""
    begin = node * (views.size + 1)
    return (views.entries[begin : begin + views.count[node]] & _PEER).astype(np.int32)


def ages_of(views: Views, node: int) -> Any:
    """Return the ages of the members of a view, in rounds and hops."""
    begin = node * (views.size + 1)
    return (views.entries[begin : begin + views.count[node]] // _AGE).astype(np.int32)


@njit(folder=True)
def newscast_cycle(views, alive, order, chance, mark, age_max, lonely_rounds):
    """Let each node of `order` exchange views once, in random order. Return the number of exchanges.

    alive  bool[nodes]: who answers
    order  the nodes that act; it is shuffled
    mark   int32[nodes], scratch
    """
    theirs, mine = np.empty(3 * views.size + 3, np.uint32), np.empty(3 * views.size + 3, np.uint32)
    oldest = np.uint32(np.uint32(age_max) * _AGE + _PEER)
    shuffle(order, chance)
    mark[:] = 0
    stamp, exchanges = 0, 0
    for place in range(len(order)):
        node = np.int64(order[place])
        views.silent[node] += 1
        grow_older(views, node, oldest)
        partner = choose_partner(views, node, chance, lonely_rounds)
        if partner < 0 or not alive[partner]:
            continue
        stamp += 2  # both learn what the other knew before
        their_count = merge(views, partner, node, chance, mark, stamp - 1, oldest, theirs)
        my_count = merge(views, node, partner, chance, mark, stamp, oldest, mine)
        keep(views, partner, theirs, their_count)
        keep(views, node, mine, my_count)
        hear(views, node, partner)
        hear(views, partner, node)
        exchanges += 1
    return exchanges


@njit(folder=True)
def grow_older(views, node, oldest):
    """A round of the node begins: entries grow older, and those that grow too old are dropped."""
    entries, begin, count = views.entries, node * (views.size + 1), views.count[node]
    for place in range(begin, begin + count):
        entries[place] += _AGE
    while count > 0 and entries[begin + count - 1] > oldest:
        count -= 1
        entries[begin + count] = NONE
    views.count[node] = count


@njit(folder=True)
def choose_partner(views, node, chance, lonely_rounds):
    """Return a contact that was not heard yet, or a random member of the view; -1: the node knows nobody."""
    contacts, count = views.contacts.shape[1], views.count[node]
    if views.greetings[node] > 0:
        for place in range(contacts):
            if views.tries[node, place] > 0:
                views.tries[node, place] -= 1
                views.greetings[node] -= views.tries[node, place] == 0
                return np.int64(views.contacts[node, place])
    if count == 0 or views.silent[node] > lonely_rounds:
        known = 0
        while known < contacts and views.contacts[node, known] >= 0:
            known += 1
        if known > 0:
            return np.int64(views.contacts[node, below(chance, known)])
        if count == 0:
            return -1
    return np.int64(views.entries[node * (views.size + 1) + below(chance, count)] & _PEER)


@njit(folder=True)
def merge(views, node, teller, chance, mark, stamp, oldest, kept):
    """Put the youngest of the view of `node` and of what `teller` tells it into `kept`. Return their number.

    Told are the teller itself at age 0, and its view one hop older. Where the view fills up among equals, draw.
    """
    entries, size = views.entries, views.size
    mark[node] = mark[teller] = stamp
    kept[0], filled = teller, 1
    if size == 1:
        oldest = kept[0] | _PEER
    own, told = node * (size + 1), teller * (size + 1)
    mine, theirs = entries[own], np.uint32(entries[told] + _AGE)
    while True:
        if mine <= theirs:
            entry = mine
            own += 1
            mine = entries[own]
        else:
            entry = theirs
            told += 1
            theirs = np.uint32(entries[told] + _AGE)
        if entry > oldest:
            break
        if mark[entry & _PEER] != stamp:
            mark[entry & _PEER] = stamp
            kept[filled] = entry
            filled += 1
            if filled >= size:
                oldest = kept[size - 1] | _PEER  # those as young as the last one take part in the draw
    if filled > size:
        begin, first = size - 1, np.uint32(oldest - _PEER)
        while begin > 0 and kept[begin - 1] >= first:
            begin -= 1
        for place in range(begin, size):
            drawn = place + below(chance, filled - place)
            kept[place], kept[drawn] = kept[drawn], kept[place]
        sort(kept, begin, size)
        filled = size
    place = 1  # the teller was put first, without looking at the others of age 0
    while place < filled and kept[place] < kept[place - 1]:
        kept[place], kept[place - 1] = kept[place - 1], kept[place]
        place += 1
    return filled


@njit(folder=True)
def sort(kept, begin, end):
    """Sort a few entries by insertion."""
    for last in range(begin + 1, end):
        entry, place = kept[last], last
        while place > begin and kept[place - 1] > entry:
            kept[place] = kept[place - 1]
            place -= 1
        kept[place] = entry


@njit(folder=True)
def keep(views, node, kept, count):
    begin = node * (views.size + 1)
    for place in range(count):
        views.entries[begin + place] = kept[place]
    for place in range(count, views.count[node]):
        views.entries[begin + place] = NONE
    views.count[node] = count


@njit(folder=True)
def hear(views, node, peer):
    """`peer` has spoken to `node`: it need not be greeted any more."""
    views.silent[node] = 0
    if views.greetings[node] > 0:
        for place in range(views.contacts.shape[1]):
            if views.contacts[node, place] == peer and views.tries[node, place] > 0:
                views.tries[node, place] = 0
                views.greetings[node] -= 1
