"""Choose the next edge exactly: the kernel of GM and LowODA, in part also of MinMaxODA.  [SH Alg. 1, Alg. 2]

Nodes are ranks here (`trellis.plan.ties`), so a tie goes to the smallest (i, j), i < j. Row i holds the pairs (i, j),
j > i, in *chunks* of 64. A *slot* is one (node, topic) of the interests in CSR form.

Contributions never grow. So an upper bound that was once right stays right. Within one *level* (one value of the
greatest contribution), a single sweep over the rows in order meets every edge of that level in the order of the tie
rule. Each chunk keeps a bound, and is examined only when the level has come down to it. There are three forms of
examining a chunk (`trellis.plan.tables` chooses):

BITS      Nothing is kept for a pair. Each node has two bitsets: its topics, and those in which it is outside the
          *giant*, one chosen TC-component per topic. The number of shared topics in which not both ends are in the
          giant, counted 256 at a time, is a bound of the contribution. The bound is too high only if both ends are in
          one TC-component that is not the giant. So an edge is checked exactly before it is taken. For few topics.
TRIANGLE  The contribution of every pair is kept, and lowered pair by pair when TC-components merge
          [SH Alg. 2, l. 8-9]. Each pair is touched once per topic. For many topics.
LISTS     A bound is kept for each of a list of candidate pairs, and corrected when the level has come down to it. For
          few pairs among many nodes. BLOCKS is the same for another kind of contribution, that of
          `trellis.plan.blocks`.

The class of e2, the edges that raise the maximum degree D least, are those between *active* nodes, of degree below D.
While D stays the same, that class only shrinks, so it has a sweep of its own, which restarts when D grows. Index ALL
means the sweep over all pairs (e1), and LOW the one over active pairs (e2).

MinMaxODA always takes e2, and has ties and a sweep of its own (`trellis.plan.light`).

I1  bounds[ALL, k] is at least every contribution in chunk k, bounds[LOW, k] every one of an active pair.
I2  No pair contributes more than cursors[ALL, LEVEL], and none that contributes as much is in a row
    before cursors[ALL, ROW]; likewise LOW for active pairs.
I3  The giant's size is more than half of its topic's largest TC-component.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from trellis.jit import njit
from trellis.plan.blocks import block_contribution, link_blocks
from trellis.plan.state import (
    ALL,
    BITS,
    BLOCKS,
    CHUNK,
    COMPONENT,
    DEGREE_MAX,
    EDGES,
    FOLLOWING,
    GIANT,
    LEFT,
    LEVEL,
    LOW,
    OUTSIDERS,
    OWNER,
    PLACE,
    ROW,
    SIZE,
    START,
    TOPIC,
    TRIANGLE,
)

ZERO, ONE = np.uint64(0), np.uint64(1)


@intrinsic
def _ctpop(typing_context, word):
    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


def popcount(word):
    """Return how many bits of a 64-bit word are set. Compiled, it is one instruction."""
    return int(word).bit_count()


@overload(popcount)
def _popcount(word):
    return lambda word: _ctpop(word)  # type: ignore[call-arg]


@njit(cache=True)
def choose_edges(components, pairs, state, rho, edges_max):
    """Choose edges until no candidate contributes (return True) or `edges_max` edges are chosen (return False).

    findLowEdge: e1 if contrib(e1) > rho * contrib(e2), else e2. GM is rho = 1; MinMaxODA is in `trellis.plan.light`.
    """
    # The inner kernels take arrays: passing a large tuple costs more time than they take to run.
    offsets, slots, by_topic, slot_at, node_at = components
    form, planes, contributions, columns, row_start, chunk_start, bounds, rows, active = pairs
    degrees, cursors, totals, edges = state
    scratch, words = np.empty(CHUNK, bounds.dtype), np.empty(planes.shape[1:3], np.uint64)
    while totals[EDGES] < edges_max:
        gain, i, j, raises = 0, 0, -1, False
        for which in (LOW, ALL):  # e2 comes first, because it determines how much e1 must contribute.
            needed = rho * gain if gain > 0 else 0.0  # If no e2 leaves D unchanged, e2 is e1 [A-LOW-1].
            if which == ALL and cursors[ALL, LEVEL] <= needed:
                continue
            if which == ALL:
                refresh_rows(chunk_start, bounds, rows)
            limit = np.int64(needed) if which == ALL else 0
            candidate = next_edge(
                offsets, slots, form, planes, contributions, columns, row_start, chunk_start, bounds, rows,
                active, cursors, scratch, words, which, limit,
            )  # fmt: skip
            if candidate[2] >= 0:
                gain, i, j = candidate
                raises = which == ALL
        if j < 0:
            return True
        edge = totals[EDGES]
        edges[edge, 0], edges[edge, 1], edges[edge, 2] = i, j, gain
        totals[EDGES] += 1
        totals[LEFT] -= gain
        degrees[i] += 1
        degrees[j] += 1
        if form == BLOCKS:
            link_blocks(offsets, slots, i, j)
        else:
            link(
                offsets, slots, by_topic, slot_at, node_at, form, planes, contributions, row_start, i, j
            )  # fmt: skip
        if raises:  # e1 was not in the class of e2: one of its ends had degree D.
            totals[DEGREE_MAX] += 1
            for node in range(len(degrees)):
                active[LOW, node] = active[ALL, node] if degrees[node] < totals[DEGREE_MAX] else 0
            refresh_rows(chunk_start, bounds, rows)
            copy(bounds[ALL], bounds[LOW])
            copy(rows[ALL], rows[LOW])
            cursors[LOW, LEVEL], cursors[LOW, ROW] = cursors[ALL, LEVEL], 0
        else:
            for end in (i, j):
                if degrees[end] >= totals[DEGREE_MAX]:
                    active[LOW, end] = 0
    return False


@njit(cache=True)
def refresh_rows(chunk_start, bounds, rows):
    """Update the rows of ALL, because the sweep LOW has lowered bounds of ALL as well."""
    for i in range(rows.shape[1]):
        rows[ALL, i] = highest(bounds, ALL, chunk_start[i], chunk_start[i + 1])


@njit(cache=True)
def copy(source, target):
    for k in range(len(source)):  # A loop, because `target[:] = source` takes seconds to compile.
        target[k] = source[k]


@njit(cache=True)
def next_edge(
    offsets, slots, form, planes, contributions, columns, row_start, chunk_start, bounds, rows, active,
    cursors, scratch, words, which, limit,
):  # fmt: skip
    """Return (contribution, i, j) of the best pair if it contributes more than `limit`; otherwise j is -1.

    The search starts at the cursor (I2) and leaves it at the pair: after that is taken, its row may hold more.
    """
    level, i = cursors[which, LEVEL], cursors[which, ROW]
    while level > limit:
        while i < rows.shape[1]:
            if rows[which, i] >= level and active[which, i] != 0:
                block = i // CHUNK
                if form == BITS:
                    for group in range(planes.shape[1]):
                        for word in range(8):
                            words[group, word] = planes[block, group, word, i % CHUNK]
                for k in range(chunk_start[i], chunk_start[i + 1]):
                    if bounds[which, k] < level:
                        continue
                    nth = k - chunk_start[i]
                    first = (block + nth) * CHUNK  # column of the chunk, except in LISTS
                    if form == BITS:
                        best = meet(planes, block + nth, words, scratch)
                        low, j = best, -1
                        if nth == 0:
                            scratch[: i % CHUNK + 1] = 0  # columns up to i are no pairs of this row
                        if nth == 0 or best >= level:
                            best, low, j = look(scratch, 0, active, which, first, level)
                            while j >= 0:
                                exact = contribution(offsets, slots, i, j)
                                if exact >= level:
                                    break
                                scratch[j - first] = exact
                                best, low, j = look(scratch, 0, active, which, first, level)
                    elif form == TRIANGLE:
                        best, low, j = look(contributions, row_start[i] + first, active, which, first, level)
                    else:
                        start = row_start[i] + nth * CHUNK
                        end = min(start + CHUNK, row_start[i + 1])
                        best, low, j = look_listed(
                            offsets, slots, form, contributions, columns, start, end, active, which, i, level
                        )
                    if j >= 0:
                        cursors[which, LEVEL], cursors[which, ROW] = level, i
                        return level, i, j
                    bounds[ALL, k] = best
                    bounds[which, k] = low
                rows[which, i] = highest(bounds, which, chunk_start[i], chunk_start[i + 1])
            i += 1
        i = 0
        level = min(level - 1, highest_active(rows, active, which))
    cursors[which, LEVEL], cursors[which, ROW] = level, 0
    return 0, 0, -1


@njit(cache=True)
def meet(planes, block, words, upper):
    """BITS: count the topics that each node of a block shares with the row's node, unless both are in the giant.

    Return the largest count.
    """
    upper[:] = 0
    best = ZERO
    for group in range(planes.shape[1]):
        p = planes[block, group]
        in0, in1, in2, in3 = words[group, 0], words[group, 1], words[group, 2], words[group, 3]
        out0, out1, out2, out3 = words[group, 4], words[group, 5], words[group, 6], words[group, 7]
        best = ZERO
        for k in range(CHUNK):  # eight at a time if the processor can
            shared = upper[k] + popcount((in0 & p[4, k]) | (out0 & p[0, k]))
            shared += popcount((in1 & p[5, k]) | (out1 & p[1, k]))
            shared += popcount((in2 & p[6, k]) | (out2 & p[2, k]))
            shared += popcount((in3 & p[7, k]) | (out3 & p[3, k]))
            upper[k] = shared
            best = max(best, shared)
    return np.int64(best)


@njit(cache=True)
def look(array, start, active, which, first, level):
    """Return a chunk's greatest value, the greatest of its active pairs, and the first active column of the level."""
    cells, mask = array[start : start + CHUNK], active[which, first : first + CHUNK]
    best, low = cells[0], cells[0] & mask[0]
    for k in range(CHUNK):
        best = max(best, cells[k])
        low = max(low, cells[k] & mask[k])
    if low >= level:
        for k in range(CHUNK):
            if (cells[k] & mask[k]) >= level:
                return np.int64(best), np.int64(low), first + k
    return np.int64(best), np.int64(low), -1


