"""Views by gossip in cycles: each node knows those of whom it has heard lately.  [SC §2.2, A-SPC-19]

The rules are those of `trellis.protocols.gossip_view`, with its Newscast and its tables of descriptors. One thing
differs: an exchange takes no time, so that request and reply are heard in the tick in which the node has its turn.

Draws and ties depend on the order of entries. So a row has its entries in the order of the protocol's dict. Rows
of views have holes, where entries were dropped; a row is closed up when it is full.

G1  `bits` of a node has exactly the nodes of its row in `known`.
G2  `at` has the places of the entries of a view, and `made` says how many entries were made in each round.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below
from trellis.cycles.gossip_rows import (
    AGE,
    BORN,
    BURIED,
    BURIED_ROUND,
    HOLE,
    KNOWN_LIFE,
    LIFE,
    PEER,
    SAMPLED_LIFE,
    close_up,
    drop_entry,
    drop_old,
    drop_oldest,
    keep_the_freshest,
    learn,
    merge,
    move,
    set_bit,
)
from trellis.jit import njit
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.newscast import NewscastConfig

GRAVES = 64  # crashed nodes that a node remembers; the oldest are overwritten
CONTACTS, CONTACT_TRIES = 5, 3
HOLES = 16  # times the entries that come with a message: the least number of holes in a row that is closed up
_ANY_LIFE = 2**31 - 1


class Samples(NamedTuple):
    """The samples of Newscast, a row for each node."""

    age_max: int
    size_max: int
    count: Any  # int32[nodes]
    entries: Any  # int32[nodes, 3, room]


class Known(NamedTuple):
    """The views, a row for each node."""

    age_max: int
    size_max: int
    count: Any  # int32[nodes]: entries
    used: Any  # int32[nodes]: entries and holes
    entries: Any  # int32[nodes, 3, room]
    at: Any  # int16[nodes, nodes]: 1 + the place of the entry of a node; 0: there is none
    made: Any  # int32[nodes, age_max + 2]: entries by the round in which they were made, modulo the width


class Gossip(NamedTuple):
    """The gossip of all nodes. Without gossip there are no rows."""

    is_used: bool
    period: int
    lonely_rounds: int
    sampled: Samples
    known: Known
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
    tied: Any  # int32[3, room]: scratch
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
        make_samples(rows, found.newscast, told),
        make_known(rows, found, told),
        np.zeros((rows, -(-rows // 64)), np.uint64),
        np.zeros(rows, np.int32),
        np.zeros(rows, np.int32),
        np.zeros(rows, np.int32),
        np.zeros(rows, np.int32),
        np.full((rows, CONTACTS), -1, np.int32),
        np.zeros((rows, CONTACTS), np.int8),
        np.zeros((rows, GRAVES, 4), np.int32),
        np.zeros(rows, np.int32),
        np.zeros(rows, np.int32),
        np.zeros((2, told, 3), np.int32),
        np.zeros((3, told + found.newscast.view_size), np.int32),
        np.zeros(found.newscast.age_max + 2, np.int32),
        chance,
    )


def make_samples(nodes: int, config: NewscastConfig, told: int) -> Samples:
    entries = np.zeros((nodes, 3, config.view_size + told), np.int32)
    return Samples(config.age_max, config.view_size, np.zeros(nodes, np.int32), entries)


def make_known(nodes: int, config: GossipViewConfig, told: int) -> Known:
    room = view_room(nodes, config)
    return Known(
        config.age_max,
        config.entries_max,
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros((nodes, 3, room), np.int32),
        np.zeros((nodes, nodes), np.int16 if room < 1 << 15 else np.int32),
        np.zeros((nodes, config.age_max + 2), np.int32),
    )


def view_room(nodes: int, config: GossipViewConfig) -> int:
    """Return the length of a row of a view."""
    return min(nodes, config.entries_max) + HOLES * (config.newscast.view_size + 1)


def gossip_memory_needed(nodes: int, config: GossipViewConfig) -> int:
    """Return the bytes that gossip takes."""
    samples = 12 * (2 * config.newscast.view_size + 1)
    a_node = samples + 12 * view_room(nodes, config) + 4 * config.age_max + 16 * GRAVES + 100
    return nodes * a_node + nodes * nodes * 17 // 8


@njit(folder=True)
def begin_gossip(gossip, living, node):
    """Let a node that joins know some of the living, itself among `living`. Return the delay of its first exchange."""
    gossip.sampled.count[node] = gossip.known.count[node] = gossip.known.used[node] = 0
    gossip.known.at[node, :] = 0
    gossip.known.made[node, :] = 0
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
    now, known, sampled = gossip.round[node], gossip.known, gossip.sampled
    sampled.count[node] = drop_old(sampled.entries[node], sampled.count[node], now - sampled.age_max)
    excess = known.made[node, (now - known.age_max - 1) % known.made.shape[1]]  # A round makes one age too old.
    known.count[node] -= excess
    drop_oldest(
        known.entries[node], known.used[node], known.at[node], known.made[node], now - known.age_max - 1, excess,
        gossip.bits[node], gossip.version, node,
    )  # fmt: skip
    partner = choose_partner(gossip, node)
    if partner < 0 or not alive[partner]:
        return np.int64(partner >= 0)
    mine, theirs = tell(gossip, node, gossip.news[0]), tell(gossip, partner, gossip.news[1])
    hear(gossip, partner, node, gossip.news[0, :mine])
    hear(gossip, node, partner, gossip.news[1, :theirs])
    return np.int64(2)


@njit(folder=True, forceinline=True)
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
    return np.int64(gossip.sampled.entries[node, PEER, below(gossip.chance, count)])


@njit(folder=True, forceinline=True)
def tell(gossip, node, news):
    """Fill `news` with the node itself and its samples, one hop older. Return their number."""
    news[0, PEER], news[0, AGE], news[0, LIFE] = node, 0, gossip.life[node]
    count, now, entries = gossip.sampled.count[node], gossip.round[node], gossip.sampled.entries[node]
    for place in range(count):
        news[place + 1, PEER], news[place + 1, LIFE] = entries[PEER, place], entries[LIFE, place]
        news[place + 1, AGE] = now + 1 - entries[BORN, place]
    return count + 1


@njit(folder=True, forceinline=True)
def hear(gossip, node, teller, news):
    """Take in what another node has told."""
    now, known, sampled, bits = gossip.round[node], gossip.known, gossip.sampled, gossip.bits[node]
    gossip.silent[node] = 0
    for place in range(gossip.contacts.shape[1]):
        if gossip.contacts[node, place] == teller:
            gossip.tries[node, place] = 0
    graves = gossip.graves[node, : min(gossip.buried[node], GRAVES)]
    entries = sampled.entries[node]
    count = merge(entries, sampled.count[node], sampled.age_max, node, now, news, gossip.place_of, graves)
    sampled.count[node] = keep_the_freshest(
        entries, count, sampled.size_max, now, gossip.ages, gossip.tied, gossip.chance
    )  # fmt: skip
    entries, at, made = known.entries[node], known.at[node], known.made[node]
    if known.used[node] + len(news) > entries.shape[1]:
        known.used[node] = close_up(entries, known.used[node], at)
    before = np.int64(known.used[node])
    used = learn(
        entries, before, at, made, known.age_max, node, now, news, graves, now - known.age_max
    )  # fmt: skip
    known.used[node] = used
    known.count[node] += used - before
    excess = known.count[node] - known.size_max
    if excess > 0:
        known.count[node] -= excess
        oldest = now - known.age_max
        drop_oldest(entries, used, at, made, oldest, excess, bits, gossip.version, node)
    for place in range(before, used):
        if entries[BORN, place] != HOLE:
            set_bit(bits, gossip.version, node, entries[PEER, place])


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
    grave[KNOWN_LIFE] = grave[SAMPLED_LIFE] = _ANY_LIFE
    known, sampled = gossip.known, gossip.sampled
    place = np.int64(known.at[node, gone]) - 1
    if place >= 0:
        entries = known.entries[node]
        grave[KNOWN_LIFE] = entries[LIFE, place]
        drop_entry(entries, known.at[node], known.made[node], place, gossip.bits[node], gossip.version, node)
        known.count[node] -= 1
    entries, left = sampled.entries[node], 0
    for place in range(sampled.count[node]):
        if entries[PEER, place] == gone:
            grave[SAMPLED_LIFE] = entries[LIFE, place]
        else:
            move(entries, place, left)
            left += 1
    sampled.count[node] = left
