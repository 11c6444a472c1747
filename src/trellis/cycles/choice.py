"""Choose the node that a task asks for a link next, in cycles: one of its view that wants most of the topics.

The rules are those of `trellis.protocols.spidercast.select`, asked of a full view, of a share of everybody
(`trellis.protocols.membership`), or of a view by gossip (`gossip_views.py`). Of tied candidates, in the order of their
numbers, one is drawn. Where nodes with full views come and go, one row of bits for all says who is there.

A full view has everybody, so that looking at every node would make runs grow with the square of their size. Here 64
nodes are looked at together: each topic is a row of bits, one for each node, and the rows are added up in bit planes as
in `trellis.protocols.coverage`. Topics with few subscribers have no row; their subscribers are added one by one. So all
rows together take at most eight bytes for each subscription. A view by gossip is a row of bits, too.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below
from trellis.cycles.gossip_views import Gossip
from trellis.cycles.instance import Wants
from trellis.cycles.neighbors import COUNT, HELD, PEER, K, is_under
from trellis.jit import njit

COVER, COVER_LITERAL, RANDOM_COVER, SIMILAR, ANYBODY = range(5)  # how a task chooses
_ZERO, _ONE, _ALL = np.uint64(0), np.uint64(1), np.uint64((1 << 64) - 1)
_63 = np.uint64(63)
_PAIRS, _FOURS, _EIGHTS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
_BYTES, _2, _4, _56 = np.uint64(0x0101010101010101), np.uint64(2), np.uint64(4), np.uint64(56)
_NO_BITS = np.zeros((1, 1), np.uint64), np.zeros(1, np.int32)
BLOCK = 256  # words that are added up before the next ones: they stay in the cache


class View(NamedTuple):
    """The views of all nodes: each node knows some others."""

    share: bool  # True: `known`; False: everybody, or `bits`
    changes: bool  # True: `bits`, since nodes come and go, or learn of each other by gossip
    offsets: Any  # int64[nodes + 1]: into `known`
    known: Any  # int32: of each node, ascending
    rows: Any  # uint64[topics with a row, words]
    row_of: Any  # int32[topics]; -1: few subscribers, no row
    bits: Any  # uint64[nodes, words]: the nodes in each view, kept by `gossip_views.py`; or one row: who is there
    version: Any  # int32[rows of `bits`]: changes of each view so far
    around: Any  # uint64[words]: scratch of `look_around`


class Scratch(NamedTuple):
    topics: Any  # int32: those in question
    tied: Any  # int32
    gains: Any  # int32: of the nodes of a view
    wanted: Any  # bool[topics]
    mark: Any  # int64[nodes]: when the node was last excluded
    stamp: Any  # int64[1]
    planes: Any  # uint64[planes, words]
    carry: Any  # uint64[words]
    candidates: Any  # uint64[words]


def make_full_view(wants: Wants, gossip: Gossip | None = None, churns: bool = False) -> View:
    """Return the view of nodes that know everybody, or all that are there (`churns`), or those whom `gossip` names."""
    nodes, counts = len(wants.offsets) - 1, np.diff(wants.topic_offsets)
    dense = counts * 64 >= nodes
    row_of = np.where(dense, np.cumsum(dense) - 1, -1).astype(np.int32)
    rows = np.zeros((int(dense.sum()), words_of(nodes)), np.uint64)
    fill_rows(rows, row_of, wants.topic_offsets, wants.subscribers)
    bits, version = np.zeros((1, words_of(nodes)), np.uint64), np.zeros(1, np.int32)
    if gossip is not None:
        bits, version = gossip.bits, gossip.version
    changes, around = churns or gossip is not None, np.zeros(words_of(nodes), np.uint64)
    return View(False, changes, np.zeros(1, np.int64), np.empty(0, np.int32), rows, row_of, bits, version, around)


def make_share_view(wants: Wants, share: float, chance: Any) -> View:
    """Return the view of nodes that know a share of the others, at least one of them, drawn once.  [SC §3.7]"""
    nodes, topics = len(wants.offsets) - 1, len(wants.topic_offsets) - 1
    count = known_count(nodes, share)
    known = np.empty((nodes, count), np.int32)
    draw_known(known, np.arange(nodes, dtype=np.int32), chance)
    known.sort(axis=1)
    offsets = np.arange(nodes + 1, dtype=np.int64) * count
    row_of = np.full(topics, -1, np.int32)
    return View(True, False, offsets, known.ravel(), np.zeros((0, 1), np.uint64), row_of, *_NO_BITS, _NO_BITS[0][0])


def known_count(nodes: int, share: float) -> int:
    """Return how many others a node knows."""
    return min(nodes - 1, max(1, round(share * (nodes - 1))))


def words_of(nodes: int) -> int:
    return -(-nodes // 64)


def make_scratch(wants: Wants, view: View, room_max: int) -> Scratch:
    """Return scratch for `choose`; `room_max`: neighbors of a task at most."""
    nodes, topics = len(wants.offsets) - 1, len(wants.topic_offsets) - 1
    most = int(np.diff(wants.offsets).max(initial=0))
    words = 1 if view.share else words_of(nodes)
    return Scratch(
        np.empty(most, np.int32),
        np.empty(room_max, np.int32),
        np.empty(int(np.diff(view.offsets).max(initial=0)), np.int32),
        np.zeros(topics, np.bool_),
        np.zeros(nodes, np.int64),
        np.zeros(1, np.int64),
        np.empty((most.bit_length() + 1, words), np.uint64),
        np.empty(words, np.uint64),
        np.empty(words, np.uint64),
    )


@njit(folder=True)
def fill_rows(rows, row_of, topic_offsets, subscribers):
    for topic in range(len(row_of)):
        row = row_of[topic]
        if row >= 0:
            for place in range(topic_offsets[topic], topic_offsets[topic + 1]):
                node = np.uint64(subscribers[place])
                rows[row, np.int64(node) >> 6] |= _ONE << (node & _63)


@njit(folder=True)
def draw_known(known, order, chance):
    """Draw for each node whom it knows. order: all nodes, scratch."""
    nodes, count = known.shape
    place_of = np.arange(nodes)
    for node in range(nodes):
        last, place = order[nodes - 1], place_of[node]  # the node itself goes to the end, and is not drawn
        order[place], order[nodes - 1] = last, node
        place_of[last], place_of[node] = place, nodes - 1
        for one in range(count):
            drawn = one + below(chance, nodes - 1 - one)
            here, there = order[one], order[drawn]
            order[one], order[drawn] = there, here
            place_of[here], place_of[there] = drawn, one
            known[node, one] = there


@njit(folder=True)
def count_known(view, wants, spare):
    """Fill `spare` with the number of others that a node knows to want each of its topics."""
    place_of = np.full(len(wants.topic_offsets) - 1, -1)
    for node in range(len(wants.offsets) - 1):
        begin, end = wants.offsets[node], wants.offsets[node + 1]
        if not view.share:
            for slot in range(begin, end):
                topic = np.int64(wants.topics[slot])
                spare[slot] = wants.topic_offsets[topic + 1] - wants.topic_offsets[topic] - 1
            continue
        for slot in range(begin, end):
            place_of[wants.topics[slot]] = slot
            spare[slot] = 0
        for place in range(view.offsets[node], view.offsets[node + 1]):
            peer = view.known[place]
            for other in range(wants.offsets[peer], wants.offsets[peer + 1]):
                slot = place_of[wants.topics[other]]
                if slot >= 0:
                    spare[slot] += 1
        for slot in range(begin, end):
            place_of[wants.topics[slot]] = -1


@njit(folder=True, forceinline=True)
def row_of_view(view, node):
    """Return the row of `bits` that is the view of a node. Where all know the same nodes, there is one row."""
    return node if len(view.bits) > 1 else 0


@njit(folder=True)
def knows(view, node, peer):
    """Return whether `peer` is in the view of `node`, where views do not change."""
    if view.changes:
        return False
    if not view.share:
        return True
    low, high = view.offsets[node], view.offsets[node + 1]
    while low < high:
        middle = (low + high) // 2
        if view.known[middle] < peer:
            low = middle + 1
        else:
            high = middle
    return low < view.offsets[node + 1] and view.known[low] == peer


@njit(folder=True)
def look_around(tasks, wants, rule, view, me):
    """Set `spare` of a task whose view changes: 1 where the view has a further node that wants the topic.

    It is set for topics with too few neighbors only, and holds until neighbors or the view change. Most turns under
    churn end after this, so it takes each array once, and no other kernel is called.
    """
    if not view.changes or not rule.covers:
        return
    node, shift, is_ready, around = me % rule.nodes, me // rule.nodes * len(wants.topics), False, view.around
    cover, spare, enough = tasks.cover, tasks.spare, tasks.state[me, K]
    rows, row_of, topics = view.rows, view.row_of, wants.topics
    topic_offsets, subscribers = wants.topic_offsets, wants.subscribers
    for slot in range(wants.offsets[node], wants.offsets[node + 1]):
        if cover[shift + slot] >= enough:
            continue
        if not is_ready:
            is_ready, around[:] = True, view.bits[row_of_view(view, node)]
            clear(around, node)
            for place in range(tasks.begin[me], tasks.begin[me] + tasks.state[me, COUNT]):
                clear(around, tasks.records[place, PEER])
        spare[shift + slot] = has_any(rows, row_of, topic_offsets, subscribers, np.int64(topics[slot]), around)


@njit(folder=True, forceinline=True)
def has_any(rows, row_of, topic_offsets, subscribers, topic, nodes):
    """Return whether one of the nodes, a row of bits, wants the topic."""
    row = row_of[topic]
    if row >= 0:
        found = _ZERO
        for word in range(len(nodes)):
            found |= rows[row, word] & nodes[word]
        return found != _ZERO
    for place in range(topic_offsets[topic], topic_offsets[topic + 1]):
        node = np.uint64(subscribers[place])
        if nodes[np.int64(node) >> 6] >> (node & _63) & _ONE:
            return True
    return False


@njit(folder=True)
def choose(tasks, wants, rule, view, me, scratch, chance):
    """Return the node that task `me` asks next, or -1. Neighbors and those in quarantine are not asked."""
    node = me % rule.nodes
    choice = rule.greedy_choice if me < rule.nodes else rule.random_choice
    count, shift = 0, me // rule.nodes * len(wants.topics)
    if choice != ANYBODY:
        for slot in range(wants.offsets[node], wants.offsets[node + 1]):
            if choice == SIMILAR or is_under(tasks, rule, me, shift + slot):
                scratch.topics[count] = wants.topics[slot]
                count += 1
    if view.share:
        return choose_known(tasks, wants, view, me, node, choice, count, scratch, chance)
    return choose_among_all(tasks, wants, view, me, node, choice, count, scratch, chance)


@njit(folder=True)
def choose_among_all(tasks, wants, view, me, node, choice, count, scratch, chance):
    candidates, planes = scratch.candidates, scratch.planes
    all_but(tasks, me, node, len(wants.offsets) - 1, candidates)
    if view.changes:
        row = row_of_view(view, node)
        for word in range(len(candidates)):
            candidates[word] &= view.bits[row, word]
    if choice == RANDOM_COVER:
        join_topics(scratch.topics, count, view.rows, view.row_of, wants, planes[0])
        for word in range(len(candidates)):
            candidates[word] &= planes[0, word]
    elif choice != ANYBODY:
        depth = count_topics(scratch.topics, count, view.rows, view.row_of, wants, planes, scratch.carry)
        if not keep_most(candidates, planes, depth) and choice == COVER:
            return np.int64(-1)
    total = np.int64(0)
    for word in range(len(candidates)):
        total += ones(candidates[word])
    return one_of(candidates, below(chance, total)) if total > 0 else np.int64(-1)


@njit(folder=True)
def all_but(tasks, me, node, nodes, candidates):
    """Set the bits of all nodes but the task's own, its neighbors and those in quarantine."""
    candidates[:] = _ALL
    if nodes % 64:
        candidates[len(candidates) - 1] = (_ONE << np.uint64(nodes % 64)) - _ONE
    clear(candidates, node)
    for place in range(tasks.begin[me], tasks.begin[me] + tasks.state[me, COUNT]):
        clear(candidates, tasks.records[place, PEER])
    for place in range(tasks.state[me, HELD]):
        clear(candidates, tasks.quarantine[me, place, 0])


