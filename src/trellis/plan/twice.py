"""Add links that make topics two-connected, so that every topic survives the loss of any one node without a repair.

A topic-connected overlay is built first. Then edges are added by LowODA's rule, until the graph of each topic is one
block. An edge contributes the *blocks* that it removes (`trellis.plan.blocks`). Chen, Vitenberg and Jacobsen build such
overlays as 2-TCOs, by a greedy choice over all pairs in a single phase. Here the candidates are drawn.

They are sufficient, because `trellis.plan.candidates` includes a ring of the subscribers of each topic. When no
candidate contributes, adding the ring's edges would not change the blocks of the topic. With them its graph is one
block if it has three or more nodes, so it is one block already.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trellis.model.interests import OffsetArray
from trellis.model.names import IdArray
from trellis.plan.blocks import MOST, fill_blocks
from trellis.plan.candidates import Candidates
from trellis.plan.edges import EDGES_PER_CALL, Edges, Progress
from trellis.plan.kernel import choose_edges
from trellis.plan.state import (
    ALL,
    BLOCKS,
    CHUNK,
    DEGREE_MAX,
    EDGES,
    LEFT,
    LEVEL,
    LOW,
    OWNER,
    TOPIC,
    Components,
    Pairs,
    State,
)


def block_edges(
    offsets: OffsetArray,
    topics: IdArray,
    u: IdArray,
    v: IdArray,
    degrees: npt.NDArray[np.integer],
    candidates: Candidates,
    *,
    rho: float = 3.0,
    progress: Progress | None = None,
) -> Edges:
    """Return the edges to add to the links (u, v), which connect every topic, so that each topic is one block.

    Nodes are given by rank, as in `trellis.plan.edges.low_edges`.
    """
    nodes = len(offsets) - 1
    slots = np.zeros((len(topics), 6), np.int32)
    slots[:, TOPIC] = topics
    slots[:, OWNER] = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(offsets))
    sizes = np.diff(offsets)
    room = 2 * int(np.minimum(sizes[u], sizes[v]).sum())
    left = int(fill_blocks(offsets, slots, u, v, np.zeros(len(topics) + 1, np.int64), np.empty(room, np.int32)))
    components = Components(offsets, slots, np.zeros((1, 3), np.int64), *np.empty((2, 0), np.int32))
    pairs = _pairs(candidates, nodes)
    degrees = np.array(degrees, np.int64)
    degree_max = int(degrees.max(initial=0))
    pairs.active[LOW, :nodes] = np.where(degrees < degree_max, pairs.active[ALL, :nodes], 0)
    cursors = np.zeros((2, 2), np.int64)
    cursors[:, LEVEL] = MOST
    totals = np.zeros(3, np.int64)
    totals[DEGREE_MAX], totals[LEFT] = degree_max, left
    state = State(degrees, cursors, totals, np.empty((left, 3), np.int32))
    done = left == 0
    while not done:
        done = choose_edges(components, pairs, state, float(rho), min(totals[EDGES] + EDGES_PER_CALL, left))
        done = done or totals[EDGES] == left
        if progress is not None:
            progress(left - int(totals[LEFT]), left)
    i, j, gain = np.ascontiguousarray(state.edges[: totals[EDGES]].T)
    return Edges(i, j, gain, np.zeros(0, np.int32))


def _pairs(candidates: Candidates, nodes: int) -> Pairs:
    """Return the candidates with a bound that no contribution exceeds. The sweep corrects it."""
    row_start, columns = candidates
    chunks = -(-np.diff(row_start) // CHUNK)
    chunk_start = np.zeros(nodes + 1, np.int64)
    np.cumsum(chunks, out=chunk_start[1:])
    active = np.zeros((2, -(-nodes // CHUNK) * CHUNK), np.uint16)
    active[ALL] = MOST
    return Pairs(
        BLOCKS,
        np.zeros((0, 1, 8, CHUNK), np.uint64),
        np.full(len(columns), MOST, np.uint16),
        columns,
        row_start,
        chunk_start,
        np.full((2, int(chunk_start[-1])), MOST, np.uint16),
        np.full((2, nodes), MOST, np.uint16),
        active,
    )
