"""Views by gossip in cycles: each node knows those of whom it has heard lately.  [SC §2.2, A-SPC-19]

The rules are those of `trellis.protocols.gossip_view`, with its Newscast and its tables of descriptors. One thing
differs: an exchange takes no time, so that request and reply are heard in the tick in which the node has its turn.

Draws depend on the order of entries. So a row has its entries in the order that the protocol's dict would have.

G1  `bits` of a node has exactly the nodes of its row in `known`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below
from trellis.jit import njit
from trellis.protocols.gossip_view import GossipViewConfig

PEER, BORN, LIFE = range(3)  # columns of an entry: BORN is the round of the holder in which it was made
AGE = BORN  # the same column of what is told
BURIED, BURIED_ROUND, KNOWN_LIFE, SAMPLED_LIFE = range(4)  # columns of a grave
GRAVES = 64  # crashed nodes that a node remembers; the oldest are overwritten
CONTACTS, CONTACT_TRIES = 5, 3
_ANY_LIFE = 2**31 - 1
_ONE, _63 = np.uint64(1), np.uint64(63)


class Heard(NamedTuple):
    """Tables of descriptors, a row for each node."""

    age_max: int
    size_max: int
    count: Any  # int32[nodes]
    entries: Any  # int32[nodes, room, 3]


class Gossip(NamedTuple):
    """The gossip of all nodes. Without gossip there are no rows."""

    is_used: bool
    period: int
    lonely_rounds: int
    sampled: Heard  # the samples of Newscast
    known: Heard  # the views
    bits: Any  # uint64[nodes, words]: the nodes in each view
    version: Any  # int32[nodes]: changes of the view so far
    round: Any  # int32[nodes]
    silent: Any  # int32[nodes]: rounds since the node last heard anybody
    life: Any  # int32[nodes]: incarnations so far
    contacts: Any  # int32[nodes, CONTACTS]; -1: none
    tries: Any  # int8[nodes, CONTACTS]: how often the contact will still be greeted
    graves: Any  # int32[nodes, GRAVES, 4]
    buried: Any  # int32[nodes]: graves so far
    place_of: Any  # int32[nodes]: scratch; 1 + the place of a node in the row in question, 0 in between
    news: Any  # int32[2, told, 3]: scratch
    tied: Any  # int32[room, 3]: scratch
    ages: Any  # int32[ages]: scratch
    chance: Any  # uint64[1]


def make_gossip(nodes: int, config: GossipViewConfig | None, chance: Any) -> Gossip:
    """Return the gossip of nodes that have not begun. Without `config` there is none."""
    rows, found = (nodes, config) if config is not None else (0, GossipViewConfig())
    told = found.newscast.view_size + 1
    return Gossip(
        config is not None,
        found.newscast.period_ms,
        found.newscast.lonely_rounds,
        make_heard(rows, found.newscast.age_max, found.newscast.view_size, told),
        make_heard(rows, found.age_max, found.entries_max, told),
        np.zeros((rows, -(-rows // 64)), np.uint64),
        *(np.zeros(rows, np.int32) for _ in range(4)),
        np.full((rows, CONTACTS), -1, np.int32),
        np.zeros((rows, CONTACTS), np.int8),
        np.zeros((rows, GRAVES, 4), np.int32),
        np.zeros(rows, np.int32),
        np.zeros(rows, np.int32),
        np.zeros((2, told, 3), np.int32),
        np.zeros((told + found.newscast.view_size, 3), np.int32),
        np.zeros(max(found.newscast.age_max, found.age_max) + 2, np.int32),
        chance,
    )


def make_heard(nodes: int, age_max: int, size_max: int, told: int) -> Heard:
    return Heard(age_max, size_max, np.zeros(nodes, np.int32), np.zeros((nodes, size_max + told, 3), np.int32))


@njit(folder=True)
def begin_gossip(gossip, living, node):
    """Let a node that joins know some of the living, itself among `living`. Return the delay of its first exchange."""
    gossip.sampled.count[node] = gossip.known.count[node] = 0
    gossip.bits[node, :] = np.uint64(0)
    gossip.version[node] = gossip.round[node] = gossip.silent[node] = gossip.buried[node] = 0
    gossip.life[node] += 1
    contacts, tries, found = gossip.contacts[node], gossip.tries[node], 0
    contacts[:], tries[:] = -1, 0
    most = min(len(contacts), len(living) - 1)
    while found < most:
        one = living[below(gossip.chance, len(living))]
        is_new = one != node
        for place in range(found):
            is_new = is_new and contacts[place] != one
        if is_new:
            contacts[found], tries[found] = one, CONTACT_TRIES
            found += 1
    return below(gossip.chance, gossip.period)


@njit(folder=True)
def gossip_round(gossip, alive, node):
    """Begin a round of a node: entries grow older, and it makes an exchange. Return how many messages were sent."""
    gossip.round[node] += 1
    gossip.silent[node] += 1
    drop_old(gossip.sampled, gossip.round[node], node)
    drop_old_known(gossip, node)
    partner = choose_partner(gossip, node)
    if partner < 0 or not alive[partner]:
        return np.int64(partner >= 0)
    mine, theirs = tell(gossip, node, gossip.news[0]), tell(gossip, partner, gossip.news[1])
    hear(gossip, partner, node, gossip.news[0], mine)
    hear(gossip, node, partner, gossip.news[1], theirs)
    return np.int64(2)


@njit(folder=True)
def drop_old(heard, now, node):
    """Drop the samples that are too old."""
    entries, left = heard.entries[node], 0
    for place in range(heard.count[node]):
        if entries[place, BORN] >= now - heard.age_max:
            entries[left] = entries[place]
            left += 1
    heard.count[node] = left


@njit(folder=True)
def drop_old_known(gossip, node):
    """Forget the nodes that are too old."""
    heard, oldest, left = gossip.known, gossip.round[node] - gossip.known.age_max, 0
    entries = heard.entries[node]
    for place in range(heard.count[node]):
        if entries[place, BORN] >= oldest:
            entries[left] = entries[place]
            left += 1
        else:
            clear_bit(gossip, node, entries[place, PEER])
    heard.count[node] = left


@njit(folder=True)
def choose_partner(gossip, node):
    """Return a contact that was not heard yet, or a random sample; -1: the node knows nobody."""
    contacts, tries, count, known = gossip.contacts[node], gossip.tries[node], gossip.sampled.count[node], 0
    for place in range(len(contacts)):
        if tries[place] > 0:
            tries[place] -= 1
            return np.int64(contacts[place])
        known += contacts[place] >= 0
    if count == 0 or gossip.silent[node] > gossip.lonely_rounds:
        if known > 0:
            return np.int64(contacts[below(gossip.chance, known)])
        if count == 0:
            return np.int64(-1)
    return np.int64(gossip.sampled.entries[node, below(gossip.chance, count), PEER])


@njit(folder=True)
def tell(gossip, node, news):
    """Fill `news` with the node itself and its samples, one hop older. Return their number."""
    news[0, PEER], news[0, AGE], news[0, LIFE] = node, 0, gossip.life[node]
    count, now, entries = gossip.sampled.count[node], gossip.round[node], gossip.sampled.entries[node]
    for place in range(count):
        news[place + 1, PEER], news[place + 1, LIFE] = entries[place, PEER], entries[place, LIFE]
        news[place + 1, AGE] = now + 1 - entries[place, BORN]
    return count + 1


@njit(folder=True)
def hear(gossip, node, teller, news, count):
    """Take in what another node has told."""
    gossip.silent[node] = 0
    for place in range(gossip.contacts.shape[1]):
        if gossip.contacts[node, place] == teller:
            gossip.tries[node, place] = 0
    merge(gossip, gossip.sampled, SAMPLED_LIFE, node, news, count)
    keep_the_freshest(gossip, node)
    merge(gossip, gossip.known, KNOWN_LIFE, node, news, count)
    forget_the_oldest(gossip, node)
    entries = gossip.known.entries[node]
    for place in range(max(0, gossip.known.count[node] - count), gossip.known.count[node]):  # New ones stand last.
        set_bit(gossip, node, entries[place, PEER])


@njit(folder=True)
def merge(gossip, heard, grave_life, node, news, told):
    """Take in descriptors. Of each node the better one stays: that of the later incarnation, or the younger one."""
    entries, place_of, now = heard.entries[node], gossip.place_of, gossip.round[node]
    before = heard.count[node]
    count = before
    for place in range(before):
        place_of[entries[place, PEER]] = place + 1
    for one in range(told):
        peer, age, life = news[one, PEER], news[one, AGE], news[one, LIFE]
        born, place = now - age, place_of[peer] - 1
        if place >= 0:
            known_born, known_life = entries[place, BORN], entries[place, LIFE]
            if (born <= known_born and life <= known_life) or (born > known_born and life < known_life):
                continue
        elif peer == node or is_dead(gossip, heard, grave_life, node, peer, born, life):
            continue
        if age <= heard.age_max:
            if place < 0:
                place = count
                count += 1
            entries[place, PEER], entries[place, BORN], entries[place, LIFE] = peer, born, life
    for place in range(before):
        place_of[entries[place, PEER]] = 0
    heard.count[node] = count


@njit(folder=True)
def is_dead(gossip, heard, grave_life, node, peer, born, life):
    """Return whether a descriptor must be refused, because its node was buried after it was made."""
    for place in range(min(gossip.buried[node], GRAVES)):
        grave = gossip.graves[node, place]
        if grave[BURIED] == peer and grave[BURIED_ROUND] >= gossip.round[node] - heard.age_max:
            return life <= grave[grave_life] and born <= grave[BURIED_ROUND]
    return False


@njit(folder=True)
def keep_the_freshest(gossip, node):
    """Reduce the samples to the youngest ones. Ties are broken at random."""
    heard, now, ages, tied = gossip.sampled, gossip.round[node], gossip.ages, gossip.tied
    entries, count, size = heard.entries[node], heard.count[node], heard.size_max
    if count <= size:
        return
    ages[:] = 0
    for place in range(count):
        ages[now - entries[place, BORN]] += 1
    cut, younger = 0, 0
    while younger + ages[cut] < size:
        younger += ages[cut]
        cut += 1
    left, ties = 0, 0
    for place in range(count):
        age = now - entries[place, BORN]
        if age < cut:
            entries[left] = entries[place]
            left += 1
        elif age == cut:
            tied[ties] = entries[place]
            ties += 1
    for place in range(size - left):
        drawn = place + below(gossip.chance, ties - place)
        for column in range(3):
            tied[place, column], tied[drawn, column] = tied[drawn, column], tied[place, column]
        entries[left + place] = tied[place]
    heard.count[node] = size


@njit(folder=True)
def forget_the_oldest(gossip, node):
    """Drop the oldest entries of the view where there are too many. Of equals those that came first are dropped."""
    heard, now, ages = gossip.known, gossip.round[node], gossip.ages
    entries, count, excess = heard.entries[node], heard.count[node], heard.count[node] - heard.size_max
    if excess <= 0:
        return
    ages[:] = 0
    for place in range(count):
        ages[now - entries[place, BORN]] += 1
    cut = heard.age_max
    while ages[cut] < excess:
        excess -= ages[cut]
        cut -= 1
    left = 0
    for place in range(count):
        age = now - entries[place, BORN]
        if age > cut or (age == cut and excess > 0):
            excess -= age == cut
            clear_bit(gossip, node, entries[place, PEER])
        else:
            entries[left] = entries[place]
            left += 1
    heard.count[node] = left


@njit(folder=True)
def bury(gossip, node, gone):
    """Let a node forget one that has crashed, and refuse what others say of that incarnation."""
    place = np.int64(-1)
    for one in range(min(gossip.buried[node], GRAVES)):
        if gossip.graves[node, one, BURIED] == gone:
            place = one
    if place < 0:
        place = gossip.buried[node] % GRAVES
        gossip.buried[node] += 1
    grave = gossip.graves[node, place]
    grave[BURIED], grave[BURIED_ROUND] = gone, gossip.round[node]
    grave[KNOWN_LIFE] = drop_entry(gossip.known, node, gone)
    grave[SAMPLED_LIFE] = drop_entry(gossip.sampled, node, gone)
    clear_bit(gossip, node, gone)


@njit(folder=True)
def drop_entry(heard, node, gone):
    """Drop the entry of a node. Return the incarnation that it had, or one above all."""
    entries, left, life = heard.entries[node], 0, _ANY_LIFE
    for place in range(heard.count[node]):
        if entries[place, PEER] == gone:
            life = entries[place, LIFE]
        else:
            entries[left] = entries[place]
            left += 1
    heard.count[node] = left
    return life


@njit(folder=True)
def set_bit(gossip, node, peer):
    word, bit = peer >> 6, _ONE << (np.uint64(peer) & _63)
    if not gossip.bits[node, word] & bit:
        gossip.bits[node, word] |= bit
        gossip.version[node] += 1


@njit(folder=True)
def clear_bit(gossip, node, peer):
    word, bit = peer >> 6, _ONE << (np.uint64(peer) & _63)
    if gossip.bits[node, word] & bit:
        gossip.bits[node, word] &= ~bit
        gossip.version[node] += 1