@njit(folder=True, forceinline=True)
def clear(candidates, node):
    candidates[node >> 6] &= ~(_ONE << (np.uint64(node) & _63))


@njit(folder=True)
def join_topics(topics, count, rows, row_of, wants, joined):
    """Set the bits of all nodes that want at least one of the topics."""
    joined[:] = _ZERO
    for one in range(count):
        topic = np.int64(topics[one])
        row = row_of[topic]
        if row >= 0:
            for word in range(len(joined)):
                joined[word] |= rows[row, word]
        else:
            for place in range(wants.topic_offsets[topic], wants.topic_offsets[topic + 1]):
                node = np.uint64(wants.subscribers[place])
                joined[np.int64(node) >> 6] |= _ONE << (node & _63)


@njit(folder=True)
def count_topics(topics, count, rows, row_of, wants, planes, carry):
    """Count for every node how many of the topics it wants, in bit planes. Return how many planes there are."""
    depth = 0
    while (1 << depth) <= count:
        depth += 1
    planes[:depth] = _ZERO
    words = planes.shape[1]
    for begin in range(0, words, BLOCK):
        end, added = min(words, begin + BLOCK), 0
        for one in range(count):
            if row_of[topics[one]] >= 0:
                added += 1
                add_row(planes[:, begin:end], rows[row_of[topics[one]], begin:end], carry, added)
    for one in range(count):
        topic = np.int64(topics[one])
        if row_of[topic] < 0:
            for place in range(wants.topic_offsets[topic], wants.topic_offsets[topic + 1]):
                add_one(planes, np.int64(wants.subscribers[place]))
    return depth