@njit(cache=True)
def look_listed(offsets, slots, form, contributions, columns, start, end, active, which, i, level):
    """LISTS: do the same for the listed pairs start:end of row i. Their bounds are corrected where it matters."""
    best, low = np.int64(0), np.int64(0)
    for k in range(start, end):
        gain, j = np.int64(contributions[k]), np.int64(columns[k])
        if active[which, j] != 0:
            if gain >= level:
                if form == BLOCKS:
                    gain = np.int64(block_contribution(offsets, slots, i, j))
                else:
                    gain = contribution(offsets, slots, i, j)
                if gain >= level:
                    return best, low, j
                contributions[k] = gain
            low = max(low, gain)
        best = max(best, gain)
    return best, low, -1


@njit(cache=True)
def highest(bounds, which, start, end):
    row = bounds[which, start:end]
    top = bounds.dtype.type(0)
    for k in range(len(row)):
        top = max(top, row[k])
    return top


@njit(cache=True)
def highest_active(rows, active, which):
    """Return the greatest bound of the active rows."""
    row, mask = rows[which], active[which]
    top = rows.dtype.type(0)
    for i in range(len(row)):
        top = max(top, row[i] & mask[i])
    return np.int64(top)


@njit(cache=True)
def contribution(offsets, slots, i, j):
    """Return the number of topics whose TC-components the edge (i, j) would join.  [SH Alg. 2, l. 3]"""
    gain, a, b = 0, offsets[i], offsets[j]
    while a < offsets[i + 1] and b < offsets[j + 1]:
        if slots[a, TOPIC] < slots[b, TOPIC]:
            a += 1
        elif slots[a, TOPIC] > slots[b, TOPIC]:
            b += 1
        else:
            gain += slots[a, COMPONENT] != slots[b, COMPONENT]
            a += 1
            b += 1
    return gain


