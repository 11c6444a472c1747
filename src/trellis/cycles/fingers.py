"""OSCAR's fingers in cycles: medians by random walks, partitions, and the choice of fingers.  [MG §2.2, Fig. 1]

The rules are those of `trellis.protocols.oscar.fingers`. All walks of one arc see the links of one instant. How the
arcs of an estimate follow each other is in `estimates.py`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below
from trellis.cycles.oscar import Oscar, add_finger, drop_finger, has_finger, list_links
from trellis.jit import njit
from trellis.protocols.oscar.config import OscarConfig

MEDIANS_MAX = 64
OFF_IN_USE = 4  # as in `trellis.protocols.oscar.fingers`
_TRIES = 3  # random links that a walk tries before it lists all links
_ONE = np.uint64(1)


class Interest(NamedTuple):
    """Interests in CSR form, for `likeness`."""

    offsets: Any  # int64[nodes + 1]
    topics: Any  # uint16 or uint32[subscriptions]: of each node, ascending
    rates: Any  # float64[topics], or empty: all topics count alike
    weights: Any  # float64[nodes]: the rates of a node's topics, added up; empty if there are no rates
    marked: Any  # int32[topics]: scratch: the node whose topics were marked last


class FingerRule(NamedTuple):
    """Settings of `estimate`."""

    walks: int
    steps: int  # links that a walk crosses
    successors: int
    two_choices: bool  # The more similar one of two candidates is taken.
    guests_max: int


class Estimate(NamedTuple):
    """Scratch: the state of an estimate."""

    medians: Any  # uint64[MEDIANS_MAX]: their distances, from far to near
    pool: Any  # int32: the nodes where walks ended
    likings: Any  # float64: how similar they are
    parts: Any  # int32: their partitions
    walked: Any  # int32[walks]
    links: Any  # int32: the links of a node
    counts: Any  # int64[2]: of `medians` and of `pool`


def interest_of(wants: Any) -> Interest:
    """Return the interests of an instance. Rates are added up in the order in which the protocol adds them."""
    weights = np.empty(0, np.float64)
    if len(wants.rates):
        rates, offsets, topics = wants.rates.tolist(), wants.offsets.tolist(), wants.topics.tolist()
        rows = (topics[begin:end] for begin, end in pairwise(offsets))
        weights = np.array([sum(rates[topic] for topic in row) for row in rows], np.float64)
    marked = np.full(len(wants.topic_places), -1, np.int32)
    return Interest(wants.offsets, wants.topics, wants.rates, weights, marked)


def rule_of(config: OscarConfig, *, is_similar: bool) -> FingerRule:
    """Return the settings of a ring. `is_similar`: similarity of interests is known."""
    two = config.two_choices and is_similar
    return FingerRule(config.walks, config.walk_steps, config.successors, two, config.guests_max)


def make_estimate(ring: Oscar, rule: FingerRule) -> Estimate:
    """Return scratch for `estimate`."""
    room = rule.walks * MEDIANS_MAX + rule.successors
    return Estimate(
        np.empty(MEDIANS_MAX + rule.successors, np.uint64),
        np.empty(room, np.int32),
        np.empty(room, np.float64),
        np.empty(room, np.int32),
        np.empty(rule.walks, np.int32),
        np.empty(ring.guests.shape[1] + ring.fingers.shape[1] + 2, np.int32),
        np.zeros(2, np.int64),
    )


@njit(folder=True)
def estimate(ring, node, rule, interest, chance, scratch):
    """Estimate the medians of a node in one instant, and renew its fingers. Return how many fingers changed."""
    scratch.counts[0] = scratch.counts[1] = 0
    while not sample_arc(ring, node, rule, chance, scratch):
        pass
    like_samples(node, rule, interest, scratch)
    return choose_fingers(ring, node, rule, chance, scratch)


@njit(folder=True)
def like_samples(node, rule, interest, scratch):
    """Set how similar the samples are. Only those from walks have told their interests."""
    if rule.two_choices:
        mark_topics(interest, node)
        for place in range(scratch.counts[1]):
            if scratch.likings[place] != 0:
                scratch.likings[place] = likeness(interest, node, scratch.pool[place])


@njit(folder=True)
def sample_arc(ring, node, rule, chance, scratch):
    """Sample the arc up to the last median, or the whole circle, and find its median. Return whether it was the last.

    Samples from walks get liking 1 for now, those from known successors 0.
    """
    medians, pool, likings, _, walked, links, counts = scratch
    begin = ring.labels[node]
    reach = medians[counts[0] - 1] if counts[0] else begin - begin  # 0 is the whole circle.
    if counts[0] == MEDIANS_MAX:
        return True
    first = np.int64(-1)
    if counts[0] == 0 and is_new(ring, node):
        first = np.int64(ring.after[node])
    for turn in range(rule.walks):
        end = walk(ring, node, reach, rule.steps, chance, links, first)
        if end < 0:
            return True
        place = turn
        while place > 0 and ring.labels[walked[place - 1]] - begin > ring.labels[end] - begin:
            walked[place] = walked[place - 1]
            place -= 1
        walked[place] = end
    for turn in range(rule.walks):
        pool[counts[1]], likings[counts[1]] = walked[turn], 1.0
        counts[1] += 1
    return halve(ring, node, walked[(rule.walks - 1) // 2], rule, scratch)


@njit(folder=True)
def is_new(ring, node):
    """Return whether a node has no fingers yet. It has just joined, and knows its successor and nobody else."""
    for slot in range(ring.wanted[node]):
        if ring.fingers[node, slot] >= 0:
            return False
    return ring.after[node] != node


@njit(folder=True)
def halve(ring, node, median, rule, scratch):
    """Take a median. If it is a known successor, the rest is known as well. Return whether the estimate is over."""
    medians, pool, likings, counts = scratch.medians, scratch.pool, scratch.likings, scratch.counts
    begin = ring.labels[node]
    distance = ring.labels[median] - begin
    if counts[0] > 0 and medians[counts[0] - 1] == distance:
        return True
    medians[counts[0]] = distance
    counts[0] += 1
    found, peer = -1, np.int64(ring.after[node])
    for place in range(rule.successors):
        if peer == node:
            break
        if peer == median:
            found = place
        peer = np.int64(ring.after[peer])
    if found < 0:
        return False
    peer = np.int64(ring.after[node])
    for _ in range(1, found):
        peer = np.int64(ring.after[peer])
        pool[counts[1]], likings[counts[1]] = peer, 0.0
        counts[1] += 1
    while found > 1:
        found //= 2
        peer = np.int64(ring.after[node])
        for _ in range(found):
            peer = np.int64(ring.after[peer])
        medians[counts[0]] = ring.labels[peer] - begin
        counts[0] += 1
    return True


@njit(folder=True)
def walk(ring, origin, reach, steps, chance, links, first):
    """Walk over links that end inside the open arc from `origin`. Return where the walk ends; -1: no link does.

    `first` is where the walk goes first; -1: over any link.
    """
    begin, limit = ring.labels[origin], reach - _ONE
    node = first if first >= 0 else step(ring, origin, begin, limit, chance, links)
    if node < 0:
        return -1
    for _ in range(steps - 1):
        hop = step(ring, node, begin, limit, chance, links)
        if hop < 0:
            break
        node = hop
    return node


@njit(folder=True)
def step(ring, node, begin, limit, chance, links):
    """Return a random link of a node that ends inside the arc, each with the same chance, or -1."""
    count, width = ring.guest_count[node], ring.wanted[node]
    for _ in range(_TRIES):
        place = below(chance, width + count + 2)
        if place < width:
            peer = np.int64(ring.fingers[node, place])
            if peer < 0 or peer == ring.after[node]:
                continue
        elif place < width + count:
            peer = np.int64(ring.guests[node, place - width])
        else:
            peer = np.int64(ring.after[node] if place == width + count else ring.before[node])
        if not ring.labels[peer] - begin - _ONE < limit:
            continue
        if width <= place < width + count and (peer == ring.after[node] or has_finger(ring, node, peer)):
            continue  # It is listed twice, and counts once.
        if place == width + count + 1 and (peer == ring.after[node] or is_linked(ring, node, peer)):
            continue
        return peer
    found = list_links(ring, node, links)
    inner = 0
    for place in range(found):
        if ring.labels[links[place]] - begin - _ONE < limit:
            links[inner] = links[place]
            inner += 1
    return np.int64(links[below(chance, inner)]) if inner else np.int64(-1)


@njit(folder=True)
def is_linked(ring, node, peer):
    """Return whether a node has another one as a finger, or is one of its fingers."""
    return has_finger(ring, node, peer) or has_finger(ring, peer, node)


@njit(folder=True)
def partition_of(medians, count, distance):
    """Return the partition of a distance: 0 for the far half; `count`: before the nearest median."""
    part = 0
    while part < count and distance <= medians[part]:
        part += 1
    return part


@njit(folder=True)
def choose_fingers(ring, node, rule, chance, scratch):
    """Give up fingers that are in other partitions now, and draw those that are missing. Return how many changed."""
    medians, pool, _, parts, _, _, counts = scratch
    begin, partitions, changes = ring.labels[node], counts[0] + 1, 0
    for place in range(counts[1]):
        parts[place] = partition_of(medians, counts[0], ring.labels[pool[place]] - begin)
    for slot in range(ring.wanted[node]):
        peer = ring.fingers[node, slot]
        if peer >= 0:
            part = partition_of(medians, counts[0], ring.labels[peer] - begin)
            off = abs(part - np.int64(ring.shares[node, slot] * partitions))
            if off > 1 and not is_in_use(ring, node, slot):
                drop_finger(ring, node, slot)
                changes += 1
    for slot in range(ring.wanted[node]):
        if ring.fingers[node, slot] < 0:
            part = np.int64(ring.shares[node, slot] * partitions)
            peer = draw_finger(ring, node, part, partitions, rule, chance, scratch)
            if peer >= 0 and ring.guest_count[peer] < rule.guests_max:
                add_finger(ring, node, slot, peer)
                changes += 1
    return changes


@njit(folder=True)
def is_in_use(ring, node, slot):
    """Return whether trees use the link to a finger, in either direction.

    The protocol gives up such a finger if it is more than four partitions off. Here it stays.
    """
    if ring.uses[node, slot] > 0:
        return True
    peer, last = ring.fingers[node, slot], ring.uses.shape[1] - 1
    used = ring.after[peer] == node and ring.uses[peer, last] > 0
    for other in range(ring.wanted[peer]):
        used = used or (ring.fingers[peer, other] == node and ring.uses[peer, other] > 0)
    return used


@njit(folder=True)
def draw_finger(ring, node, wanted, partitions, rule, chance, scratch):
    """Return a random sample of a partition, or of the nearest one that has any, or -1."""
    for far in range(partitions):
        for side in range(2 if far else 1):
            part = wanted - far if side == 0 else wanted + far
            free = count_free(ring, node, part, scratch, -1)
            if not 0 <= part < partitions or free == 0:
                continue
            first = count_free(ring, node, part, scratch, below(chance, free))
            if rule.two_choices:
                other = count_free(ring, node, part, scratch, below(chance, free))
                if scratch.likings[other] > scratch.likings[first]:
                    first = other
            return np.int64(scratch.pool[first])
    return np.int64(-1)


@njit(folder=True)
def count_free(ring, node, part, scratch, which):
    """Return how many samples of a partition are no neighbors yet, or the place of the `which`-th of them."""
    count = 0
    for place in range(scratch.counts[1]):
        if scratch.parts[place] == part:
            peer = scratch.pool[place]
            if peer != ring.after[node] and not has_finger(ring, node, peer):
                if count == which:
                    return place
                count += 1
    return count


@njit(folder=True)
def mark_topics(interest, node):
    """Mark the topics of a node, for `likeness`."""
    for place in range(interest.offsets[node], interest.offsets[node + 1]):
        interest.marked[interest.topics[place]] = node


@njit(folder=True)
def likeness(interest, node, other):
    """Return the similarity of a node, whose topics are marked, to another one.  [MG §2.1; A-MAG-1]

    It is the number of shared topics over that of all topics of both, weighted by rates if there are any.
    """
    offsets, topics, rates, weights, marked = interest
    begin, end = offsets[other], offsets[other + 1]
    if len(rates) == 0:
        shared = 0
        for place in range(begin, end):
            shared += marked[topics[place]] == node
        union = offsets[node + 1] - offsets[node] + end - begin - shared
        return shared / union if union else 0.0
    shared_rate = others = 0.0
    for place in range(begin, end):
        rate = rates[topics[place]]
        if marked[topics[place]] == node:
            shared_rate += rate
        else:
            others += rate
    union_rate = weights[node] + others
    return shared_rate / union_rate if union_rate else 0.0
