"""Blocks of a topic's graph, and which edges merge them: the kernels of two-connected topics.

A *block* of G(t) is a largest set of its links of which any two lie on a common cycle, or a link on no cycle. A topic
of three subscribers or more survives the loss of any one of them exactly when its graph is one block.

Take a spanning tree of G(t). A link that is not of the tree closes a cycle with the tree's path between its ends, so
it makes one block of all blocks on this path; and the blocks of G(t) are what remains when all its other links have
done so (the fundamental cycles of a tree span all cycles). So it is enough to keep the blocks of the tree's links:

    a slot (a node in a topic) stands for the tree's link from it to its parent
    slots[slot, COMPONENT]   a slot nearer to the one that stands for its block; itself for the latter
    slots[slot, FOLLOWING]   where the slot stands for its block: the slot of the block that is nearest to the root
    slots[slot, SIZE]        how far the slot is from the root

The edge (i, j) would remove, in each topic that both have, one block less than there are on the path between them.
That is its contribution, and it never grows, as those of `trellis.plan.kernel`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from trellis.jit import njit
from trellis.plan.state import COMPONENT, FOLLOWING, SIZE, TOPIC

MOST = 2**16 - 1  # contributions above it count as that much


@njit(cache=True)
def block_contribution(offsets, slots, i, j):
    """How many blocks the edge (i, j) would remove."""
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
    """Put the edge (i, j) in: in every topic that both have, the blocks between them become one."""
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
def blocks_between(slots, one, other):
    """How many blocks the path between two slots of a topic passes through.

    Both climb from block to block, always the one that is further from the root. Where their ways meet inside a block,
    one of them leaves it by its top before the other comes in: that block was the last one it climbed.
    """
    count, last_one, last_other = 0, np.int64(-1), np.int64(-1)
    while one != other:
        if slots[one, SIZE] >= slots[other, SIZE]:
            last_one = block_of(slots, one)
            count += last_one != last_other
            one = np.int64(slots[last_one, FOLLOWING])
        else:
            last_other = block_of(slots, other)
            count += last_other != last_one
            other = np.int64(slots[last_other, FOLLOWING])
    return count


@njit(cache=True)
def merge_between(slots, one, other):
    """Make one block of all on the path between two slots of a topic. It ends where the two ways up meet."""
    merged = np.int64(-1)
    while one != other:
        if slots[one, SIZE] < slots[other, SIZE]:
            one, other = other, one
        block = block_of(slots, one)
        if merged < 0:
            merged = block
            one = np.int64(slots[block, FOLLOWING])
        elif block == merged:
            one = other  # the other has left this block by its top already
        else:
            slots[block, COMPONENT] = merged
            one = np.int64(slots[block, FOLLOWING])
    slots[merged, FOLLOWING] = one


@njit(cache=True)
def block_of(slots, slot):
    """The slot that stands for the block of the tree's link above `slot`."""
    while slots[slot, COMPONENT] != slot:
        slots[slot, COMPONENT] = slots[slots[slot, COMPONENT], COMPONENT]  # path halving
        slot = np.int64(slots[slot, COMPONENT])
    return np.int64(slot)


@njit(cache=True)
def fill_blocks(offsets, slots, u, v, first, neighbors):
    """The blocks of the links (u, v), which connect every topic. Returns how many are too many over all topics.

    first, neighbors  room for the slots that each slot is linked to: zeros, one more than slots; two for each link of
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
        left -= slots[slot, SIZE] == 0 and first[slot + 1] > first[slot]  # a root: one block of its topic may stay
    return left


@njit(cache=True)
def _fill_trees(slots, first, neighbors):
    """A spanning tree of each topic, breadth first: each slot is a block of its own, with its parent as the top."""
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
                other = neighbors[at]
                if slots[other, SIZE] < 0:
                    slots[other, SIZE], slots[other, FOLLOWING] = slots[slot, SIZE] + 1, slot
                    queue[end] = other
                    end += 1