@njit(cache=True)
def link(
    offsets, slots, by_topic, slot_at, node_at, form, planes, contributions, row_start, i, j
):  # fmt: skip
    """Add the edge (i, j): its ends become connected in every topic that they share."""
    a, b = offsets[i], offsets[j]
    while a < offsets[i + 1] and b < offsets[j + 1]:
        if slots[a, TOPIC] < slots[b, TOPIC]:
            a += 1
        elif slots[a, TOPIC] > slots[b, TOPIC]:
            b += 1
        else:
            first, second = np.int64(slots[a, COMPONENT]), np.int64(slots[b, COMPONENT])
            if first != second:
                join(
                    slots, by_topic, slot_at, node_at, form, planes, contributions, row_start,
                    np.int64(slots[a, TOPIC]), first, second,
                )  # fmt: skip
            a += 1
            b += 1


@njit(cache=True)
def join(
    slots, by_topic, slot_at, node_at, form, planes, contributions, row_start, topic, kept, gone
):  # fmt: skip
    """Merge two TC-components. The smaller one takes the name of the larger one, or of the giant."""
    giant = np.int64(by_topic[topic, GIANT])
    if gone == giant or (kept != giant and slots[gone, SIZE] > slots[kept, SIZE]):
        kept, gone = gone, kept
    if form == TRIANGLE:
        lower(slots, by_topic, node_at, contributions, row_start, topic, kept, gone)
    slot = gone
    while True:
        slots[slot, COMPONENT] = kept
        slot = np.int64(slots[slot, FOLLOWING])
        if slot == gone:
            break
    if kept == giant:
        enter_giant(slots, by_topic, slot_at, node_at, form, planes, topic, gone)
    # Two circles become one.
    slots[kept, FOLLOWING], slots[gone, FOLLOWING] = slots[gone, FOLLOWING], slots[kept, FOLLOWING]
    slots[kept, SIZE] += slots[gone, SIZE]
    # I3. A giant is replaced by one of at least twice its size, so all these changes cost no more than the last one.
    if kept != giant and slots[kept, SIZE] >= 2 * slots[giant, SIZE]:
        if form == BITS:
            mark(slots, planes, topic, giant, True)
        by_topic[topic, GIANT] = kept
        by_topic[topic, OUTSIDERS] = by_topic[topic + 1, START] - by_topic[topic, START]
        enter_giant(slots, by_topic, slot_at, node_at, form, planes, topic, kept)


