"""Choose edges for MinMaxODA: always e2, and among several the lightest.  [OM Table 1; `trellis.plan.ties`]

A pair has a *score*: first its contribution, then how light its ends are. The lightness of a node follows from the
uncovered topics that it had when the maximum degree D last rose. While D stays, contributions fall and lightness does
not change, so a score never grows. So the lazy sweep of `trellis.plan.kernel` works with scores instead of
contributions:

I4  scores[k] is at least every score of an active pair in chunk k.
I5  No active pair has a score above cursors[LOW, LEVEL], and none that has it is in a row before cursors[LOW, ROW].

The sweep visits a row once for each of its scores, and there are more scores than contributions. So rows and blocks of
rows have bounds as well. I1 of the kernel holds for ALL, from which the sweep restarts when D rises.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from trellis.jit import njit
from trellis.plan.kernel import contribution, link, meet
from trellis.plan.state import (
    ALL,
    BITS,
    CHUNK,
    COMPONENT,
    DEGREE_MAX,
    EDGES,
    LEFT,
    LEVEL,
    LOW,
    ROW,
    SIZE,
    TRIANGLE,
)

# score: contribution << 16 | lightness of the lighter end << 8 | lightness of the other end, if the contribution is 1
SCORE_SHIFT, LIGHT_SHIFT, LIGHTEST = 16, 8, 2**8 - 1


@njit(cache=True)
def choose_light_edges(components, pairs, state, ties, edges_max):
    """Choose edges as `trellis.plan.kernel.choose_edges` does, but always e2, and among equal ones the lightest."""
    offsets, slots, by_topic, slot_at, node_at = components
    form, planes, contributions, columns, row_start, chunk_start, bounds, _, active = pairs
    degrees, cursors, totals, edges = state
    light, scores, row_scores, block_scores = ties
    scratch, words = np.empty(CHUNK, bounds.dtype), np.empty(planes.shape[1:3], np.uint64)
    while totals[EDGES] < edges_max:
        gain, i, j = 0, 0, -1
        for again in range(2):
            if again:  # No edge leaves D unchanged, so each would raise it by 1. D is one more from now on.
                totals[DEGREE_MAX] += 1
                weigh(components, pairs, state, ties)
            gain, i, j = next_light_edge(
                offsets, slots, form, planes, contributions, columns, row_start, chunk_start, bounds,
                active, cursors, scratch, words, light, scores, row_scores, block_scores,
            )  # fmt: skip
            if j >= 0:
                break
        if j < 0:
            return True
        edge = totals[EDGES]
        edges[edge, 0], edges[edge, 1], edges[edge, 2] = i, j, gain
        totals[EDGES] += 1
        totals[LEFT] -= gain
        link(
            offsets, slots, by_topic, slot_at, node_at, form, planes, contributions, row_start, i, j
        )  # fmt: skip
        for end in (i, j):
            degrees[end] += 1
            if degrees[end] >= totals[DEGREE_MAX]:
                active[LOW, end] = row_scores[end] = 0
    return False


@njit(cache=True)
def weigh(components, pairs, state, ties):
    """Start a new sweep after D has grown: compute the active nodes and the lightness of each node."""
    offsets, slots = components.offsets, components.slots
    chunk_start, bounds, active = pairs.chunk_start, pairs.bounds, pairs.active
    degrees, cursors, totals = state.degrees, state.cursors, state.totals
    light, scores, row_scores, block_scores = ties
    for node in range(len(degrees)):
        active[LOW, node] = active[ALL, node] if degrees[node] < totals[DEGREE_MAX] else 0
        uncovered = 0
        for slot in range(offsets[node], offsets[node + 1]):
            uncovered += slots[slots[slot, COMPONENT], SIZE] == 1
        light[node] = LIGHTEST - min(uncovered, LIGHTEST)
    for i in range(len(degrees)):
        for k in range(chunk_start[i], chunk_start[i + 1]):
            scores[k] = score(np.int64(bounds[ALL, k]), LIGHTEST, LIGHTEST)
        row_scores[i] = greatest(scores, chunk_start[i], chunk_start[i + 1]) if active[LOW, i] != 0 else 0
    for block in range(len(block_scores)):
        block_scores[block] = greatest(row_scores, block * CHUNK, (block + 1) * CHUNK)
    cursors[LOW, LEVEL], cursors[LOW, ROW] = greatest(block_scores, 0, len(block_scores)), 0


@njit(cache=True)
def next_light_edge(
    offsets, slots, form, planes, contributions, columns, row_start, chunk_start, bounds, active,
    cursors, scratch, words, light, scores, row_scores, block_scores,
):  # fmt: skip
    """Return (contribution, i, j) of the active pair of the greatest score; j is -1 if none contributes."""
    level, i = cursors[LOW, LEVEL], cursors[LOW, ROW]
    while level >> SCORE_SHIFT > 0:
        while i < len(row_scores):
            block = i // CHUNK
            if block_scores[block] < level:
                i = (block + 1) * CHUNK
                continue
            if row_scores[i] >= level:
                if form == BITS:
                    for group in range(planes.shape[1]):
                        for word in range(8):
                            words[group, word] = planes[block, group, word, i % CHUNK]
                for k in range(chunk_start[i], chunk_start[i + 1]):
                    if scores[k] < level:
                        continue
                    nth = k - chunk_start[i]
                    first = (block + nth) * CHUNK  # column of the chunk, except in LISTS
                    if form == BITS:
                        meet(planes, block + nth, words, scratch)
                        if nth == 0:
                            scratch[: i % CHUNK + 1] = 0  # columns up to i are no pairs of this row
                        best, low, j = weigh_chunk(scratch, 0, active, light, i, first, level)
                        while j >= 0:
                            exact = contribution(offsets, slots, i, j)
                            if score(exact, light[i], light[j]) >= level:
                                break
                            scratch[j - first] = exact
                            best, low, j = weigh_chunk(scratch, 0, active, light, i, first, level)
                    elif form == TRIANGLE:
                        best, low, j = weigh_chunk(contributions, row_start[i] + first, active, light, i, first, level)
                    else:
                        start = row_start[i] + nth * CHUNK
                        end = min(start + CHUNK, row_start[i + 1])
                        best, low, j = weigh_listed(
                            offsets, slots, contributions, columns, start, end, active, light, i, level
                        )
                    if j >= 0:
                        cursors[LOW, LEVEL], cursors[LOW, ROW] = level, i
                        return level >> SCORE_SHIFT, i, j
                    bounds[ALL, k], scores[k] = best, low
                row_scores[i] = greatest(scores, chunk_start[i], chunk_start[i + 1])
            i += 1
            if i % CHUNK == 0:
                block_scores[block] = greatest(row_scores, block * CHUNK, i)
        i = 0
        level = min(level - 1, greatest(block_scores, 0, len(block_scores)))
    cursors[LOW, LEVEL], cursors[LOW, ROW] = level, 0
    return 0, 0, -1


@njit(cache=True)
def greatest(scores, start, end):
    """Return the greatest of scores[start:end]."""
    part = scores[start:end]
    top = scores.dtype.type(0)
    for k in range(len(part)):
        top = max(top, part[k])
    return np.int64(top)


@njit(cache=True)
def score(gain, light_u, light_v):
    """Return the score of a pair: its contribution, and how light its ends are."""
    second = min(light_u, light_v) if gain == 1 else 0
    return (np.int64(gain) << SCORE_SHIFT) + (np.int64(max(light_u, light_v)) << LIGHT_SHIFT) + np.int64(second)


@njit(cache=True)
def weigh_chunk(array, start, active, light, i, first, level):
    """Return a chunk's greatest contribution, its active pairs' greatest score, and the first column of the level."""
    cells, mask, lights = array[start : start + CHUNK], active[LOW, first : first + CHUNK], light[first : first + CHUNK]
    # Numba widens sums, and then the loop would handle half as many at a time.
    mine, narrow = light[i], light.dtype.type
    best, low = cells[0], narrow(0)
    for k in range(CHUNK):
        best = max(best, cells[k])
        low = max(low, narrow(score(cells[k] & mask[k], mine, lights[k])))
    if low >= level:
        for k in range(CHUNK):
            if score(cells[k] & mask[k], mine, lights[k]) >= level:
                return np.int64(best), np.int64(low), first + k
    return np.int64(best), np.int64(low), -1


@njit(cache=True)
def weigh_listed(offsets, slots, contributions, columns, start, end, active, light, i, level):
    """LISTS: do the same for the listed pairs start:end of row i. Their bounds are corrected where it matters."""
    best, low = np.int64(0), np.int64(0)
    for k in range(start, end):
        gain, j = np.int64(contributions[k]), np.int64(columns[k])
        if active[LOW, j] != 0:
            if score(gain, light[i], light[j]) >= level:
                gain = contribution(offsets, slots, i, j)
                if score(gain, light[i], light[j]) >= level:
                    return best, low, j
                contributions[k] = gain
            low = max(low, score(gain, light[i], light[j]))
        best = max(best, gain)
    return best, low, -1
