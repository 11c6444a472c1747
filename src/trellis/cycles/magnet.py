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

from trellis.cycles.calendar import Calendar, enter, is_full, next_time, take
from trellis.cycles.chance import below
from trellis.cycles.estimates import Estimates, begin_estimate, is_scarce, next_arc
from trellis.cycles.fingers import Estimate, FingerRule, Interest, likeness, mark_topics
from trellis.cycles.members import Members, asked_sample, begin_part, sampling_round, tell_parent
from trellis.cycles.oscar import Oscar, home_of, is_crowded, last_before, middle_behind, owns, put_behind
from trellis.cycles.parts import is_short
from trellis.cycles.trees import Trees, join
from trellis.jit import njit

LATENCY_MS = 10  # the event engine's default
BEGIN, CONTROL, INQUIRE, CHOOSE, PLACE, NAME, ENTER, ANNOUNCE, SAMPLE, TREES, TELL = range(11)  # kinds of events
ESTIMATE, TIMER = 12, 14  # with 0 added for the control ring, and 1 for the skewed one
# What `run` returns.
DONE, CROWDED_CONTROL, CROWDED_SKEWED, SHORT_MEMBERS, SHORT_TREES, SHORT_CONTROL, SHORT_SKEWED, SHORT_CALENDAR = range(
    8
)
HALFWAY_MS = 4 * LATENCY_MS  # from the beginning of an arc's walks to the instant whose links they see
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
    events_max: int  # events that one step of a run may enter into the calendar


class Joins(NamedTuple):
    """How nodes join, and when they estimate their medians."""

    names: Any  # uint64[nodes]: the label by name
    order: Any  # int32[nodes]: the nodes as they join
    turns: Any  # int32[nodes]: the place of a node in `order`
    chosen: Any  # int32[nodes]: through whom a node joins, or behind whom it will be placed
    answered: Any  # int64[nodes]: when a node has the answers of all homes
    intervals: Any  # int64[2, nodes]: from the last estimate to the next one, on both rings
    seen: Any  # int32[nodes]: scratch of `most_similar`
    chance: Any  # uint64[1]
    changed: Any  # int64[2]: when a link or a tree has changed last; how often links of the skewed ring have changed