@njit(cache=True)
def single_out_giants(slots, by_topic, slot_at, node_at, form, planes):
    """Enter the giants at the start. `by_topic` names them, and all slots are outside at first."""
    for topic in range(len(by_topic) - 1):
        if by_topic[topic, GIANT] >= 0:
            enter_giant(slots, by_topic, slot_at, node_at, form, planes, topic, np.int64(by_topic[topic, GIANT]))


@njit(cache=True)
def enter_giant(slots, by_topic, slot_at, node_at, form, planes, topic, first):
    """Let all slots in the circle of `first` enter the giant of their topic."""
    if form == BITS:
        mark(slots, planes, topic, first, False)
    if form != TRIANGLE:
        return
    slot, there = first, by_topic[topic, START] + by_topic[topic, OUTSIDERS]
    while True:
        there -= 1  # The last outsider and this slot swap their positions.
        here, outsider = slots[slot, PLACE], slot_at[there]
        slot_at[here], slot_at[there] = outsider, slot
        node_at[here], node_at[there] = slots[outsider, OWNER], slots[slot, OWNER]
        slots[outsider, PLACE], slots[slot, PLACE] = here, there
        slot = np.int64(slots[slot, FOLLOWING])
        if slot == first:
            break
    by_topic[topic, OUTSIDERS] = there - by_topic[topic, START]


@njit(cache=True)
def mark(slots, planes, topic, first, outside):
    """BITS: mark all slots in the circle of `first` as outside the giant, or as no longer outside."""
    group, word, bit = topic // 256, 4 + topic % 256 // 64, ONE << np.uint64(topic % 64)
    slot = first
    while True:
        node = np.int64(slots[slot, OWNER])
        if outside:
            planes[node // CHUNK, group, word, node % CHUNK] |= bit
        else:
            planes[node // CHUNK, group, word, node % CHUNK] &= ~bit
        slot = np.int64(slots[slot, FOLLOWING])
        if slot == first:
            break


@njit(cache=True)
def lower(slots, by_topic, node_at, contributions, row_start, topic, kept, gone):
    """TRIANGLE: remove this topic from the pairs between two TC-components that merge.  [SH Alg. 2, l. 8-9]"""
    if kept == by_topic[topic, GIANT]:
        others = node_at[by_topic[topic, START] + by_topic[topic, OUTSIDERS] : by_topic[topic + 1, START]]
    else:
        others = np.empty(slots[kept, SIZE], np.int32)
        slot = kept
        for k in range(len(others)):
            others[k] = slots[slot, OWNER]
            slot = np.int64(slots[slot, FOLLOWING])
    slot = gone
    while True:
        node = np.int64(slots[slot, OWNER])
        lower_pairs(contributions, row_start, node, others)
        slot = np.int64(slots[slot, FOLLOWING])
        if slot == gone:
            break


@njit(cache=True)
def lower_pairs(contributions, row_start, node, others):
    """Lower the contributions of the pairs of `node` with `others` by one."""
    for k in range(len(others)):
        partner = np.int64(others[k])
        if partner > node:
            contributions[row_start[node] + partner] -= 1
        else:
            contributions[row_start[partner] + node] -= 1
