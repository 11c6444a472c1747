"""OMen's local views in cycles: for each of the L predecessors a set of backups, prepared by gossip.  [OM Alg. 2-4]

The rules are those of `trellis.protocols.omen.views`. Each node has a table of nodes that it knows by the gossip about
backups, and up to 2L views. An entry of a table has the peer, the round in which the descriptor was made (counted in
the holder's own rounds), and the peer's weight and degree at that time.

In the protocol descriptors of the peer sampling carry weight and degree, too. Here samples are told with the present
ones: they are a few rounds old.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

import numpy as np

from trellis.cycles.build_views import build_global, build_local
from trellis.cycles.chance import below
from trellis.cycles.pool import make_room
from trellis.cycles.view_state import BORN, DEGREE, PEER, WEIGHT, is_restless, is_settled, next_stamp, weight_of
from trellis.jit import njit
from trellis.protocols.omen.views import AGE_MAX, JOIN_PARTNERS, KNOWN_MAX, RESTING

_PEER, _AGE_SHIFT = np.uint32((1 << 26) - 1), np.uint32(26)  # of an entry of `trellis.cycles.newscast`
WANTED = 1 << 40  # added to stamps of topics of all views of a node that are not settled


@njit(folder=True, forceinline=True)
def gossip(views, standing, samples, rings, wants, terms, desk, node, chance):
    """Let a node gossip about backups: seldom if its views are settled, often for a joiner. Return the exchanges."""
    advance(views, node)
    hurries = False
    for slot in range(views.count[node]):
        views.rounds[node, slot] += 1
        hurries = hurries or (views.joiner[node, slot] and not views.ready[node, slot])
    restless = is_restless(views, terms, node)
    if terms.everybody:
        if restless:
            build_global(views, standing, wants, terms, desk, node)
        return 0
    if not restless and below(chance, RESTING) != 0:
        return 0
    count = list_partners(views, samples, rings, node, desk)
    if count == 0:
        return 0
    chosen, more = np.empty(1 + JOIN_PARTNERS, np.int64), min(JOIN_PARTNERS, count) if hurries else 0
    chosen[0] = desk.partners[below(chance, count)]
    for one in range(more):
        drawn = one + below(chance, count - one)
        desk.partners[one], desk.partners[drawn] = desk.partners[drawn], desk.partners[one]
        chosen[1 + one] = desk.partners[one]
    exchanges = 0
    for one in range(1 + more):
        exchanges += exchange(views, standing, samples, wants, terms, desk, node, chosen[one])
    return exchanges


@njit(folder=True, forceinline=True)
def advance(views, node):
    """A round of the node begins. Drop entries that are too old now."""
    views.clock[node] += 1
    oldest, known, left, shared = views.clock[node] - AGE_MAX, views.known, 0, 0
    begin = known.start[node]
    for place in range(begin, begin + known.count[node]):
        if known.data[place, BORN] >= oldest:
            shared += place - begin < views.shared[node]
            if begin + left != place:
                copy_entry(known.data, begin + left, known.data, place)
            left += 1
    known.count[node], views.shared[node] = left, shared


@njit(folder=True, forceinline=True)
def list_partners(views, samples, rings, node, desk):
    """List the nodes with which a node may gossip: of its views, its ring and its samples. Return their number."""
    stamp, count, partners = next_stamp(desk), 0, desk.partners
    desk.mark[node] = stamp
    begin = views.known.start[node]
    for place in range(begin, begin + views.shared[node]):
        peer = views.known.data[place, PEER]
        if desk.mark[peer] != stamp and count < len(partners):
            desk.mark[peer], partners[count] = stamp, peer
            count += 1
    for place in range(rings.count[node]):
        peer = rings.peers[node, place]
        if desk.mark[peer] != stamp and count < len(partners):
            desk.mark[peer], partners[count] = stamp, peer
            count += 1
    begin = node * (samples.size + 1)
    for place in range(begin, begin + samples.count[node]):
        peer = np.int32(samples.entries[place] & _PEER)
        if desk.mark[peer] != stamp and count < len(partners):
            desk.mark[peer], partners[count] = stamp, peer
            count += 1
    return count


@njit(folder=True)
def exchange(views, standing, samples, wants, terms, desk, node, partner):
    """Let two nodes tell each other what they know. Return whether the partner was there."""
    if not standing.alive[partner]:
        return False
    mine = tell(views, standing, samples, node, desk, desk.mine)
    theirs = tell(views, standing, samples, partner, desk, desk.theirs)
    learn(views, standing, wants, terms, desk, partner, desk.mine, mine)
    learn(views, standing, wants, terms, desk, node, desk.theirs, theirs)
    return True


@njit(folder=True)
def tell(views, standing, samples, node, desk, told):
    """Fill `told`: the node itself, its samples, and its shared entries, all one hop older. Return their number.

    BORN is an age here. Where a node is both a sample and shared, what the table knows is told, as `TMan` does it.
    """
    stamp, count, most = next_stamp(desk), 1, len(told)
    told[0, PEER], told[0, BORN] = node, 0
    told[0, WEIGHT], told[0, DEGREE] = weight_of(standing, node), standing.links.count[node]
    desk.mark[node] = stamp
    begin = node * (samples.size + 1)
    for place in range(begin, begin + samples.count[node]):
        entry = samples.entries[place]
        peer = np.int32(entry & _PEER)
        told[count, PEER], told[count, BORN] = peer, np.int32(entry >> _AGE_SHIFT) + 1
        told[count, WEIGHT], told[count, DEGREE] = weight_of(standing, peer), standing.links.count[peer]
        desk.mark[peer], desk.at[peer] = stamp, count
        count += 1
    begin, data = views.known.start[node], views.known.data
    for place in range(begin, begin + views.shared[node]):
        peer = data[place, PEER]
        at = desk.at[peer] if desk.mark[peer] == stamp else count
        if at == most:
            continue
        told[at, PEER], told[at, BORN] = peer, views.clock[node] + 1 - data[place, BORN]
        told[at, WEIGHT], told[at, DEGREE] = data[place, WEIGHT], data[place, DEGREE]
        count += at == count
    return count


@njit(folder=True, forceinline=True)
def is_refused(standing, node, peer):
    """Return whether a node knows that a peer is gone."""
    if standing.alive[peer]:
        return False
    place = 0
    while place < standing.buriers.shape[1] and standing.buriers[peer, place] != node:
        place += 1
    return place < standing.buriers.shape[1]


@njit(folder=True)
def learn(views, standing, wants, terms, desk, node, told, told_count):
    """Take in what another node tells, the younger of two descriptors of a node. Then select."""
    known, stamp, now = views.known, next_stamp(desk), views.clock[node]
    make_room(known, node, known.count[node] + told_count)
    data, begin, count = known.data, known.start[node], known.count[node]
    for place in range(count):
        peer = data[begin + place, PEER]
        desk.mark[peer], desk.at[peer] = stamp, begin + place
    for place in range(told_count):
        peer, age = told[place, PEER], told[place, BORN]
        if peer == node or age > AGE_MAX:
            continue
        if desk.mark[peer] == stamp:
            at = desk.at[peer]
            if now - age <= data[at, BORN]:
                continue
        elif is_refused(standing, node, peer):
            continue
        else:
            at = begin + count
            desk.mark[peer], desk.at[peer] = stamp, at
            count += 1
        data[at, PEER], data[at, BORN] = peer, now - age
        data[at, WEIGHT], data[at, DEGREE] = told[place, WEIGHT], told[place, DEGREE]
    known.count[node] = count
    select(views, standing, wants, terms, desk, node)


@njit(folder=True, forceinline=True)
def select(views, standing, wants, terms, desk, node):
    """Build views once per round, and keep their nodes and all others that could be backups (selectView).

    [OM Alg. 4] After the views have settled only the nodes of B and N stay.
    """
    if views.built[node] == views.clock[node] and is_restless(views, terms, node):
        return
    views.built[node] = views.clock[node]
    known = views.known
    data, begin, count = known.data, known.start[node], known.count[node]
    wanted = next_stamp(desk)  # of topics of views that are not settled
    restless = False
    for slot in range(views.count[node]):
        if not is_settled(views, terms, node, slot):
            build_local(views, standing, wants, terms, desk, node, slot)
    for slot in range(views.count[node]):  # Building a view may settle it.
        if not is_settled(views, terms, node, slot):
            restless = True
            whose = views.whose[node, slot]
            for at in range(wants.offsets[whose], wants.offsets[whose + 1]):
                desk.place_mark[wants.topics[at]] = wanted + WANTED
    stamp = next_stamp(desk)
    for place in range(begin, begin + count):
        desk.mark[data[place, PEER]], desk.at[data[place, PEER]] = stamp, place
    kept = np.empty(count, np.int64)
    shared = 0
    for slot in range(views.count[node]):
        row, whose = views.row[node, slot], views.whose[node, slot]
        first = views.backups.start[row]
        for at in range(first, first + views.backups.count[row]):
            peer = views.backups.data[at, 0]
            if desk.mark[peer] == stamp:
                desk.mark[peer] = 0
                kept[shared] = desk.at[peer]
                shared += 1
        if views.held[node, slot]:
            first = standing.links.start[whose]
            for at in range(first, first + standing.links.count[whose]):
                peer = standing.links.data[at, 0]
                if desk.mark[peer] == stamp:
                    desk.mark[peer] = 0
                    kept[shared] = desk.at[peer]
                    shared += 1
    left, rivals = shared, 0
    if restless:  # the last KNOWN_MAX that could be backups
        for place in range(begin + count - 1, begin - 1, -1):
            peer = data[place, PEER]
            if rivals < KNOWN_MAX and has_marked(wants, desk, peer, wanted + WANTED):
                rivals += 1
                if desk.mark[peer] == stamp:
                    kept[left] = place
                    left += 1
        kept[shared:left] = kept[shared:left][::-1].copy()
    lines = np.empty((left, 4), np.int32)
    for at in range(left):
        copy_entry(lines, at, data, kept[at])
    for at in range(left):
        copy_entry(data, begin + at, lines, at)
    known.count[node], views.shared[node] = left, shared


@njit(folder=True, forceinline=True)
def copy_entry(to, place, data, other):
    to[place, PEER], to[place, BORN] = data[other, PEER], data[other, BORN]
    to[place, WEIGHT], to[place, DEGREE] = data[other, WEIGHT], data[other, DEGREE]


@njit(folder=True, forceinline=True)
def has_marked(wants, desk, node, stamp):
    """Return whether a node has a topic that bears a stamp."""
    at = wants.offsets[node]
    while at < wants.offsets[node + 1] and desk.place_mark[wants.topics[at]] != stamp:
        at += 1
    return at < wants.offsets[node + 1]
