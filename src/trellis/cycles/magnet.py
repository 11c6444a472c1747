"""Magnet and the strawman in cycles: how nodes join one by one, and what they do from time to time.  [MG §3]

The rules are those of `trellis.protocols.magnet`. Time passes in milliseconds, because nodes join tens of them apart. A
node enters the control ring, asks the homes of its topics for samples, gets a position behind the most similar node
that it knows [Alg. 1], and tells its parents in the membership trees. Steps come when their messages would have come,
10 ms a link. Then it estimates its medians, again and again at growing distances, and takes part in sampling rounds.
When all have joined, nodes join the trees of their topics in the same order.

The strawman is the same with positions by name and fingers that ignore interests (A-MAG-20).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.calendar import Calendar, enter, next_time, take
from trellis.cycles.chance import below
from trellis.cycles.fingers import Estimate, FingerRule, Interest, estimate, likeness, mark_topics
from trellis.cycles.members import Members, announce, asked_sample, sampling_round, send_up
from trellis.cycles.oscar import Oscar, home_of, is_crowded, last_before, middle_behind, owns, put_behind
from trellis.cycles.parts import is_short
from trellis.cycles.trees import Trees, join
from trellis.jit import njit

LATENCY_MS = 10  # the event engine's default
BEGIN, CONTROL, INQUIRE, CHOOSE, PLACE, NAME, ENTER, ANNOUNCE, SAMPLE, TREES = range(10)  # kinds of events
ESTIMATE, TIMER = 10, 12  # with 0 added for the control ring, and 1 for the skewed one
DONE, CROWDED_CONTROL, CROWDED_SKEWED, SHORT_MEMBERS, SHORT_TREES = range(5)  # what `run` returns
_CONTROL_PATIENCE_MS, _CONTROL_RETRY_MS = 100, 200  # A joining node waits for the control ring, then asks again.
_NAME_MS = 151  # from entering by name until a node knows that it is on the ring


class Settings(NamedTuple):
    control: FingerRule
    skewed: FingerRule
    is_similar: bool  # positions by similarity; else by name
    is_graft: bool  # trees by Alg. 2 as written; else by greedy paths
    sample_ms: int
    estimate_ms: int
    estimate_ms_max: int


class Joins(NamedTuple):
    """How nodes join, and when they estimate their medians."""

    names: Any  # uint64[nodes]: the label by name
    order: Any  # int32[nodes]: the nodes as they join
    turns: Any  # int32[nodes]: the place of a node in `order`
    chosen: Any  # int32[nodes]: through whom a node joins, or behind whom it will be placed
    intervals: Any  # int64[2, nodes]: from the last estimate to the next one, on both rings
    seen: Any  # int32[nodes]: scratch of `most_similar`
    chance: Any  # uint64[1]
    changed: Any  # int64[1]: when a link or a tree has changed last


class State(NamedTuple):
    """All state of a run."""

    control: Oscar
    skewed: Oscar
    control_scratch: Estimate
    skewed_scratch: Estimate
    members: Members
    trees: Trees
    calendar: Calendar
    interest: Interest
    joins: Joins
    places: Any  # uint64[topics]: positions of topics on the control ring
    member_chance: Any  # uint64[1]
    walk_chance: Any  # uint64[1]
    tree_chance: Any  # uint64[1]


@njit(folder=True)
def run(state, settings, until, margin):
    """Let everything happen that is due by `until`. Return DONE, or which arrays must be made larger before."""
    control, skewed, calendar, joins = state.control, state.skewed, state.calendar, state.joins
    members, interest, places, chance = state.members, state.interest, state.places, state.member_chance
    while True:
        if is_crowded(control):
            return CROWDED_CONTROL
        if is_crowded(skewed):
            return CROWDED_SKEWED
        if is_short(members.parts, margin):
            return SHORT_MEMBERS
        if is_short(state.trees.parts, margin):
            return SHORT_TREES
        now = next_time(calendar)
        if now < 0 or now > until:
            return DONE
        kind, node = take(calendar)
        if kind == BEGIN:
            begin(control, calendar, joins, now, node, settings.sample_ms)
        elif kind == CONTROL:
            enter_control(control, members, joins, places, node, chance)
            begin_estimates(control, calendar, joins, now, node, 0, settings.control.steps, settings.estimate_ms)
        elif kind == INQUIRE:
            inquire(control, calendar, interest, places, now, node, settings.is_similar)
        elif kind == CHOOSE:
            choose(control, members, calendar, interest, joins, places, now, node, chance)
        elif kind == PLACE:
            last = np.int64(joins.chosen[node])
            put_behind(skewed, node, last, middle_behind(skewed, last))
            begin_estimates(skewed, calendar, joins, now, node, 1, settings.skewed.steps, settings.estimate_ms)
            enter(calendar, now + LATENCY_MS, ANNOUNCE, node)
        elif kind == NAME:
            enter_by_name(skewed, calendar, joins, now, node)
        elif kind == ENTER:
            put_by_name(skewed, joins, node)
            begin_estimates(skewed, calendar, joins, now, node, 1, settings.skewed.steps, settings.estimate_ms)
        elif kind == ANNOUNCE:
            announce(members, control, node, interest, places, chance)
        elif kind == SAMPLE:
            sampling_round(members, control, node, places, chance)
            enter(calendar, now + settings.sample_ms, SAMPLE, node)
        elif kind == TREES:
            join_trees(state.trees, skewed, members, interest, joins, now, node, settings.is_graft, state.tree_chance)
        elif kind == ESTIMATE:
            estimate(control, node, settings.control, interest, state.walk_chance, state.control_scratch)
        elif kind == ESTIMATE + 1:
            if estimate(skewed, node, settings.skewed, interest, state.walk_chance, state.skewed_scratch):
                joins.changed[0] = now
        elif kind == TIMER:
            estimate_again(control, calendar, joins, now, node, 0, settings.control.steps, settings.estimate_ms_max)
        else:
            estimate_again(skewed, calendar, joins, now, node, 1, settings.skewed.steps, settings.estimate_ms_max)


@njit(folder=True)
def begin(control, calendar, joins, now, node, sample_ms):
    """Begin to join: look up the own position on the control ring through a node that came before (A-MAG-9)."""
    enter(calendar, now + 1 + below(joins.chance, sample_ms), SAMPLE, node)
    if joins.turns[node] == 0:
        enter(calendar, now, CONTROL, node)
        enter(calendar, now + 1, INQUIRE, node)
        return
    joins.chosen[node] = contact_of(control, joins, node)
    _, hops = last_before(control, np.int64(joins.chosen[node]), joins.names[node])
    enter(calendar, now + LATENCY_MS * (hops + 1), CONTROL, node)
    wait = _CONTROL_PATIENCE_MS
    while LATENCY_MS * (hops + 2) > wait:
        wait += _CONTROL_RETRY_MS
    enter(calendar, now + wait, INQUIRE, node)


@njit(folder=True)
def contact_of(ring, joins, node):
    """Return a random node that has begun to join earlier and is on the ring, or the first of all."""
    contact = joins.order[below(joins.chance, joins.turns[node])]
    return contact if ring.after[contact] >= 0 else joins.order[0]


@njit(folder=True)
def enter_control(control, members, joins, places, node, chance):
    """Enter the control ring. The node behind sends the samples of topics whose home it is no more."""
    put_by_name(control, joins, node)
    part = np.int64(members.firsts[control.after[node]])
    while part >= 0 and control.after[node] != node:
        if members.is_live[part] and owns(control, node, places[members.parts.topic[part]]):
            send_up(members, control, part, places, chance)
        part = np.int64(members.sibling[part])


@njit(folder=True)
def put_by_name(ring, joins, node):
    """Put a node on a ring at the hash of its name, or nearby if that label is taken."""
    label = joins.names[node]
    if ring.state[0] == 0:
        put_behind(ring, node, -1, label)
        return
    last, _ = last_before(ring, np.int64(joins.chosen[node]), label)
    if ring.labels[last] == label or ring.labels[ring.after[last]] == label:
        label = middle_behind(ring, last)
    put_behind(ring, node, last, label)


@njit(folder=True)
def inquire(control, calendar, interest, places, now, node, is_similar):
    """Ask the homes of all topics for samples. The farthest answer decides when the node goes on."""
    most = 0
    if not is_similar:
        enter(calendar, now, NAME, node)
        return
    for place in range(interest.offsets[node], interest.offsets[node + 1]):
        _, hops = home_of(control, node, places[interest.topics[place]])
        most = max(most, hops)
    enter(calendar, now + LATENCY_MS * most, CHOOSE, node)


@njit(folder=True)
def choose(control, members, calendar, interest, joins, places, now, node, chance):
    """Choose the most similar node, and ask it for a position. If none is known, enter by name.  [Alg. 1]"""
    best = most_similar(control, members, interest, joins, places, node, chance)
    if best >= 0:
        joins.chosen[node] = best
        enter(calendar, now + 2 * LATENCY_MS, PLACE, node)
    else:
        enter(calendar, now + LATENCY_MS, NAME, node)


@njit(folder=True)
def most_similar(control, members, interest, joins, places, node, chance):
    """Return argmax sim(p, q) over the samples of p's topics, ties broken at random, or -1.  [Alg. 1, l. 2]"""
    seen = joins.seen
    mark_topics(interest, node)
    seen[node] = node
    best, most, equal = np.int64(-1), -1.0, 0
    for place in range(interest.offsets[node], interest.offsets[node + 1]):
        topic = interest.topics[place]
        home, _ = home_of(control, node, places[topic])
        for at in range(asked_sample(members, home, topic, chance)):
            other = members.entries[at]
            if seen[other] == node:
                continue
            seen[other] = node
            value = likeness(interest, node, other)
            if value > most:
                best, most, equal = np.int64(other), value, 1
            elif value == most:
                equal += 1
                if below(joins.chance, equal) == 0:
                    best = np.int64(other)
    return best