@njit(folder=True)
def add_row(planes, row, carry, added):
    """Add a row of bits to the counts in `planes`; it is the row number `added`, so no count is above that."""
    for word in range(len(row)):
        carry[word] = planes[0, word] & row[word]
        planes[0, word] ^= row[word]
    plane = 1
    while (1 << plane) <= added:
        for word in range(len(row)):
            carried = planes[plane, word] & carry[word]
            planes[plane, word] ^= carry[word]
            carry[word] = carried
        plane += 1


@njit(folder=True)
def add_one(planes, node):
    """Add 1 to the count of one node."""
    word, bit, plane = node >> 6, _ONE << (np.uint64(node) & _63), 0
    while planes[plane, word] & bit:
        planes[plane, word] ^= bit
        plane += 1
    planes[plane, word] |= bit


@njit(folder=True)
def keep_most(candidates, planes, depth):
    """Keep the candidates of the greatest count. Return whether that is above 0."""
    above = False
    for turn in range(depth):
        plane = depth - 1 - turn
        some = _ZERO
        for word in range(len(candidates)):
            some |= candidates[word] & planes[plane, word]
        if some:
            above = True
            for word in range(len(candidates)):
                candidates[word] &= planes[plane, word]
    return above


@njit(folder=True)
def ones(word):
    """Return the number of bits that are set."""
    word -= (word >> _ONE) & _PAIRS
    word = (word & _FOURS) + ((word >> _2) & _FOURS)
    word = (word + (word >> _4)) & _EIGHTS
    return np.int64((word * _BYTES) >> _56)


