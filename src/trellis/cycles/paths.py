"""The parts of topics in an overlay, and the path of each node to the root of its part.  [docs/omen.md]

`protocols/omen/links/hints.py` spreads these paths by heartbeats. When they have come to rest, the root of a part is
its node of smallest key, each node takes the shortest path to it, and of equally short ones the path by the neighbor of
the smallest name. So they are the paths of a breadth-first search from the root, which `tree_of` makes when they are
needed.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.jit import njit


class Search(NamedTuple):
    """Scratch of a search: `mark` says which nodes it may meet, `found` which it has met."""

    mark: Any  # int32[nodes]
    stamp: Any  # int64[1]
    found: Any  # int32[nodes]: of `tree_of` the depth, of `label_parts` the part; -1: not met
    parent: Any  # int32[nodes]
    queue: Any  # int32[nodes]


def make_search(nodes: int) -> Search:
    return Search(np.zeros(nodes, np.int32), np.zeros(1, np.int64), *(np.empty(nodes, np.int32) for _ in range(3)))


@njit(folder=True)
def begin_search(search, alive, members, also):
    """Mark the members of a topic that are alive, and `also` unless that is -1. Return the mark."""
    if search.stamp[0] >= 2**31 - 2:
        search.mark[:] = 0
        search.stamp[0] = 0
    search.stamp[0] += 1
    for place in range(len(members)):
        node = np.int64(members[place])
        if alive[node] or node == also:
            search.mark[node], search.found[node] = search.stamp[0], -1
    return search.stamp[0]


@njit(folder=True)
def tree_of(links, alive, members, order, also, search):
    """Fill `search.parent` for all members of a topic: the next node on the path to the root, -1 for a root.

    links    a pool: the neighbors of each node
    members  the subscribers of the topic; those count that are alive, and `also`, unless that is -1
    order    places in `members`, by the key of each on this topic
    Return how many members there are. They are in `search.queue`.
    """
    mark, depth, parent, queue = search.mark, search.found, search.parent, search.queue
    stamp, count = begin_search(search, alive, members, also), 0
    for at in range(len(order)):
        root = np.int64(members[order[at]])
        if mark[root] != stamp or depth[root] >= 0:
            continue
        turn, depth[root], parent[root], queue[count] = count, 0, -1, root
        count += 1
        while turn < count:
            node = np.int64(queue[turn])
            turn += 1
            begin = links.start[node]
            for link in range(begin, begin + links.count[node]):
                peer = np.int64(links.data[link, 0])
                if mark[peer] != stamp:
                    continue
                if depth[peer] < 0:
                    depth[peer], parent[peer], queue[count] = depth[node] + 1, node, peer
                    count += 1
                elif depth[peer] == depth[node] + 1 and node < parent[peer]:
                    parent[peer] = node
    return count


@njit(folder=True)
def label_parts(links, alive, members, starts, out, search):
    """Return for each of `starts` the number of its part of a topic, without the nodes `out`; -1: it is in none.

    Two of them are in the same part if a chain of living members leads from one to the other.
    """
    mark, part, queue, stamp = search.mark, search.found, search.queue, begin_search(search, alive, members, -1)
    for place in range(len(out)):
        mark[out[place]] = 0
    labels = np.full(len(starts), -1, np.int64)
    for at in range(len(starts)):
        start = np.int64(starts[at])
        if mark[start] != stamp:
            continue
        if part[start] < 0:
            turn, count, part[start], queue[0] = 0, 1, at, start
            while turn < count:
                node = np.int64(queue[turn])
                turn += 1
                begin = links.start[node]
                for link in range(begin, begin + links.count[node]):
                    peer = np.int64(links.data[link, 0])
                    if mark[peer] == stamp and part[peer] < 0:
                        part[peer], queue[count] = at, peer
                        count += 1
        labels[at] = part[start]
    return labels