@njit(folder=True)
def enter_by_name(skewed, calendar, joins, now, node):
    """Enter the skewed ring at the hash of the name, through a random node.  [Alg. 1, l. 5]"""
    if skewed.state[0] == 0 or joins.turns[node] == 0:
        enter(calendar, now, ENTER, node)
        enter(calendar, now + 1, ANNOUNCE, node)
        return
    joins.chosen[node] = contact_of(skewed, joins, node)
    _, hops = last_before(skewed, np.int64(joins.chosen[node]), joins.names[node])
    enter(calendar, now + LATENCY_MS * (hops + 1), ENTER, node)
    wait = _NAME_MS
    while LATENCY_MS * (hops + 2) > wait:
        wait += _NAME_MS - 1
    enter(calendar, now + wait, ANNOUNCE, node)


@njit(folder=True)
def begin_estimates(ring, calendar, joins, now, node, which, steps, estimate_ms):
    """Estimate the medians for the first time, and set the timer of the next time."""
    joins.changed[0] = now
    joins.intervals[which, node] = estimate_ms
    wait = estimate_ms + below(joins.chance, max(1, estimate_ms // 10))
    enter(calendar, now + LATENCY_MS + wait, TIMER + which, node)
    takes = LATENCY_MS + estimate_takes(ring, steps)
    if ring.state[0] == 2:  # The first node has a successor now as well.
        enter(calendar, now + takes, ESTIMATE + which, ring.after[node])
    if ring.state[0] > 1:
        enter(calendar, now + takes, ESTIMATE + which, node)


@njit(folder=True)
def estimate_takes(ring, steps):
    """Return how long the walks of an estimate take: one after the other for each arc, all of an arc at once."""
    arcs, size = -2, ring.state[0]
    while size > 0:
        arcs, size = arcs + 1, size >> 1
    return LATENCY_MS * (max(arcs, 1) * (steps + 1) + 2)


@njit(folder=True)
def estimate_again(ring, calendar, joins, now, node, which, steps, interval_max):
    """Begin another estimate. The next one comes at three times the distance."""
    has_fingers = False
    for slot in range(ring.wanted[node]):
        has_fingers = has_fingers or ring.fingers[node, slot] >= 0
    interval = joins.intervals[which, node]
    if has_fingers:
        interval = min(3 * interval, interval_max)
    joins.intervals[which, node] = interval
    wait = interval + below(joins.chance, max(1, interval // 10))
    enter(calendar, now + wait, TIMER + which, node)
    enter(calendar, now + estimate_takes(ring, steps), ESTIMATE + which, node)


@njit(folder=True)
def join_trees(trees, skewed, members, interest, joins, now, node, is_graft, chance):
    """Join the trees of all topics of a node. A graft begins at a subscriber of the home's sample.  [Alg. 2, l. 1-6]"""
    before = trees.counts[2]
    for place in range(interest.offsets[node], interest.offsets[node + 1]):
        topic, start, others = interest.topics[place], np.int64(-1), 0
        for at in range(members.view_sizes[topic]):
            if members.views[topic, at] != node:
                others += 1
                if below(chance, others) == 0:
                    start = np.int64(members.views[topic, at])
        join(trees, skewed, interest, node, topic, start, is_graft)
    if trees.counts[2] != before:
        joins.changed[0] = now