@njit(folder=True)
def one_of(candidates, turn):
    """Return the candidate number `turn`, from 0, in the order of nodes."""
    word = 0
    while ones(candidates[word]) <= turn:
        turn -= ones(candidates[word])
        word += 1
    left = candidates[word]
    for _ in range(turn):
        left &= left - _ONE
    return np.int64(64 * word + ones((left & (~left + _ONE)) - _ONE))


@njit(folder=True)
def choose_known(tasks, wants, view, me, node, choice, count, scratch, chance):
    """The same of a task whose node knows some others only."""
    scratch.stamp[0] += 1
    stamp, mark, gains = scratch.stamp[0], scratch.mark, scratch.gains
    for place in range(tasks.begin[me], tasks.begin[me] + tasks.state[me, COUNT]):
        mark[tasks.records[place, PEER]] = stamp
    for place in range(tasks.state[me, HELD]):
        mark[tasks.quarantine[me, place, 0]] = stamp
    for one in range(count):
        scratch.wanted[scratch.topics[one]] = True
    best, total, begin = 1 if choice in (COVER, RANDOM_COVER) else 0, 0, view.offsets[node]
    for place in range(begin, view.offsets[node + 1]):
        peer, gain = view.known[place], -1
        if mark[peer] != stamp:
            gain = 0
            if choice != ANYBODY:
                for slot in range(wants.offsets[peer], wants.offsets[peer + 1]):
                    gain += scratch.wanted[wants.topics[slot]]
            if choice == RANDOM_COVER:
                gain = min(gain, 1)
            if gain > best:
                best, total = gain, 0
            total += gain == best
        gains[place - begin] = gain
    for one in range(count):
        scratch.wanted[scratch.topics[one]] = False
    if total == 0:
        return np.int64(-1)
    turn, place = below(chance, total), begin
    while gains[place - begin] != best or turn > 0:
        turn -= gains[place - begin] == best
        place += 1
    return np.int64(view.known[place])
