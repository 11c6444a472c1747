"""Which of two equal edges is taken: the rule of ties, for kernels, references and coordinators.

Each node has a 64-bit key made of the seed and its name (`trellis.ids.key`). Nodes in the order of
(key, name) have their *rank*. A pair is written (lower rank, higher rank), and among pairs of equal
contribution the lexicographically smallest wins: the pair whose smaller key is smallest, then the one
whose other key is.  [A-LOW-2: docs/papers.md]

The rule looks at the two ends alone. So it needs no dense ids, it survives the loss of other nodes
[A-LOW-7], and whoever scans pairs row by row in rank order meets the winner first: a kernel that
relabels nodes by rank breaks ties by "smallest (i, j), i < j" at no cost.

Two algorithms put something before the keys. GM prefers an edge that leaves the maximum degree D alone. MinMaxODA
prefers the *lightest* edge. A node is the lighter, the fewer uncovered topics it has, those that none of its neighbours
has (255 stands for more), counted when D last rose: at the start, and whenever no edge is left that leaves D alone. An
edge is as light as its lighter end. Of equally light edges that contribute 1, the one with the lighter other end wins.

Why: what makes D rise in the end are a few nodes that have D links and still an uncovered topic. So a node should not
spend links on others while it needs them itself, and light nodes have links to spare. An edge that contributes 1 helps
one end at most, so it is the other that should be light, whichever that is. Edges that contribute more help both, and
there a heavy end must not wait: it would be the last one.
"""

from __future__ import annotations

import numpy as np

from trellis.model.names import IdArray, Names


def in_rank_order(names: Names, seed: int | str) -> IdArray:
    """The ids of all names, by rank: the first has the smallest key."""
    keys = names.keys(seed)
    order = np.argsort(keys, kind="stable")
    if np.any(keys[order[1:]] == keys[order[:-1]]):  # two names with one key: the name decides
        texts = list(names)
        order = np.array(sorted(range(len(texts)), key=lambda one: (int(keys[one]), texts[one])))
    return order.astype(np.int32)


def ranks_of(order: IdArray) -> IdArray:
    """For each id its place in `order`."""
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ranks