class State(NamedTuple):
    """All state of a run."""

    control: Oscar
    skewed: Oscar
    control_scratch: Estimate
    skewed_scratch: Estimate
    control_estimates: Estimates
    skewed_estimates: Estimates
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
    control_estimates, skewed_estimates = state.control_estimates, state.skewed_estimates
    while True:
        if is_crowded(control):
            return CROWDED_CONTROL
        if is_crowded(skewed):
            return CROWDED_SKEWED
        if is_short(members.parts, margin):
            return SHORT_MEMBERS
        if is_short(state.trees.parts, margin):
            return SHORT_TREES
        if is_scarce(control_estimates):
            return SHORT_CONTROL
        if is_scarce(skewed_estimates):
            return SHORT_SKEWED
        if is_full(calendar, settings.events_max):
            return SHORT_CALENDAR
        now = next_time(calendar)
        if now < 0 or now > until:
            return DONE
        kind, node = take(calendar)
        if kind == BEGIN:
            begin(control, calendar, joins, now, node, settings.sample_ms)
        elif kind == CONTROL:
            enter_control(control, members, calendar, joins, places, now, node)
            begin_estimates(control, control_estimates, calendar, joins, now, node, 0, settings.estimate_ms)
        elif kind == INQUIRE:
            inquire(control, calendar, interest, joins, places, now, node, settings.is_similar)
        elif kind == CHOOSE:
            choose(control, members, calendar, interest, joins, places, node, chance)
        elif kind == PLACE:
            last = np.int64(joins.chosen[node])
            put_behind(skewed, node, last, middle_behind(skewed, last))
            begin_estimates(skewed, skewed_estimates, calendar, joins, now, node, 1, settings.estimate_ms)
            enter(calendar, now + LATENCY_MS, ANNOUNCE, node)
        elif kind == NAME:
            enter_by_name(skewed, calendar, joins, now, node)
        elif kind == ENTER:
            put_by_name(skewed, joins, node)
            begin_estimates(skewed, skewed_estimates, calendar, joins, now, node, 1, settings.estimate_ms)
        elif kind == ANNOUNCE:
            for place in range(interest.offsets[node], interest.offsets[node + 1]):
                enter(calendar, now + LATENCY_MS, TELL, begin_part(members, node, interest.topics[place]))
        elif kind == TELL:
            parent = tell_parent(members, control, node, places, chance)  # `node` is a part here.
            if parent >= 0:
                enter(calendar, now + LATENCY_MS, TELL, parent)
        elif kind == SAMPLE:
            sampling_round(members, control, node, places, chance)
            enter(calendar, now + settings.sample_ms, SAMPLE, node)
        elif kind == TREES:
            join_trees(state.trees, skewed, members, interest, joins, now, node, settings.is_graft, state.tree_chance)
        elif kind == ESTIMATE:
            rule, scratch = settings.control, state.control_scratch
            is_over, _ = next_arc(control_estimates, control, node, rule, interest, state.walk_chance, scratch)
            if not is_over:
                enter(calendar, now + LATENCY_MS * (rule.steps + 1), ESTIMATE, node)
        elif kind == ESTIMATE + 1:
            rule, scratch = settings.skewed, state.skewed_scratch
            is_over, changes = next_arc(skewed_estimates, skewed, node, rule, interest, state.walk_chance, scratch)
            if not is_over:
                enter(calendar, now + LATENCY_MS * (rule.steps + 1), ESTIMATE + 1, node)
            if changes:
                joins.changed[0], joins.changed[1] = now, joins.changed[1] + 1
        elif kind == TIMER:
            estimate_again(control, control_estimates, calendar, joins, now, node, 0, settings.estimate_ms_max)
        else:
            estimate_again(skewed, skewed_estimates, calendar, joins, now, node, 1, settings.estimate_ms_max)


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
def enter_control(control, members, calendar, joins, places, now, node):
    """Enter the control ring. The node behind hears of it, and sends samples of topics whose home it is no more."""
    put_by_name(control, joins, node)
    part = np.int64(members.firsts[control.after[node]])
    while part >= 0 and control.after[node] != node:
        row = members.table[part]
        if row.is_live and owns(control, node, places[row.topic]):
            enter(calendar, now + 2 * LATENCY_MS, TELL, part)
        part = np.int64(row.sibling)


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
def inquire(control, calendar, interest, joins, places, now, node, is_similar):
    """Ask the homes of all topics for samples.

    The samples are those of the moment when a request comes to its home, on average. The farthest answer decides when
    the node goes on.
    """
    if not is_similar:
        enter(calendar, now, NAME, node)
        return
    most = all_hops = 0
    for place in range(interest.offsets[node], interest.offsets[node + 1]):
        _, hops = home_of(control, node, places[interest.topics[place]])
        most, all_hops = max(most, hops), all_hops + hops
    asked_ms = LATENCY_MS * all_hops // max(1, interest.offsets[node + 1] - interest.offsets[node])
    joins.answered[node] = now + LATENCY_MS * (most + 1)
    enter(calendar, now + asked_ms, CHOOSE, node)


@njit(folder=True)
def choose(control, members, calendar, interest, joins, places, node, chance):
    """Choose the most similar node, and ask it for a position. If none is known, enter by name.  [Alg. 1]"""
    best = most_similar(control, members, interest, joins, places, node, chance)
    if best >= 0:
        joins.chosen[node] = best
        enter(calendar, joins.answered[node] + LATENCY_MS, PLACE, node)
    else:
        enter(calendar, joins.answered[node], NAME, node)


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
def begin_estimates(ring, estimates, calendar, joins, now, node, which, estimate_ms):
    """Estimate the medians for the first time, and set the timer of the next time."""
    joins.changed[0], joins.changed[1] = now, joins.changed[1] + which
    joins.intervals[which, node] = estimate_ms
    wait = estimate_ms + below(joins.chance, max(1, estimate_ms // 10))
    enter(calendar, now + LATENCY_MS + wait, TIMER + which, node)
    if ring.state[0] == 2:  # The first node has a successor now as well.
        walk_soon(estimates, calendar, now, np.int64(ring.after[node]), which)
    if ring.state[0] > 1:
        walk_soon(estimates, calendar, now, node, which)


@njit(folder=True)
def walk_soon(estimates, calendar, now, node, which):
    """Begin an estimate, unless one is under way. The walks of an arc take place when they are halfway (A-MAG-2)."""
    if begin_estimate(estimates, node):
        enter(calendar, now + HALFWAY_MS, ESTIMATE + which, node)


@njit(folder=True)
def estimate_again(ring, estimates, calendar, joins, now, node, which, interval_max):
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
    if ring.after[node] != node:
        walk_soon(estimates, calendar, now, node, which)


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
