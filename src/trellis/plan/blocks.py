"""Find the blocks of a topic's graph, and which edges merge them: the kernels of two-connected topics.

A *block* of G(t) is a largest set of its links of which any two lie on a common cycle, or a link on no cycle. A topic
of three or more subscribers survives the loss of any one of them exactly if its graph is one block.

Take a spanning tree of G(t). A link outside the tree closes a cycle with the tree's path between its ends, so it merges
all blocks on this path into one. The blocks of G(t) are the result of merging for all its other links, because the
fundamental cycles of a tree span all cycles. So it is enough to keep the blocks of the tree's links:

    a slot (a node in a topic) stands for the tree's link from it to its parent
    slots[slot, COMPONENT]   a slot nearer to the one that stands for its block; itself for the latter
    slots[slot, FOLLOWING]   if the slot stands for its block: the slot of the block that is nearest to the root
    slots[slot, SIZE]        distance of the slot from the root

The contribution of the edge (i, j) is summed over the topics that both have. For each it is one less than the number of
blocks on the path between them. It never grows, like the contributions of `trellis.plan.kernel`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from trellis.jit import njit
from trellis.plan.state import COMPONENT, FOLLOWING, SIZE, TOPIC

MOST = 2**16 - 1  # larger contributions count as this


@njit(cache=True)
def block_contribution(offsets, slots, i, j):
    """Return how many blocks the edge (i, j) would remove."""
    gain, a, b = 0, offsets[i], offsets[j]
    while a < offsets[i + 1] and b < offsets[j + 1]:
        if slots[a, TOPIC] < slots[b, TOPIC]:
            a += 1
        elif slots[a, TOPIC] > slots[b, TOPIC]:
            b += 1
        else:
            gain += blocks_between(slots, a, b) - 1
            a += 1
            b += 1
    return min(gain, MOST)


@njit(cache=True)
def link_blocks(offsets, slots, i, j):
    """Add the edge (i, j): in every topic that both have, the blocks between them become one."""
    a, b = offsets[i], offsets[j]
    while a < offsets[i + 1] and b < offsets[j + 1]:
        if slots[a, TOPIC] < slots[b, TOPIC]:
            a += 1
        elif slots[a, TOPIC] > slots[b, TOPIC]:
            b += 1
        else:
            merge_between(slots, a, b)
            a += 1
            b += 1


@njit(cache=True)
def blocks_between(slots, first, second):
    """Return how many blocks the path between two slots of a topic passes through.

    Both ends climb from block to block, always the one that is further from the root. If their paths meet inside a
    block, one of them leaves it at its top before the other enters it. That block was the last one that it climbed.
    """
    count, last_first, last_second = 0, np.int64(-1), np.int64(-1)
    while first != second:
        if slots[first, SIZE] >= slots[second, SIZE]:
            last_first = block_of(slots, first)
            count += last_first != last_second
            first = np.int64(slots[last_first, FOLLOWING])
        else:
            last_second = block_of(slots, second)
            count += last_second != last_first
            second = np.int64(slots[last_second, FOLLOWING])
    return count


@njit(cache=True)
def merge_between(slots, first, second):
    """Merge all blocks on the path between two slots of a topic into one. It ends where the two paths up meet."""
    merged = np.int64(-1)
    while first != second:
        if slots[first, SIZE] < slots[second, SIZE]:
            first, second = second, first
        block = block_of(slots, first)
        if merged < 0:
            merged = block
            first = np.int64(slots[block, FOLLOWING])
        elif block == merged:
            first = second  # The other path has already left this block at its top.
        else:
            slots[block, COMPONENT] = merged
            first = np.int64(slots[block, FOLLOWING])
    slots[merged, FOLLOWING] = first


@njit(cache=True)
def block_of(slots, slot):
    """Return the slot that stands for the block of the tree's link above `slot`."""
    while slots[slot, COMPONENT] != slot:
        slots[slot, COMPONENT] = slots[slots[slot, COMPONENT], COMPONENT]  # path halving
        slot = np.int64(slots[slot, COMPONENT])
    return np.int64(slot)


@njit(cache=True)
def fill_blocks(offsets, slots, u, v, first, neighbors):
    """Compute the blocks of the links (u, v), which connect every topic. Return how many are too many over all topics.

    first, neighbors  space for the slots that each slot is linked to: zeros, one more than slots; two for each link of
                      each topic
    """
    for turn in range(3):  # count, place, and merge
        for link in range(len(u)):
            a, b = offsets[u[link]], offsets[v[link]]
            while a < offsets[u[link] + 1] and b < offsets[v[link] + 1]:
                if slots[a, TOPIC] < slots[b, TOPIC]:
                    a += 1
                elif slots[a, TOPIC] > slots[b, TOPIC]:
                    b += 1
                else:
                    if turn == 0:
                        first[a] += 1
                        first[b] += 1
                    elif turn == 1:
                        first[a] -= 1
                        first[b] -= 1
                        neighbors[first[a]] = b
                        neighbors[first[b]] = a
                    else:
                        merge_between(slots, a, b)
                    a += 1
                    b += 1
        if turn == 0:
            for slot in range(len(slots)):
                first[slot + 1] += first[slot]
        elif turn == 1:
            _fill_trees(slots, first, neighbors)
    left = 0
    for slot in range(len(slots)):
        left += slots[slot, COMPONENT] == slot and slots[slot, SIZE] > 0
        # For each root, one block of its topic may stay.
        left -= slots[slot, SIZE] == 0 and first[slot + 1] > first[slot]
    return left


@njit(cache=True)
def _fill_trees(slots, first, neighbors):
    """Build a spanning tree of each topic, breadth first.

    Each slot is a block of its own, with its parent as the top.
    """
    queue = np.empty(len(slots), np.int32)
    for slot in range(len(slots)):
        slots[slot, COMPONENT] = slot
        slots[slot, SIZE] = -1
    for root in range(len(slots)):
        if slots[root, SIZE] >= 0:
            continue
        slots[root, SIZE], slots[root, FOLLOWING] = 0, root
        queue[0], taken, end = root, 0, 1
        while taken < end:
            slot = queue[taken]
            taken += 1
            for at in range(first[slot], first[slot + 1]):
                neighbor = neighbors[at]
                if slots[neighbor, SIZE] < 0:
                    slots[neighbor, SIZE], slots[neighbor, FOLLOWING] = slots[slot, SIZE] + 1, slot
                    queue[end] = neighbor
                    end += 1
