"""OMen's local views in cycles: for each of the L predecessors a set of backups, prepared by gossip.  [OM Alg. 2-4]

The rules are those of `trellis.protocols.omen.views`. Each node has a table of nodes that it knows by the gossip about
backups, and up to 2L views. An entry of a table has the peer, the round in which the descriptor was made (counted in
the holder's own rounds), and the peer's weight and degree at that time.

In the protocol descriptors of the peer sampling carry weight and degree, too. Here samples are told with the present
ones: they are a few rounds old.

V1  a view has no node twice, and not the node that it is for.
V2  the first `shared` entries of a table are the nodes of B and N of all views, as far as they are known.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.backups import Offers, choose_backups, make_offers, turn_pairs
from trellis.cycles.chance import below
from trellis.cycles.pool import Pool, is_short, make_pool, make_room
from trellis.jit import njit
from trellis.protocols.omen.views import AGE_MAX, JOIN_PARTNERS, KNOWN_MAX, RESTING
from trellis.protocols.wire import PEERS_MAX

PEER, BORN, WEIGHT, DEGREE = range(4)  # of an entry of a table
_PEER, _AGE_SHIFT = np.uint32((1 << 26) - 1), np.uint32(26)  # of an entry of `trellis.cycles.newscast`
WANTED = 1 << 40  # added to stamps of topics of all views of a node that are not settled
_STEP, _OTHER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


class Terms(NamedTuple):
    """The settings of a run that kernels need."""

    routine: int
    coverage: int
    length: int  # L
    ready_rounds: int
    join_rounds: int
    view_rounds: int
    everybody: bool  # OMen-G: all living nodes are candidates, and there is no gossip about backups
    seed: Any  # uint64


class LocalViews(NamedTuple):
    """What all nodes know about backups. A view is at [node, slot]; slots are used from the first on."""

    known: Pool  # PEER, BORN, WEIGHT, DEGREE
    shared: Any  # int32[nodes]
    clock: Any  # int32[nodes]: own rounds
    built: Any  # int32[nodes]: the own round in which views were last built
    count: Any  # int32[nodes]: views
    whose: Any  # int32[nodes, 2L]: the node that the view is for
    rounds: Any  # int32[nodes, 2L]: gossip rounds since the view was new
    ready: Any  # bool[nodes, 2L]
    joiner: Any  # bool[nodes, 2L]: its node joins, or has no links yet
    held: Any  # bool[nodes, 2L]: the node's record is held here
    row: Any  # int32[nodes, 2L]: the row of its backups
    backups: Pool


class Standing(NamedTuple):
    """What a node tells about itself, and who is there."""

    alive: Any  # bool[nodes]
    links: Pool  # the neighbors of each node
    primaries: Any  # int32[nodes]: nodes that count on it as their backup
    buriers: Any  # int32[nodes, some]: who knows that a node is gone, then -1


class Desk(NamedTuple):
    """Scratch of the kernels."""

    mark: Any  # int32[nodes]
    at: Any  # int32[nodes]
    stamp: Any  # int64[1]: the last one that was used in `mark`
    place: Any  # int32[topics]: place of a topic in the view that is built
    place_mark: Any  # int64[topics]
    mine: Any  # int32[some, 4]: what a node tells
    theirs: Any  # int32[some, 4]
    partners: Any  # int32[some]
    offers: Offers


def make_local_views(nodes: int, length: int) -> LocalViews:
    """Return nodes that know nobody and have no views."""
    slots = 2 * length
    return LocalViews(
        make_pool(nodes, 4, 16, 1 << 16),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.full(nodes, -1, np.int32),
        np.zeros(nodes, np.int32),
        np.full((nodes, slots), -1, np.int32),
        np.zeros((nodes, slots), np.int32),
        np.zeros((nodes, slots), np.bool_),
        np.zeros((nodes, slots), np.bool_),
        np.zeros((nodes, slots), np.bool_),
        np.arange(nodes * slots, dtype=np.int32).reshape(nodes, slots),
        make_pool(nodes * slots, 1, 4, 1 << 16),
    )


def make_desk(wants: Any) -> Desk:
    """Return scratch for all nodes as candidates."""
    nodes, topics = len(wants.offsets) - 1, len(wants.topic_offsets) - 1
    most = int(np.diff(wants.offsets).max(initial=1))
    return Desk(
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(1, np.int64),
        np.zeros(topics, np.int32),
        np.zeros(topics, np.int64),
        np.empty((PEERS_MAX, 4), np.int32),
        np.empty((PEERS_MAX, 4), np.int32),
        np.empty(2 * PEERS_MAX, np.int32),
        make_offers(nodes, max(len(wants.topics), 1), max(most, 1)),
    )


@njit(folder=True)
def next_stamp(desk):
    """Return a number that stands nowhere in `mark`."""
    if desk.stamp[0] >= 2**31 - 2:
        desk.mark[:] = 0
        desk.place_mark[:] = 0
        desk.stamp[0] = 0
    desk.stamp[0] += 1
    return desk.stamp[0]


@njit(folder=True)
def is_settled(views, terms, node, slot):
    """Return whether a view is ready and was improved for long enough."""
    return views.ready[node, slot] and views.rounds[node, slot] > terms.view_rounds


@njit(folder=True)
def is_restless(views, terms, node):
    """Return whether any view of a node is not settled."""
    for slot in range(views.count[node]):
        if not is_settled(views, terms, node, slot):
            return True
    return False


@njit(folder=True)
def weight_of(standing, node):
    return np.int32(standing.links.count[node] + standing.primaries[node])


@njit(folder=True)
def view_cycle(views, standing, samples, rings, wants, terms, desk, order, turn, chance, margins, exchanges):
    """Let nodes gossip about backups once each, from `order[turn]` on. Return where a pool was short, or the end.

    margins    entries that must be free in the pool of tables, and in that of backups, before a node acts
    exchanges  int64[1]: counted
    """
    while turn < len(order):
        if is_short(views.known, margins[0]) or is_short(views.backups, margins[1]):
            return turn
        node = np.int64(order[turn])
        turn += 1
        advance(views, node)
        for slot in range(views.count[node]):
            views.rounds[node, slot] += 1
        restless = is_restless(views, terms, node)
        if terms.everybody:
            if restless:
                build_global(views, standing, wants, terms, desk, node)
            continue
        if not restless and below(chance, RESTING) != 0:
            continue
        hurries = False
        for slot in range(views.count[node]):
            hurries = hurries or (views.joiner[node, slot] and not views.ready[node, slot])
        count = list_partners(views, samples, rings, node, desk)
        if count == 0:
            continue
        partner = np.int64(desk.partners[below(chance, count)])
        exchanges[0] += exchange(views, standing, samples, wants, terms, desk, node, partner)
        if hurries:
            count = list_partners(views, samples, rings, node, desk)
            chosen = np.empty(JOIN_PARTNERS, np.int32)
            more = min(JOIN_PARTNERS, count)
            for one in range(more):
                drawn = one + below(chance, count - one)
                desk.partners[one], desk.partners[drawn] = desk.partners[drawn], desk.partners[one]
                chosen[one] = desk.partners[one]
            for one in range(more):
                exchanges[0] += exchange(views, standing, samples, wants, terms, desk, node, np.int64(chosen[one]))
    return turn


@njit(folder=True)
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


@njit(folder=True)
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


@njit(folder=True)
def is_refused(standing, node, peer):
    """Return whether a node knows that a peer is gone."""
    if standing.alive[peer]:
        return False
    for place in range(standing.buriers.shape[1]):
        if standing.buriers[peer, place] == node:
            return True
    return False


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


@njit(folder=True)
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


@njit(folder=True)
def copy_entry(to, place, data, other):
    to[place, PEER], to[place, BORN] = data[other, PEER], data[other, BORN]
    to[place, WEIGHT], to[place, DEGREE] = data[other, WEIGHT], data[other, DEGREE]


@njit(folder=True)
def has_marked(wants, desk, node, stamp):
    """Return whether a node has a topic that bears a stamp."""
    for at in range(wants.offsets[node], wants.offsets[node + 1]):
        if desk.place_mark[wants.topics[at]] == stamp:
            return True
    return False


@njit(folder=True)
def begin_places(views, wants, desk, node, slot):
    """Number the topics of the node that a view is for. Return the stamp that they bear."""
    whose, stamp = views.whose[node, slot], next_stamp(desk)
    for at in range(wants.offsets[whose], wants.offsets[whose + 1]):
        desk.place[wants.topics[at]], desk.place_mark[wants.topics[at]] = at - wants.offsets[whose], stamp
    return stamp


@njit(folder=True)
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
