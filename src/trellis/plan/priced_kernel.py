"""Choose the next edge of plans with costs and caps (`trellis.plan.priced` has the rule).

Pairs are in the order of the tie rule, in chunks of 64, and 64 chunks are a block. Values never grow, because
contributions never grow and costs stay the same. So a value that was once computed is an upper bound of the present
one. A pair is examined only if the bounds of its block and of its chunk exceed the best value found so far.

The choice goes through four phases, and never back to an earlier one:

SAFE    edges that do no harm: both ends have room and are worth the link, and the deficit of no topic grows
WITHIN  other edges whose ends both have room
ONE     edges with one end that has no room
BOTH    all others

Neither room nor contributions ever grow. So after WITHIN, ONE or BOTH has ended, no edge of it contributes again.

I1  bounds[ALL, k] is at least every value in chunk k of a pair that the phase allows.
I2  bounds[LOW, k] is at least every such value of a pair whose ends have fewer links than the maximum degree.
I3  tops[.., b] is at least every bound of block b.
I4  component_room[s], where slot s stands for its component, is the sum of the room of the component's nodes;
    topic_room[t] is the sum over all nodes of topic t; dead[t] counts the components of t that have no room.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from trellis.jit import njit
from trellis.plan.blocks import block_contribution, link_blocks
from trellis.plan.kernel import contribution, copy, link
from trellis.plan.state import ALL, BLOCKS, CHUNK, COMPONENT, LOW, SIZE, TOPIC

SAFE, WITHIN, ONE, BOTH = range(4)  # phases
# Columns of `edges`; JOINED: the first topic that the edge joins, or -1.
LOWER, HIGHER, GAIN, OVER_LOWER, OVER_HIGHER, JOINED = range(6)
DEGREE_MAX, EDGES, PHASE = range(3)  # indexes of `totals`
UNCAPPED = 2**31 - 1  # room of a node without a cap, which never decreases
FREE_COST = 2.0**-990  # Smaller costs count as this, so links of cost 0 come before all others.
SLACK = 1 + 1e-12  # A value is greater than another only if the difference exceeds rounding.


@njit(cache=True)
def choose_priced_edges(components, pairs, caps, degrees, totals, edges, rho, form, edges_max):
    """Choose edges until no pair contributes (return True) or `edges_max` edges are chosen (return False)."""
    offsets, slots, by_topic, slot_at, node_at = components
    i, j, cost, values, bounds, tops = pairs
    room, component_room, _, parts, dead = caps
    no_planes, no_gains, no_rows = np.empty((0, 1, 8, CHUNK), np.uint64), np.empty(0, np.uint16), np.empty(0, np.int64)
    while totals[EDGES] < edges_max:
        pair = low_pair(offsets, slots, i, j, cost, values, bounds, tops, caps, degrees, totals, rho, form)
        if pair < 0:
            if totals[PHASE] == BOTH:
                return True
            totals[PHASE] += 1
            bounds[:] = np.inf
            tops[:] = np.inf
            continue
        u, v, edge = i[pair], j[pair], totals[EDGES]
        edges[edge, LOWER], edges[edge, HIGHER] = u, v
        edges[edge, GAIN] = gain_of(offsets, slots, u, v, form)
        edges[edge, OVER_LOWER], edges[edge, OVER_HIGHER] = room[u] == 0, room[v] == 0
        edges[edge, JOINED] = first_joined(offsets, slots, u, v) if form != BLOCKS else -1
        totals[EDGES] += 1
        if form == BLOCKS:
            link_blocks(offsets, slots, u, v)
        else:
            merge_rooms(offsets, slots, u, v, component_room, parts, dead)
            link(offsets, slots, by_topic, slot_at, node_at, form, no_planes, no_gains, no_rows, u, v)
        values[pair] = 0.0
        for end in (u, v):
            degrees[end] += 1
            take_room(offsets, slots, end, caps, form)
        grown = max(degrees[u], degrees[v])
        if grown > totals[DEGREE_MAX]:
            totals[DEGREE_MAX] = grown
            copy(bounds[ALL], bounds[LOW])
            copy(tops[ALL], tops[LOW])
    return False


@njit(cache=True)
def low_pair(offsets, slots, i, j, cost, values, bounds, tops, caps, degrees, totals, rho, form):
    """Return e1 if value(e1) > rho * value(e2), otherwise e2; -1 if no pair of the phase contributes."""
    low = best_pair(offsets, slots, i, j, cost, values, bounds, tops, caps, degrees, totals, LOW, 0.0, form)
    enough = rho * values[low] * SLACK if low >= 0 else 0.0
    pair = best_pair(offsets, slots, i, j, cost, values, bounds, tops, caps, degrees, totals, ALL, enough, form)
    return low if pair < 0 else pair


@njit(cache=True)
def best_pair(offsets, slots, i, j, cost, values, bounds, tops, caps, degrees, totals, which, enough, form):
    """Return the first pair of the greatest value above `enough` that the phase allows, or -1.

    which  LOW: only among pairs whose ends have fewer links than the maximum degree
    """
    room, degree_max, phase, best, chosen = caps[0], totals[DEGREE_MAX], totals[PHASE], enough, -1
    over_max = max(phase - WITHIN, 0)
    for block in range(tops.shape[1]):
        if tops[which, block] <= best:
            continue
        for k in range(block * CHUNK, min((block + 1) * CHUNK, bounds.shape[1])):
            if bounds[which, k] <= best:
                continue
            bound, every = 0.0, 0.0  # of pairs of this class, and of all that the phase allows
            for pair in range(k * CHUNK, min((k + 1) * CHUNK, len(i))):
                u, v = i[pair], j[pair]
                if values[pair] == 0.0 or np.int64(room[u] == 0) + np.int64(room[v] == 0) > over_max:
                    continue
                if which == LOW and (degrees[u] >= degree_max or degrees[v] >= degree_max):
                    every = max(every, values[pair])
                    continue
                if values[pair] > best:
                    values[pair] = gain_of(offsets, slots, u, v, form) / max(cost[pair], FREE_COST)
                    if values[pair] > best and (phase != SAFE or is_harmless(offsets, slots, u, v, caps, form)):
                        best, chosen = values[pair], pair
                bound = max(bound, values[pair])
            bounds[which, k] = bound
            if which == LOW:
                bounds[ALL, k] = max(bound, every)
        tops[which, block] = greatest(bounds[which], block)
        if which == LOW:
            tops[ALL, block] = greatest(bounds[ALL], block)
    return chosen


@njit(cache=True)
def greatest(bounds, block):
    """Return the greatest bound of a block."""
    top = 0.0
    for k in range(block * CHUNK, min((block + 1) * CHUNK, len(bounds))):
        top = max(top, bounds[k])
    return top


@njit(cache=True)
def gain_of(offsets, slots, u, v, form):
    """Return the contribution of an edge: components joined, or blocks removed in the form BLOCKS."""
    if form == BLOCKS:
        return np.int64(block_contribution(offsets, slots, u, v))
    return np.int64(contribution(offsets, slots, u, v))


@njit(cache=True)
def first_joined(offsets, slots, u, v):
    """Return the first topic whose components the edge would join."""
    a, b = offsets[u], offsets[v]
    while a < offsets[u + 1] and b < offsets[v + 1]:
        if slots[a, TOPIC] < slots[b, TOPIC]:
            a += 1
        elif slots[a, TOPIC] > slots[b, TOPIC]:
            b += 1
        else:
            if slots[a, COMPONENT] != slots[b, COMPONENT]:
                return slots[a, TOPIC]
            a += 1
            b += 1
    return -1


@njit(cache=True)
def is_harmless(offsets, slots, u, v, caps, form):
    """Return whether the deficit of no topic grows, and both ends are worth the link. Both ends have room.

    An end with a cap is alone in some of its topics. The link must end this in its share of them: these topics divided
    by the links that the end may still have. It need not if the links after this one are enough for one topic each.
    """
    room, component_room, topic_room, parts, dead = caps
    take_u = 1 if 0 < room[u] < UNCAPPED else 0
    take_v = 1 if 0 < room[v] < UNCAPPED else 0
    if take_u + take_v == 0 or form == BLOCKS:
        return True
    alone_u, alone_v, ended_u, ended_v = 0, 0, 0, 0
    a, b = offsets[u], offsets[v]
    while a < offsets[u + 1] or b < offsets[v + 1]:
        has_u = a < offsets[u + 1] and (b == offsets[v + 1] or slots[a, TOPIC] <= slots[b, TOPIC])
        has_v = b < offsets[v + 1] and (a == offsets[u + 1] or slots[b, TOPIC] <= slots[a, TOPIC])
        topic = slots[a, TOPIC] if has_u else slots[b, TOPIC]
        count = parts[topic]
        if count > 1:
            lost = (take_u if has_u else 0) + (take_v if has_v else 0)
            before = deficit(count, dead[topic], topic_room[topic])
            component = slots[a, COMPONENT] if has_u else slots[b, COMPONENT]
            left = component_room[component] - lost
            if has_u and has_v and slots[b, COMPONENT] != component:
                left += component_room[slots[b, COMPONENT]]
                count -= 1
            if deficit(count, dead[topic] + np.int64(left == 0), topic_room[topic] - lost) > before:
                return False
            if has_u and slots[slots[a, COMPONENT], SIZE] == 1:
                alone_u += 1
                ended_u += has_v
            if has_v and slots[slots[b, COMPONENT], SIZE] == 1:
                alone_v += 1
                ended_v += has_u
        a += has_u
        b += has_v
    worth_u = take_u == 0 or ended_u * room[u] >= alone_u or alone_u < room[u]
    worth_v = take_v == 0 or ended_v * room[v] >= alone_v or alone_v < room[v]
    return worth_u and worth_v


@njit(cache=True)
def deficit(parts, dead, room):
    """Return how many ends beyond their caps are needed to connect a topic by itself."""
    return max(dead, 2 * (parts - 1) - room, 0) if parts > 1 else 0


@njit(cache=True)
def merge_rooms(offsets, slots, u, v, component_room, parts, dead):
    """Update I4 for the components that the edge (u, v) is about to join."""
    a, b = offsets[u], offsets[v]
    while a < offsets[u + 1] and b < offsets[v + 1]:
        if slots[a, TOPIC] < slots[b, TOPIC]:
            a += 1
        elif slots[a, TOPIC] > slots[b, TOPIC]:
            b += 1
        else:
            first, second, topic = slots[a, COMPONENT], slots[b, COMPONENT], slots[a, TOPIC]
            if first != second:
                both = component_room[first] + component_room[second]
                for stands in (first, second):
                    dead[topic] -= component_room[stands] == 0
                dead[topic] += both == 0
                component_room[first] = component_room[second] = both  # one of the two will stand for both
                parts[topic] -= 1
            a += 1
            b += 1


@njit(cache=True)
def take_room(offsets, slots, node, caps, form):
    """Reduce the room of a node after it got a link, unless it has none left or no cap."""
    room, component_room, topic_room, _, dead = caps
    if room[node] == 0 or room[node] == UNCAPPED:
        return
    room[node] -= 1
    if form == BLOCKS:  # Here slots stand for blocks, and deficits are not counted.
        return
    for slot in range(offsets[node], offsets[node + 1]):
        stands, topic = slots[slot, COMPONENT], slots[slot, TOPIC]
        component_room[stands] -= 1
        topic_room[topic] -= 1
        dead[topic] += component_room[stands] == 0
