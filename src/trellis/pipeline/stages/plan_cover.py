"""Choose the representatives of a group: few nodes of low degree that cover each of its topics several times."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer]


def cover(offsets: Ints, topics: Ints, topic_count: int, degrees: Ints, times: int) -> npt.NDArray[np.int64]:
    """Return nodes, ascending, of which `times` subscribe to each topic, or all its subscribers if they are fewer.

    Weighted set multicover by the greedy rule: always the node that covers the most topics still lacking, for each
    link that it has; its ties go to the smaller node. No cover is cheaper than this one by more than a factor of
    H(most topics of a node) [Rajagopalan & Vazirani 1998]. So a busy node speaks for its topics only where it must.
    """
    lacking = np.minimum(np.bincount(topics, minlength=topic_count), times)
    left = int(lacking.sum())
    price = np.asarray(degrees, np.float64) + 1.0
    # What a node covers only shrinks: a score that is out of date is too high, and is seen again when it is first.
    queue = [
        (-size / cost, node) for node, (size, cost) in enumerate(zip(np.diff(offsets), price, strict=True)) if size
    ]
    heapify(queue)
    chosen = []
    while left:
        score, node = heappop(queue)
        own = topics[offsets[node] : offsets[node + 1]]
        gain = int(np.count_nonzero(lacking[own]))
        now = (-gain / price[node], node)
        if now[0] > score:
            if gain:
                heappush(queue, now)
            continue
        chosen.append(node)
        lacking[own] -= lacking[own] > 0
        left -= gain
    return np.array(sorted(chosen), np.int64)
