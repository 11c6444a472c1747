"""Fill the kernel's tables at the start.  [SH Alg. 2, l. 2-3]"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from trellis.jit import njit
from trellis.plan.state import CHUNK, COMPONENT, FOLLOWING, GIANT, OWNER, PLACE, SIZE, START, TOPIC


@njit(cache=True)
def fill_places(slots, by_topic, slot_at, node_at):
    """Fill the slots and their nodes by topic, ascending."""
    positions = by_topic[:, START].copy()
    for slot in range(len(slots)):
        position = positions[slots[slot, TOPIC]]
        slots[slot, PLACE], slot_at[position], node_at[position] = position, slot, slots[slot, OWNER]
        positions[slots[slot, TOPIC]] += 1


@njit(cache=True)
def fill_circles(slots, by_topic):
    """Fill the circles of slots and their sizes from COMPONENT. The giant is the first of the largest."""
    for slot in range(len(slots)):
        stands = slots[slot, COMPONENT]
        slots[stands, SIZE] += 1
        if slot != stands:
            slots[slot, FOLLOWING], slots[stands, FOLLOWING] = slots[stands, FOLLOWING], slot
    for slot in range(len(slots)):
        stands, topic = slots[slot, COMPONENT], slots[slot, TOPIC]
        giant = by_topic[topic, GIANT]
        if giant < 0 or slots[stands, SIZE] > slots[giant, SIZE]:
            by_topic[topic, GIANT] = stands


@njit(cache=True)
def fill_planes(slots, planes):
    """Mark every node as outside the giant of each of its topics. The giants are marked later."""
    for slot in range(len(slots)):
        node, topic = slots[slot, OWNER], slots[slot, TOPIC]
        group, word, bit = topic // 256, topic % 256 // 64, np.uint64(1) << np.uint64(topic % 64)
        planes[node // CHUNK, group, word, node % CHUNK] |= bit
        planes[node // CHUNK, group, 4 + word, node % CHUNK] |= bit


@njit(cache=True)
def fill_triangle(offsets, slots, by_topic, slot_at, node_at, row_start, contributions):
    """Fill the contribution of every pair, for the form TRIANGLE."""
    component_at = np.empty(len(slot_at), np.int32)
    for at in range(len(slot_at)):
        component_at[at] = slots[slot_at[at], COMPONENT]
    for node in range(len(offsets) - 1):
        for slot in range(offsets[node], offsets[node + 1]):
            start, end = slots[slot, PLACE] + 1, by_topic[slots[slot, TOPIC] + 1, START]
            count_in_row(
                contributions, row_start[node], node_at[start:end], component_at[start:end], slots[slot, COMPONENT]
            )


@njit(cache=True)
def count_in_row(contributions, row, others, theirs, mine):
    for k in range(len(others)):
        contributions[row + others[k]] += theirs[k] != mine


# The next two functions visit each pair from its higher end, so that the columns of every row are ascending.


@njit(cache=True)
def count_listed(offsets, slots, by_topic, slot_at, node_at):
    """Return for each node with how many later nodes it could form an edge that contributes."""
    lengths = np.zeros(len(offsets) - 1, np.int64)
    last = np.full(len(offsets) - 1, -1, np.int32)
    for node in range(len(offsets) - 1):
        for slot in range(offsets[node], offsets[node + 1]):
            for at in range(by_topic[slots[slot, TOPIC], START], slots[slot, PLACE]):
                later = node_at[at]
                if last[later] != node and slots[slot_at[at], COMPONENT] != slots[slot, COMPONENT]:
                    last[later] = node
                    lengths[later] += 1
    return lengths


@njit(cache=True)
def fill_listed(offsets, slots, by_topic, slot_at, node_at, ends, columns, contributions):
    """Fill the listed pairs and their contributions. `ends` holds at first the starts of the rows."""
    last = np.full(len(offsets) - 1, -1, np.int32)
    for node in range(len(offsets) - 1):
        for slot in range(offsets[node], offsets[node + 1]):
            for at in range(by_topic[slots[slot, TOPIC], START], slots[slot, PLACE]):
                if slots[slot_at[at], COMPONENT] == slots[slot, COMPONENT]:
                    continue
                later = node_at[at]
                if last[later] != node:
                    last[later] = node
                    columns[ends[later]] = node
                    contributions[ends[later]] = 0
                    ends[later] += 1
                contributions[ends[later] - 1] += 1


@njit(cache=True)
def fill_candidates(offsets, slots, by_topic, row_start, columns, contributions):
    """Fill the contributions of listed candidate pairs."""
    mine = np.full(len(by_topic), -1, np.int32)  # topic -> TC-component of the row's node
    for node in range(len(offsets) - 1):
        for slot in range(offsets[node], offsets[node + 1]):
            mine[slots[slot, TOPIC]] = slots[slot, COMPONENT]
        for at in range(row_start[node], row_start[node + 1]):
            contributions[at] = 0
            for slot in range(offsets[columns[at]], offsets[columns[at] + 1]):
                here = mine[slots[slot, TOPIC]]
                contributions[at] += here >= 0 and here != slots[slot, COMPONENT]
        for slot in range(offsets[node], offsets[node + 1]):
            mine[slots[slot, TOPIC]] = -1
