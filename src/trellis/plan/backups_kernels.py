"""Build backup sets by one of five routines.  [SH Alg. 11, 12; OMen §4.2]

All repeat a set cover of v's topics `covers` times. A chosen node is no candidate for later covers, so the covers are
disjoint. A topic without a remaining candidate is dropped from the cover (A-SHD-6).

    PRIMAL_DUAL            draw an uncovered topic, take its subscriber of least positive weight, lower the
                           weights of its other subscribers by the same amount  [SH Alg. 12]
    PRIMAL_DUAL_CARRY      the same, but the lowered weights stay for the next cover (A-SHD-5)
    PRIMAL_DUAL_UNCOVERED  draw an uncovered topic, take its subscriber with most uncovered topics  [OMen §4.2]
    GREEDY                 take the node with most uncovered topics  [OMen §4.2]
    GREEDY_WEIGHTED        take the node of least weight per uncovered topic  [SH Alg. 11]

weight(u) = |u.neighbors| + |u.primaries|. Ties go to the lowest rank. Random numbers come from an xorshift64 generator
(Marsaglia 2003), which is restarted for every set from a stream of its own.

While v's set is built, `closed` marks nodes that are no candidates (v and its backups). `uncovered` marks the topics
that the present cover still lacks, and `rest` lists them, ascending. The routines below write their choices at index
`count` and after it, and return the new count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.jit import njit

PRIMAL_DUAL, PRIMAL_DUAL_CARRY, PRIMAL_DUAL_UNCOVERED, GREEDY, GREEDY_WEIGHTED = range(5)


@njit(cache=True)
def build(
    routine: Any,
    nodes: Any,
    covers: Any,
    draws: Any,
    topic_data: Any,
    topic_start: Any,
    topic_length: Any,
    member_data: Any,
    member_start: Any,
    member_length: Any,
    backup_data: Any,
    backup_start: Any,
    backup_length: Any,
    weight: Any,
    only_topic: Any,
) -> Any:
    """Choose backups for each of `nodes`, one after the other.  [SH Alg. 6, 8, 9]

    covers      number of disjoint covers of each node
    draws       first state of each node's random stream; not 0
    weight      weight of every node; it is changed as backups are dropped and chosen
    only_topic  -1: a new set, the present one is dropped; otherwise backups for this topic beside the present ones
    returns     offsets, chosen, cover: the new backups of nodes[i] are chosen[offsets[i]:offsets[i + 1]], in the
                order in which they were chosen; cover has the number of the cover of each
    """
    room = 0
    for i in range(len(nodes)):
        room += min(covers[i] * (topic_length[nodes[i]] if only_topic < 0 else 1), len(weight))
    chosen, cover = np.empty(room, np.int32), np.empty(room, np.int32)
    offsets = np.zeros(len(nodes) + 1, np.int64)
    closed = np.zeros(len(weight), np.bool_)
    uncovered = np.zeros(len(member_start), np.bool_)
    left = weight.copy()
    state = np.empty(1, np.uint64)
    topic_rows = topic_data, topic_start, topic_length
    member_rows = member_data, member_start, member_length
    for i in range(len(nodes)):
        v, count = nodes[i], offsets[i]
        backups = backup_data[backup_start[v] : backup_start[v] + backup_length[v]]
        if only_topic < 0:
            wanted = topic_data[topic_start[v] : topic_start[v] + topic_length[v]]
            for at in range(len(backups)):
                weight[backups[at]] -= 1  # l. 1, on both sides (A-SHD-8)
                left[backups[at]] -= 1
        else:
            wanted = np.full(1, only_topic, np.int32)
            _mark(closed, backups, True)
        closed[v] = True
        state[0] = draws[i]
        if routine in (PRIMAL_DUAL, PRIMAL_DUAL_CARRY):
            carry = routine == PRIMAL_DUAL_CARRY
            count = _by_weight(
                wanted,
                covers[i],
                carry,
                topic_rows,
                member_rows,
                weight,
                left,
                closed,
                uncovered,
                state,
                chosen,
                cover,
                count,
            )
        elif routine == PRIMAL_DUAL_UNCOVERED:
            count = _by_topic(
                wanted, covers[i], topic_rows, member_rows, closed, uncovered, state, chosen, cover, count
            )
        else:
            weighted = routine == GREEDY_WEIGHTED
            count = _greedily(
                wanted,
                covers[i],
                weighted,
                topic_rows,
                member_rows,
                weight,
                left,
                closed,
                uncovered,
                chosen,
                cover,
                count,
            )
        closed[v] = False
        _mark(closed, backups, False)
        for at in range(offsets[i], count):
            closed[chosen[at]] = False
            weight[chosen[at]] += 1  # v is now one of its primaries.
            left[chosen[at]] = weight[chosen[at]]
        offsets[i + 1] = count
    return offsets, chosen[: offsets[-1]], cover[: offsets[-1]]


@njit(cache=True)
def _by_weight(
    wanted: Any,
    covers: Any,
    carry: Any,
    topic_rows: Any,
    member_rows: Any,
    weight: Any,
    left: Any,
    closed: Any,
    uncovered: Any,
    state: Any,
    chosen: Any,
    cover: Any,
    count: Any,
) -> Any:
    """Cover the topics by SH Alg. 12. `left` holds the lowered weights; it equals `weight` before and after."""
    member_data, member_start, member_length = member_rows
    lowered = np.empty(len(wanted) * covers, np.int32)  # topics whose subscribers' weights were lowered
    lowerings = 0
    for number in range(covers):
        before = count
        rest = wanted.copy()  # l. 3
        _mark(uncovered, rest, True)
        while len(rest):  # l. 6
            topic = rest[_below(state, len(rest))]  # l. 7
            subscribers = member_data[member_start[topic] : member_start[topic] + member_length[topic]]
            w = _lightest(subscribers, closed, left, state)
            lowered[lowerings] = topic
            lowerings += 1
            if w < 0:  # Deviation: nobody is left to cover it, and the listing would never end (A-SHD-6)
                uncovered[topic] = False
                rest = _still(rest, uncovered)
                continue
            chosen[count], cover[count] = w, number  # l. 10, 11
            count += 1
            closed[w] = True
            _covered_by(w, topic_rows, uncovered)
            rest = _still(rest, uncovered)  # l. 12
        if not carry or number == covers - 1 or count == before:  # l. 4, 5 of the next cover (A-SHD-5)
            for at in range(lowerings):
                topic = lowered[at]
                for m in range(member_start[topic], member_start[topic] + member_length[topic]):
                    left[member_data[m]] = weight[member_data[m]]
            lowerings = 0
        if count == before:
            break  # If no topic has a candidate, a later cover has none either.
    return count


@njit(cache=True)
def _lightest(subscribers: Any, closed: Any, left: Any, state: Any) -> Any:
    """Return the candidate of least positive weight, or -1.

    Lower all positive weights by it.  [SH Alg. 12, l. 8-9, 13-14]

    Deviation: where all candidates have come down to 0 the listing has none; we take one of them at random, because its
    cost is already paid (A-SHD-4).
    """
    best, spent = -1, 0
    for at in range(len(subscribers)):
        u = subscribers[at]
        if closed[u]:
            continue
        if left[u] == 0:
            spent += 1
        elif best < 0 or left[u] < left[best]:
            best = u
    if best >= 0:
        least = left[best]
        for at in range(len(subscribers)):
            u = subscribers[at]
            if left[u] > 0 and not closed[u]:
                left[u] -= least
    elif spent:
        skip = _below(state, spent)
        for at in range(len(subscribers)):
            if not closed[subscribers[at]]:
                if skip == 0:
                    return subscribers[at]
                skip -= 1
    return best


@njit(cache=True)
def _by_topic(
    wanted: Any,
    covers: Any,
    topic_rows: Any,
    member_rows: Any,
    closed: Any,
    uncovered: Any,
    state: Any,
    chosen: Any,
    cover: Any,
    count: Any,
) -> Any:
    """Cover the topics by the primal-dual routine in the wording of OMen §4.2."""
    topic_data, topic_start, topic_length = topic_rows
    member_data, member_start, member_length = member_rows
    for number in range(covers):
        before = count
        rest = wanted.copy()
        _mark(uncovered, rest, True)
        while len(rest):
            topic = rest[_below(state, len(rest))]
            best, most = -1, 0
            for m in range(member_start[topic], member_start[topic] + member_length[topic]):
                u = member_data[m]
                if closed[u]:
                    continue
                gain = 0
                for at in range(topic_start[u], topic_start[u] + topic_length[u]):
                    gain += uncovered[topic_data[at]]
                if gain > most:
                    best, most = u, gain
            if best < 0:
                uncovered[topic] = False
            else:
                chosen[count], cover[count] = best, number
                count += 1
                closed[best] = True
                _covered_by(best, topic_rows, uncovered)
            rest = _still(rest, uncovered)
        if count == before:
            break
    return count


@njit(cache=True)
def _greedily(
    wanted: Any,
    covers: Any,
    weighted: Any,
    topic_rows: Any,
    member_rows: Any,
    weight: Any,
    gain: Any,
    closed: Any,
    uncovered: Any,
    chosen: Any,
    cover: Any,
    count: Any,
) -> Any:
    """Cover the topics by SH Alg. 11, or by OMen's routine without weights.

    `gain` is scratch: uncovered topics per node.
    """
    topic_data, topic_start, topic_length = topic_rows
    member_data, member_start, member_length = member_rows
    near = _subscribers(wanted, member_rows, gain)
    for number in range(covers):
        before = count
        for at in range(len(near)):
            gain[near[at]] = 0
        for t in range(len(wanted)):
            uncovered[wanted[t]] = True  # l. 3
            for m in range(member_start[wanted[t]], member_start[wanted[t]] + member_length[wanted[t]]):
                gain[member_data[m]] += 1
        w = _greediest(near, gain, weight, closed, weighted)
        while w >= 0:  # l. 5
            chosen[count], cover[count] = w, number  # l. 10, 11
            count += 1
            closed[w] = True
            for at in range(topic_start[w], topic_start[w] + topic_length[w]):
                topic = topic_data[at]
                if uncovered[topic]:
                    uncovered[topic] = False  # l. 12
                    for m in range(member_start[topic], member_start[topic] + member_length[topic]):
                        gain[member_data[m]] -= 1
            w = _greediest(near, gain, weight, closed, weighted)
        _mark(uncovered, wanted, False)
        if count == before:
            break
    return count


@njit(cache=True)
def _subscribers(wanted: Any, member_rows: Any, mark: Any) -> Any:
    """Return every node that has one of the topics, once."""
    member_data, member_start, member_length = member_rows
    room, count = 0, 0
    for t in range(len(wanted)):
        room += member_length[wanted[t]]
    subscribers = np.empty(room, np.int32)
    for marking in (False, True):
        for t in range(len(wanted)):
            for m in range(member_start[wanted[t]], member_start[wanted[t]] + member_length[wanted[t]]):
                u = member_data[m]
                if marking and mark[u] == 0:
                    subscribers[count] = u
                    count += 1
                mark[u] = marking
    return subscribers[:count]


@njit(cache=True)
def _greediest(near: Any, gain: Any, weight: Any, closed: Any, weighted: Any) -> Any:
    """Return the candidate of least weight per uncovered topic, or -1 if none has one.  [SH Alg. 11, l. 6-9]"""
    best = -1
    for at in range(len(near)):
        u = near[at]
        if gain[u] == 0 or closed[u]:
            continue
        if best < 0:
            best = u
            continue
        # Compare weight / gain without fractions. Without weights, compare 1 / gain.
        mine = (weight[u] if weighted else 1) * gain[best]
        theirs = (weight[best] if weighted else 1) * gain[u]
        if mine < theirs or (mine == theirs and u < best):
            best = u
    return best


@njit(cache=True)
def _mark(flags: Any, places: Any, value: Any) -> None:
    for at in range(len(places)):
        flags[places[at]] = value


@njit(cache=True)
def _covered_by(w: Any, topic_rows: Any, uncovered: Any) -> None:
    topic_data, topic_start, topic_length = topic_rows
    for at in range(topic_start[w], topic_start[w] + topic_length[w]):
        uncovered[topic_data[at]] = False


@njit(cache=True)
def _still(rest: Any, uncovered: Any) -> Any:
    count = 0
    for t in range(len(rest)):
        if uncovered[rest[t]]:
            rest[count] = rest[t]
            count += 1
    return rest[:count]


@njit(cache=True)
def _below(state: Any, bound: Any) -> Any:
    """Return a uniform number in 0..bound-1, from the upper 32 bits of the next random number."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64((x >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32))
