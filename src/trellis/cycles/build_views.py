"""How OMen's local views are built in cycles: candidates, the choice of backups, and whether a view is ready.

The rules are those of `Views._build` and `Views._rebuild` of `trellis.protocols.omen.views`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

import numpy as np

from trellis.cycles.backups import choose_backups, turn_pairs
from trellis.cycles.pool import make_room
from trellis.cycles.view_state import PEER, WEIGHT, is_settled, next_stamp, weight_of
from trellis.jit import njit

_STEP, _OTHER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


@njit(folder=True, forceinline=True)
def begin_places(views, wants, desk, node, slot):
    """Number the topics of the node that a view is for. Return the stamp that they bear."""
    whose, stamp = views.whose[node, slot], next_stamp(desk)
    for at in range(wants.offsets[whose], wants.offsets[whose + 1]):
        desk.place[wants.topics[at]], desk.place_mark[wants.topics[at]] = at - wants.offsets[whose], stamp
    return stamp


@njit(folder=True, forceinline=True)
def offer(wants, desk, stamp, peer, weight, count):
    """Add a candidate if it has one of the topics. Return the number of candidates then."""
    offers = desk.offers
    end = offers.offsets[count]
    for at in range(wants.offsets[peer], wants.offsets[peer + 1]):
        topic = wants.topics[at]
        if desk.place_mark[topic] == stamp:
            offers.places_of[end] = desk.place[topic]
            end += 1
    if end > offers.offsets[count]:
        offers.nodes[count], offers.weights[count] = peer, weight
        count += 1
        offers.offsets[count] = end
    return count


@njit(folder=True)
def build_local(views, standing, wants, terms, desk, node, slot):
    """Choose the backups of a view among the nodes that are known, and this node itself."""
    known, stamp = views.known, begin_places(views, wants, desk, node, slot)
    whose, begin, count = views.whose[node, slot], views.known.start[node], 0
    for place in range(begin, begin + known.count[node]):
        peer = known.data[place, PEER]
        if peer != whose:
            count = offer(wants, desk, stamp, peer, known.data[place, WEIGHT], count)
    if node != whose:
        count = offer(wants, desk, stamp, node, weight_of(standing, node), count)
    finish_view(views, wants, terms, desk, node, slot, count)


@njit(folder=True)
def build_global(views, standing, wants, terms, desk, node):
    """Choose the backups of all views of a node that are not settled, among all living nodes (OMen-G)."""
    for slot in range(views.count[node]):
        if is_settled(views, terms, node, slot):
            continue
        stamp, whose, count = begin_places(views, wants, desk, node, slot), views.whose[node, slot], 0
        seen = next_stamp(desk)
        for at in range(wants.offsets[whose], wants.offsets[whose + 1]):
            topic = wants.topics[at]
            for one in range(wants.topic_offsets[topic], wants.topic_offsets[topic + 1]):
                peer = np.int64(wants.subscribers[one])
                if desk.mark[peer] != seen and peer != whose and standing.alive[peer]:
                    desk.mark[peer] = seen
                    count = offer(wants, desk, stamp, peer, weight_of(standing, peer), count)
        finish_view(views, wants, terms, desk, node, slot, count)


@njit(folder=True)
def finish_view(views, wants, terms, desk, node, slot, count):
    """Let the rule choose among `count` candidates, keep what it chose, and decide whether the view is ready.

    The draws depend on the view alone, so the same candidates give the same backups (A-OMN-10).
    """
    whose, offers, row = views.whose[node, slot], desk.offers, views.row[node, slot]
    places = np.int64(wants.offsets[whose + 1] - wants.offsets[whose])
    turn_pairs(offers, count, places)
    offers.chance[0] = (terms.seed + np.uint64(node) * _STEP) ^ (np.uint64(whose) * _OTHER)
    coverage = max(terms.coverage, 1) if views.joiner[node, slot] else terms.coverage  # A-OMN-7
    chosen = choose_backups(terms.routine, coverage, offers, count, places)
    make_room(views.backups, row, chosen)
    begin = views.backups.start[row]
    for at in range(chosen):
        views.backups.data[begin + at, 0] = offers.nodes[offers.chosen[at]]
    views.backups.count[row] = chosen
    enough = True
    if terms.coverage > 0:
        for place in range(places):
            covered = offers.place_offsets[place + 1] == offers.place_offsets[place]
            for at in range(offers.place_offsets[place], offers.place_offsets[place + 1]):
                covered = covered or offers.is_chosen[offers.candidates_of[at]]
            enough = enough and covered
    rounds = terms.ready_rounds
    if views.joiner[node, slot]:
        rounds = max(rounds, min(rounds + places // 16, terms.join_rounds))
    views.ready[node, slot] = enough and views.rounds[node, slot] >= rounds
