"""Which views OMen's nodes keep, and whom they tell that they count on them, once per period.  [OM Alg. 4-5]

The rules are those of `OMenNode._want_views` and of `Views.registrations`. A node keeps views for its L predecessors on
the ring and for the nodes of events that it knows of, at most 2L. It holds the record of a predecessor as soon as that
one takes it for one of its L successors.

A backup counts the nodes that have told it so (`primaries`). A node that departs tells nobody, so backups forget it
after `2 * REGISTER_PERIODS`. A backup that restarts has forgotten all, and is told again within `REGISTER_PERIODS`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.local_views import gossip
from trellis.cycles.pool import Pool, drop_from_row, is_short, make_room
from trellis.cycles.view_state import is_restless, next_stamp
from trellis.jit import njit
from trellis.protocols.omen.views import NEW_PERIODS, REGISTER_PERIODS

LEAVES, JOINS = 0, 1  # kinds of events


class Periods(NamedTuple):
    """Own periods of all nodes, and what they have told their backups."""

    ticks: Any  # int32[nodes]: periods since the node joined
    lives: Any  # int32[nodes]: how often a node has joined
    told: Pool  # the backups that each node has told, and the life of each then


@njit(folder=True)
def view_cycle(views, standing, samples, rings, wants, terms, desk, periods, events, acts, turn, chance, margins):
    """Let nodes have their periods and gossip about backups, from `acts[turn]` on.

    events   offsets by node, the nodes of events that it knows of, and their kinds
    acts     of each act twice the node, plus 1 where it gossips
    margins  entries that must be free before an act: in the tables, in the backups, in what backups were told
    Return where a pool was short or else the end, and the number of exchanges.
    """
    exchanges = 0
    while turn < len(acts):
        if is_short(views.known, margins[0]) or is_short(views.backups, margins[1]):
            break
        if is_short(periods.told, margins[2]):
            break
        node = np.int64(acts[turn] >> 1)
        if acts[turn] & 1:
            exchanges += gossip(views, standing, samples, rings, wants, terms, desk, node, chance)
        else:
            periods.ticks[node] += 1
            want_views(views, standing, rings, terms, desk, node, events)
            register(views, standing, terms, desk, node, periods)
        turn += 1
    return turn, exchanges


@njit(folder=True, forceinline=True)
def is_successor(rings, node, other, length):
    """Return whether `node` takes `other` for one of its L successors."""
    place, end = 0, min(length, rings.count[node])
    while place < end and rings.peers[node, place] != other:
        place += 1
    return place < end


@njit(folder=True, forceinline=True)
def want_views(views, standing, rings, terms, desk, node, events):
    """Keep the views of L predecessors and of events, and no others."""
    offsets, about, kinds = events
    slots, wanted = views.whose.shape[1], np.empty(views.whose.shape[1], np.int64)
    count, stamp = 0, next_stamp(desk)
    for place in range(rings.count[node] - 1, max(-1, rings.count[node] - 1 - terms.length), -1):
        wanted[count] = rings.peers[node, place]
        desk.mark[wanted[count]] = stamp
        count += 1
    for place in range(offsets[node], offsets[node + 1]):
        one = about[place]
        if count < slots and desk.mark[one] != stamp and is_known(views, rings, node, one):
            wanted[count] = one
            desk.mark[one] = stamp
            count += 1
    is_same = count == views.count[node]
    for slot in range(count):
        is_same = is_same and views.whose[node, slot] == wanted[slot]
    if not is_same:
        arrange(views, node, wanted, count)
    for slot in range(count):
        one = np.int64(views.whose[node, slot])
        held = views.held[node, slot] or is_successor(rings, one, node, terms.length)
        joins = not held or standing.links.count[one] == 0
        for place in range(offsets[node], offsets[node + 1]):
            joins = joins or (about[place] == one and kinds[place] == JOINS)
        if joins and not views.joiner[node, slot]:
            views.ready[node, slot], views.rounds[node, slot] = False, 0
        views.held[node, slot], views.joiner[node, slot] = held, joins


@njit(folder=True, forceinline=True)
def is_known(views, rings, node, one):
    """Return whether a node knows the topics of another: by its record, or by the ring."""
    for slot in range(views.count[node]):
        if views.whose[node, slot] == one and views.held[node, slot]:
            return True
    return is_successor(rings, node, one, rings.count[node])


@njit(folder=True)
def arrange(views, node, wanted, count):
    """Put the views of a node into the order of `wanted`. New ones are empty, others are dropped."""
    slots = views.whose.shape[1]
    for slot in range(count):
        found = -1
        for other in range(slot, views.count[node]):
            if views.whose[node, other] == wanted[slot]:
                found = other
        if found >= 0:
            swap(views, node, slot, found)
            continue
        found = views.count[node]  # A free place, or that of a view that is not wanted.
        if found == slots:
            for other in range(slot, slots):
                if not is_in(wanted, slot + 1, count, views.whose[node, other]):
                    found = other
        else:
            views.count[node] += 1
        swap(views, node, slot, found)
        views.whose[node, slot], views.rounds[node, slot] = wanted[slot], 0
        views.ready[node, slot] = views.held[node, slot] = views.joiner[node, slot] = False
        views.backups.count[views.row[node, slot]] = 0
    views.count[node] = count


@njit(folder=True, forceinline=True)
def is_in(listed, begin, end, value):
    while begin < end and listed[begin] != value:
        begin += 1
    return begin < end


@njit(folder=True)
def swap(views, node, one, other):
    for array in (views.whose, views.rounds, views.row):
        array[node, one], array[node, other] = array[node, other], array[node, one]
    for array in (views.ready, views.held, views.joiner):
        array[node, one], array[node, other] = array[node, other], array[node, one]


@njit(folder=True, forceinline=True)
def register(views, standing, terms, desk, node, periods):
    """Tell nodes that they are backups, and those that are not so any more (A-OMN-11)."""
    tick, lives, told = periods.ticks[node], periods.lives, periods.told
    if tick % NEW_PERIODS and is_restless(views, terms, node):
        return
    again, stamp, chosen = tick % REGISTER_PERIODS == 0, next_stamp(desk), 0
    for slot in range(views.count[node]):
        row = views.row[node, slot]
        begin = views.backups.start[row]
        for place in range(begin, begin + views.backups.count[row]):
            peer = views.backups.data[place, 0]
            if desk.mark[peer] != stamp:
                desk.mark[peer] = stamp
                chosen += 1
    begin, left = told.start[node], 0
    for place in range(begin, begin + told.count[node]):  # Those that were told, and stay or are told the end.
        peer, life = told.data[place, 0], told.data[place, 1]
        if desk.mark[peer] == stamp:
            if again and life != lives[peer] and standing.alive[peer]:
                standing.primaries[peer] += 1
                life = lives[peer]
            told.data[begin + left, 0], told.data[begin + left, 1] = peer, life
            desk.mark[peer] = 0
            left += 1
        elif life == lives[peer]:
            standing.primaries[peer] -= 1
    told.count[node] = left
    make_room(told, node, chosen)
    for slot in range(views.count[node]):
        row = views.row[node, slot]
        first = views.backups.start[row]
        for place in range(first, first + views.backups.count[row]):
            peer = views.backups.data[place, 0]
            if desk.mark[peer] == stamp:
                desk.mark[peer] = 0
                at = told.start[node] + told.count[node]
                there = standing.alive[peer]
                told.data[at, 0], told.data[at, 1] = peer, lives[peer] if there else -1
                standing.primaries[peer] += there
                told.count[node] += 1


@njit(folder=True)
def forget_views(views, node):
    """Let a node that joins know nobody, and have no views."""
    views.known.count[node] = views.shared[node] = views.clock[node] = 0
    views.built[node] = -1
    for slot in range(views.count[node]):
        views.backups.count[views.row[node, slot]] = 0
    views.count[node] = 0


@njit(folder=True)
def bury(views, standing, node, gone):
    """Let a node forget one of which it knows that it is gone. Views that counted on it are not ready any more."""
    for place in range(standing.buriers.shape[1]):
        if standing.buriers[gone, place] == -1:
            standing.buriers[gone, place] = node
            break
        if standing.buriers[gone, place] == node:
            break
    place = drop_from_row(views.known, node, gone)
    if place >= 0 and place < views.shared[node]:
        views.shared[node] -= 1
    for slot in range(views.count[node]):
        if drop_from_row(views.backups, views.row[node, slot], gone) >= 0:
            views.ready[node, slot] = False


@njit(folder=True)
def end_registrations(primaries, lives, peers, told_lives):
    """Let backups forget a node that has departed and that had told them."""
    for place in range(len(peers)):
        if told_lives[place] == lives[peers[place]]:
            primaries[peers[place]] -= 1


@njit(folder=True)
def view_sizes(views, standing, desk, order, sizes, backed):
    """Put the number of distinct nodes in B and N of all views of each node of `order` into `sizes` (A-OMN-13).

    backed  int32[nodes]: gets the number of views in which each node is a backup
    """
    backed[:] = 0
    for turn in range(len(order)):
        node, stamp, count = np.int64(order[turn]), next_stamp(desk), 0
        for slot in range(views.count[node]):
            row, whose = views.row[node, slot], views.whose[node, slot]
            begin = views.backups.start[row]
            for place in range(begin, begin + views.backups.count[row]):
                peer = views.backups.data[place, 0]
                backed[peer] += 1
                count += desk.mark[peer] != stamp
                desk.mark[peer] = stamp
            if views.held[node, slot]:
                begin = standing.links.start[whose]
                for place in range(begin, begin + standing.links.count[whose]):
                    peer = standing.links.data[place, 0]
                    count += desk.mark[peer] != stamp
                    desk.mark[peer] = stamp
        sizes[turn] = count
