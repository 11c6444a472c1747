"""How much falls apart when one node goes, for all nodes at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.jit import njit


@njit(cache=True)
def extra_components(first: Any, neighbors: Any, pieces: Any) -> None:
    """For each position, into how many pieces its component falls when it is taken out.

    Positions and their links are those of `trellis.measure.induced.TopicGraphs`: all topics side by side. One
    depth-first search: a subtree hangs on its parent alone when no link from it leads further up (Hopcroft, Tarjan
    1973). So a root falls into as many pieces as it has children, any other position into one more than the number
    of children whose subtrees reach no higher than itself.
    """
    number = np.zeros(len(pieces), np.int64)  # in order of discovery, from 1; 0: not met
    highest = np.zeros(len(pieces), np.int64)  # the smallest number that a link from the subtree leads to
    parent = np.full(len(pieces), -1, np.int64)
    cursor = first[:-1].copy()
    met = 0
    for root in range(len(pieces)):
        if number[root]:
            continue
        met += 1
        number[root] = highest[root] = met
        at = root
        while at >= 0:
            if cursor[at] < first[at + 1]:
                to = neighbors[cursor[at]]
                cursor[at] += 1
                if number[to] == 0:
                    met += 1
                    number[to] = highest[to] = met
                    parent[to] = at
                    at = to
                elif to != parent[at]:
                    highest[at] = min(highest[at], number[to])
                continue
            above = parent[at]
            if above >= 0:
                highest[above] = min(highest[above], highest[at])
                pieces[above] += highest[at] >= number[above]
                pieces[at] += 1  # what is above it
            at = above
