"""Define which of two equal edges is taken: the tie rule of kernels, references and coordinators.

Each node has a 64-bit key made of the seed and its name (`trellis.ids.key`). The *rank* of a node is its index in the
order of (key, name). A pair is written (lower rank, higher rank). Among pairs of equal contribution, the
lexicographically smallest wins: the pair whose smaller key is smallest, then the one whose other key is.
[A-LOW-2: docs/papers.md]

The rule depends only on the two ends. So it needs no dense ids, and the loss of other nodes does not change it
[A-LOW-7]. A scan of pairs row by row in rank order meets the winner first. So a kernel that relabels nodes by rank
breaks ties by "smallest (i, j), i < j" at no cost.

Two algorithms have a preference before the keys. GM prefers an edge that does not raise the maximum degree D. MinMaxODA
prefers the *lightest* edge. The fewer uncovered topics a node has, the lighter it is. Uncovered topics are those that
none of its neighbors has (255 stands for more). They are counted when D last rose: at the start, and whenever every
remaining edge would raise D. An edge is as light as its lighter end. Among equally light edges that contribute 1, the
one with the lighter other end wins.

Why: in the end, D rises because of a few nodes that have D links and still an uncovered topic. So a node should not
spend links on others while it needs them itself, and light nodes have links to spare. An edge that contributes 1 helps
at most one end, so the other end should be light. Edges that contribute more help both ends, and there a heavy end must
not wait, because it would be the last one.
"""

from __future__ import annotations

import numpy as np

from trellis.model.names import IdArray, Names


def in_rank_order(names: Names, seed: int | str) -> IdArray:
    """Return the ids of all names by rank. The first has the smallest key."""
    keys = names.keys(seed)
    order = np.argsort(keys, kind="stable")
    if np.any(keys[order[1:]] == keys[order[:-1]]):  # If two names have the same key, the name decides.
        texts = list(names)
        order = np.array(sorted(range(len(texts)), key=lambda name_id: (int(keys[name_id]), texts[name_id])))
    return order.astype(np.int32)


def ranks_of(order: IdArray) -> IdArray:
    """Return for each id its index in `order`."""
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    return ranks
