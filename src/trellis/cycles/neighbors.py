"""Records of neighbors in cycles, and how often they cover each topic.  [SC Fig. 1, Fig. 3]

The rules are those of `trellis.protocols.spidercast` (`goals.py`, `neighbors.py`). A node runs two tasks, greedy and
random; its tasks have the numbers `node` and `nodes + node`. Systems whose random task never runs have no such tasks.

R1  the records of a task stand in the order in which the links came up, from `begin` on.
R2  `cover` counts the neighbors that want a topic, `spare` the other nodes in the view that want it. Where views
    change, `spare` is not kept: `look_around` (`choice.py`) says whether there is one, before it is used.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.jit import njit

# Columns of a record: what a node knows about a neighbor.
PEER, DEGREE, THEIR_TARGET, REFUSED, WILLING, KNOWN, SILENCE, HINT = range(8)
# REFUSED: CHANGES of the task when the neighbor ignored a DISCONNECT, or -1. WILLING: its turn to be asked to part; 0:
# it is not willing. KNOWN: 1 where the neighbor is in the view, and this does not change. SILENCE: heartbeat periods
# since the neighbor was heard in this task; the least one of both tasks counts. HINT: where the neighbor had its own
# record of the node when that was last looked for, counted from its first one.

# Columns of a task.
COUNT, K, LIMIT, TARGET, CHANGES, ASKED, ASKED_UNTIL, RESTLESS, RESTS, TURNS, REDIRECTS, HELD, SEEN = range(13)
# COUNT: neighbors. K: coverage, or links for the baselines. LIMIT: L^max. TARGET: L. CHANGES: of the neighbors. ASKED:
# who was asked to part, or -1, and the tick until which an answer counts. TURNS: the last turn that was given to a
# willing neighbor. REDIRECTS: candidates from redirects. HELD: nodes in quarantine. SEEN: version of
# the view at the last iteration.


class Tasks(NamedTuple):
    begin: Any  # int64[tasks + 1]: room for records
    records: Any  # int32[room, 8]
    state: Any  # int32[tasks, 13]
    redirects: Any  # int32[tasks, most], oldest first
    quarantine: Any  # int32[tasks, most, 3]: whom the task asked for a link, until when it does not ask again, and
    #                  whether an answer is awaited, in the order of the requests
    cover: Any  # int32[kinds * subscriptions]: neighbors that want the topic
    spare: Any  # int32[kinds * subscriptions]: others that the node knows to want it
    alive: Any  # bool[nodes]


class Rule(NamedTuple):
    """How neighbors are chosen; durations are in ticks."""

    nodes: int
    covers: bool  # K-coverage; else a fixed number of links
    literal: bool  # demand K neighbors of topics with fewer subscribers, too
    greedy_choice: int  # how the first task chooses: see `trellis.cycles.choice`
    random_choice: int
    margin: int
    latency: int
    connect: int
    quarantine: int
    suspect_quarantine: int
    part: int
    heartbeat: int
    silence_max: int
    redirects_max: int
    redirect_room: int  # a neighbor takes a redirect below its target plus this
    useful_redirects_only: bool
    strictly: bool  # drop links from neighbors above their target only
    remember_refusals: bool
    repair_only: bool
    adaptive_max: int  # 0: not adaptive


@njit(folder=True)
def find(tasks, me, peer):
    """Return the place of the record that task `me` has of `peer`, or -1."""
    return find_in(tasks.records, tasks.begin[me], tasks.state[me, COUNT], peer)


@njit(folder=True, forceinline=True)
def find_in(records, begin, count, peer):
    """Return the place of the record of `peer` among those from `begin` on, or -1."""
    for place in range(begin, begin + count):
        if records[place, PEER] == peer:
            return np.int64(place)
    return np.int64(-1)


@njit(folder=True)
def add(tasks, wants, rule, me, peer, degree, target, known):
    place = tasks.begin[me] + tasks.state[me, COUNT]
    record = tasks.records[place]
    record[PEER], record[DEGREE], record[THEIR_TARGET] = peer, degree, target
    record[REFUSED], record[WILLING], record[KNOWN] = -1, 0, known
    record[SILENCE] = record[HINT] = 0
    tasks.state[me, COUNT] += 1
    tasks.state[me, CHANGES] += 1
    tasks.state[me, RESTLESS] = 1
    if rule.covers:
        count_cover(tasks.cover, tasks.spare, wants.offsets, wants.topics, rule.nodes, me, peer, 1, known)


@njit(folder=True)
def remove(tasks, wants, rule, me, peer, place):
    state = tasks.state[me]
    known = tasks.records[place, KNOWN]
    state[COUNT] -= 1
    for later in range(place, tasks.begin[me] + state[COUNT]):
        for column in range(tasks.records.shape[1]):
            tasks.records[later, column] = tasks.records[later + 1, column]
    state[CHANGES] += 1
    state[RESTLESS] = 1
    if state[ASKED] == peer:
        state[ASKED] = -1
    if rule.covers:
        count_cover(tasks.cover, tasks.spare, wants.offsets, wants.topics, rule.nodes, me, peer, -1, known)


@njit(folder=True)
def count_cover(cover, spare, offsets, topics, nodes, me, peer, step, known):
    """Count `peer` as a neighbor of task `me` once more (`step` 1) or once less (-1)."""
    node, shift = me % nodes, me // nodes * len(topics)
    mine, theirs = offsets[node], offsets[peer]
    while mine < offsets[node + 1] and theirs < offsets[peer + 1]:
        if topics[mine] < topics[theirs]:
            mine += 1
        elif topics[mine] > topics[theirs]:
            theirs += 1
        else:
            cover[shift + mine] += step
            spare[shift + mine] -= step * known
            mine += 1
            theirs += 1


@njit(folder=True)
def is_under(tasks, rule, me, slot):
    """Return whether task `me` covers the topic of `slot`, one of its node, fewer times than it should."""
    return tasks.cover[slot] < tasks.state[me, K] and (rule.literal or tasks.spare[slot] > 0)


@njit(folder=True)
def under(tasks, wants, rule, me):
    """Return the number of topics that are under-covered: CALCKUNCOVERED.  [SC Fig. 3, l. 1-7]"""
    if not rule.covers:
        return np.int64(tasks.state[me, COUNT] < tasks.state[me, K])
    node, shift, count = me % rule.nodes, me // rule.nodes * len(wants.topics), 0
    for slot in range(shift + wants.offsets[node], shift + wants.offsets[node + 1]):
        count += is_under(tasks, rule, me, slot)
    return np.int64(count)


@njit(folder=True)
def could_need_more(tasks, wants, rule, me):
    """Return whether a larger view could bring neighbors that are needed."""
    if not rule.covers:
        return tasks.state[me, COUNT] < tasks.state[me, K]
    node, shift = me % rule.nodes, me // rule.nodes * len(wants.topics)
    for slot in range(shift + wants.offsets[node], shift + wants.offsets[node + 1]):
        if tasks.cover[slot] < tasks.state[me, K]:
            return True
    return False


@njit(folder=True)
def under_without(tasks, wants, rule, me, peer, also):
    """Return how many topics are under-covered without `peer`, and without `also`, unless that is -1."""
    state, offsets, topics = tasks.state[me], wants.offsets, wants.topics
    if not rule.covers:
        return np.int64(state[COUNT] - (1 if also < 0 else 2) < state[K])
    node, shift, count = me % rule.nodes, me // rule.nodes * len(wants.topics), 0
    first, first_end = offsets[peer], offsets[peer + 1]
    second, second_end = (offsets[also], offsets[also + 1]) if also >= 0 else (np.int64(0), np.int64(0))
    for mine in range(offsets[node], offsets[node + 1]):
        topic, lost = topics[mine], 0
        while first < first_end and topics[first] < topic:
            first += 1
        while second < second_end and topics[second] < topic:
            second += 1
        lost += first < first_end and topics[first] == topic
        lost += second < second_end and topics[second] == topic
        left = tasks.cover[shift + mine] - lost
        count += (lost > 0 and left < state[K]) or is_under(tasks, rule, me, shift + mine)
    return np.int64(count)


@njit(folder=True)
def shared_topics(wants, one, other):
    """Return how many topics both nodes want."""
    offsets, topics, count = wants.offsets, wants.topics, 0
    mine, theirs = offsets[one], offsets[other]
    while mine < offsets[one + 1] and theirs < offsets[other + 1]:
        if topics[mine] < topics[theirs]:
            mine += 1
        elif topics[mine] > topics[theirs]:
            theirs += 1
        else:
            count += 1
            mine += 1
            theirs += 1
    return count


@njit(folder=True)
def fewest_missed(tasks, wants, rule, me, tied):
    """Fill `tied` with the neighbors that show a high degree and whose loss leaves fewest topics under-covered.

    Those that have ignored a DISCONNECT since the last change are not among them. Return their number, and how many
    topics are under-covered then.  [SC Fig. 3, l. 8-18]
    """
    count, least, state = 0, -1, tasks.state[me]
    for place in range(tasks.begin[me], tasks.begin[me] + state[COUNT]):
        record = tasks.records[place]
        high = record[DEGREE] > record[THEIR_TARGET] - (not rule.strictly)
        if not high or record[REFUSED] == state[CHANGES]:
            continue
        missed = under_without(tasks, wants, rule, me, np.int64(record[PEER]), np.int64(-1))
        if least < 0 or missed < least:
            count, least = 0, missed
        if missed == least:
            tied[count] = record[PEER]
            count += 1
    return count, least


@njit(folder=True)
def most_alike(tasks, wants, rule, me, stranger, tied):
    """Fill `tied` with the neighbors that can take a redirect and share most topics with `stranger`.

    Return their number.  [SC Fig. 4, l. 7-8]
    """
    count, most = 0, 0
    for place in range(tasks.begin[me], tasks.begin[me] + tasks.state[me, COUNT]):
        record = tasks.records[place]
        if record[PEER] == stranger or record[DEGREE] >= record[THEIR_TARGET] + rule.redirect_room:
            continue
        shared = shared_topics(wants, np.int64(record[PEER]), stranger)
        if shared > most:
            count, most = 0, shared
        if shared == most:
            tied[count] = record[PEER]
            count += 1
    return count
