"""Plan with costs and caps: choose links that join most for their cost, at nodes that may have more links.

This is an option of ours; the papers have neither costs nor caps. It is LowODA's rule [SH Alg. 1-2] with the *value* of
an edge instead of its contribution. The value is the contribution divided by the cost: e1 if value(e1) > rho *
value(e2), otherwise e2. If all costs are equal, it chooses the same edges as LowODA (or GM, with rho = 1), in the same
order.

Costs. Topic connectivity is a submodular cover: each edge joins components, and never joins more of them later. By
Wolsey (1982), an overlay by greatest value (gm) costs at most 1 + 1/2 + ... + 1/k times the cheapest one, where k is
the greatest contribution of an edge at the start. LowODA may spend more, by its factor rho, to keep the maximum degree
low.

Caps. The *room* of a node is the number of links that it may still have. A single topic can be connected within the
caps exactly if each of its components has room, and all of them together have 2 * (components - 1). Only then is there
a tree with these degrees. The missing number is its *deficit*. An edge does *harm* in two cases. The deficit of a topic
grows. Or an end with a cap does not use it well: a node that is alone in a topics and has room r needs edges that end
this in a / r of them, or r > a. Edges come in four phases: those that do no harm; others whose ends both have room;
those with one end without room; and the rest. So every topic is connected in the end. Caps are exceeded only if nothing
else connects a topic, and the excess is reported (`trellis.plan.excess`).

Deciding whether all topics together can be connected within the caps is NP-complete. With one cap for all nodes, it is
the question of the least maximum degree of a topic-connected overlay [Onus and Richa 2009]. So an excess may be
avoidable unless a proof says otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trellis.model.costs import LinkCaps, LinkCosts
from trellis.model.interests import OffsetArray
from trellis.model.names import IdArray
from trellis.plan import priced_kernel as kernel
from trellis.plan.blocks import MOST, fill_blocks
from trellis.plan.candidates import Candidates
from trellis.plan.edges import EDGES_PER_CALL, Edges, Progress, still_split
from trellis.plan.fill import count_listed, fill_listed
from trellis.plan.state import BLOCKS, CHUNK, COMPONENT, LISTS, OWNER, SIZE, TOPIC, Components
from trellis.plan.tables import contribution_type, make_components

Floats = npt.NDArray[np.float64]
PAIR_BYTES = 4 + 4 + 8 + 8 + 2  # ends, cost, value, and the type of contributions while pairs are listed


class PricedEdges(NamedTuple):
    """Edges (i, j), i < j, in the order in which they were chosen."""

    edges: Edges
    over: IdArray  # [edge, i | j]: 1 if the end already had as many links as its cap allows
    joined: IdArray  # first topic that each edge joined; -1 for edges that make topics two-connected


class Limits:
    """Costs and caps of nodes that are given by rank."""

    def __init__(self, costs: LinkCosts | None, caps: LinkCaps | None, order: IdArray) -> None:
        """`order` has the id of the node at each rank."""
        self.costs, self.order = costs, order
        self.links_max = np.full(len(order), kernel.UNCAPPED, np.int64)
        if caps is not None:
            self.links_max = np.minimum(caps.links_max[order], kernel.UNCAPPED)

    def cost_of(self, i: IdArray, j: IdArray) -> Floats:
        """Return the cost of each link between two ranks, or 1 if no costs are given."""
        if self.costs is None:
            return np.ones(len(i))
        return self.costs.of(self.order[i], self.order[j])


class _Pairs(NamedTuple):
    i: IdArray
    j: IdArray
    cost: Floats
    values: Floats
    bounds: Floats
    tops: Floats


def listed_pairs(offsets: OffsetArray, topics: IdArray, topic_count: int, component: IdArray) -> Candidates:
    """Return all pairs of nodes that share a topic in which they are not connected yet."""
    parts = make_components(offsets, topics, topic_count, component)
    row_start = np.zeros(len(offsets), np.int64)
    np.cumsum(count_listed(*parts), out=row_start[1:])
    columns = np.empty(row_start[-1], np.int32)
    gains = np.empty(row_start[-1], contribution_type(np.diff(offsets)))
    fill_listed(*parts, row_start[:-1].copy(), columns, gains)
    return Candidates(row_start, columns)


def priced_edges(
    offsets: OffsetArray,
    topics: IdArray,
    topic_count: int,
    component: IdArray,
    degrees: npt.NDArray[np.integer],
    candidates: Candidates,
    limits: Limits,
    *,
    rho: float = 3.0,
    progress: Progress | None = None,
) -> PricedEdges:
    """Return the edges that connect every topic as far as the candidates can. Nodes are given by rank."""
    components = make_components(offsets, topics, topic_count, component)
    left = int(np.count_nonzero(components.slots[:, SIZE]) - np.count_nonzero(np.bincount(topics)))
    return _chosen(LISTS, components, topic_count, degrees, candidates, limits, rho, left, progress)


def priced_block_edges(
    offsets: OffsetArray,
    topics: IdArray,
    u: IdArray,
    v: IdArray,
    degrees: npt.NDArray[np.integer],
    candidates: Candidates,
    limits: Limits,
    *,
    rho: float = 3.0,
    progress: Progress | None = None,
) -> PricedEdges:
    """Return the edges that make each topic of the links (u, v) two-connected, as `trellis.plan.twice` does.

    Here an edge does harm only if an end has no room.
    """
    sizes = np.diff(offsets)
    slots = np.zeros((len(topics), 6), np.int32)
    slots[:, TOPIC] = topics
    slots[:, OWNER] = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    space = 2 * int(np.minimum(sizes[u], sizes[v]).sum())
    left = int(fill_blocks(offsets, slots, u, v, np.zeros(len(topics) + 1, np.int64), np.empty(space, np.int32)))
    components = Components(offsets, slots, np.zeros((1, 3), np.int64), *np.empty((2, 0), np.int32))
    return _chosen(BLOCKS, components, 0, degrees, candidates, limits, rho, left, progress)


def _chosen(
    form: int,
    components: Components,
    topic_count: int,
    degrees: npt.NDArray[np.integer],
    candidates: Candidates,
    limits: Limits,
    rho: float,
    left: int,
    progress: Progress | None,
) -> PricedEdges:
    """Choose edges until all topics are connected, or no candidate contributes."""
    degrees = np.array(degrees, np.int64)
    cost, links_max = limits.cost_of(*ends_of(candidates)), limits.links_max
    room = np.where(links_max >= kernel.UNCAPPED, kernel.UNCAPPED, np.maximum(links_max - degrees, 0)).astype(np.int64)
    caps = (room, *_rooms(components, room, topic_count if form == LISTS else 0))
    sizes = np.diff(components.offsets)
    pairs = _pairs(candidates, sizes if form == LISTS else np.full_like(sizes, MOST), cost)
    totals = np.zeros(3, np.int64)
    totals[kernel.DEGREE_MAX] = degrees.max(initial=0)
    edges = np.empty((left, 6), np.int32)
    done = left == 0
    while not done:
        most = min(totals[kernel.EDGES] + EDGES_PER_CALL, left)
        done = kernel.choose_priced_edges(components, pairs, caps, degrees, totals, edges, float(rho), form, most)
        count = int(totals[kernel.EDGES])
        done = done or count == left
        if progress is not None:
            progress(int(edges[:count, kernel.GAIN].sum()), left)
    edges = edges[: totals[kernel.EDGES]]
    i, j, gain = np.ascontiguousarray(edges[:, : kernel.OVER_LOWER].T)
    split = np.zeros(0, np.int32)
    if form == LISTS and gain.sum() < left:
        split = still_split(components.slots)
    return PricedEdges(Edges(i, j, gain, split), edges[:, kernel.OVER_LOWER : kernel.JOINED], edges[:, kernel.JOINED])


def _pairs(candidates: Candidates, most: OffsetArray, cost: Floats) -> _Pairs:
    """Return the candidates with upper bounds of their values: a node contributes at most `most`.

    The kernel corrects them.
    """
    i, j = ends_of(candidates)
    values = np.minimum(most[i], most[j]) / np.maximum(cost, kernel.FREE_COST)
    chunks = -(-len(j) // CHUNK)
    bounds = np.full((2, chunks), np.inf)
    return _Pairs(i, j, np.asarray(cost, np.float64), values, bounds, np.full((2, -(-chunks // CHUNK)), np.inf))


def ends_of(candidates: Candidates) -> tuple[IdArray, IdArray]:
    """Return both ends of each candidate, by rank, in the order of the tie rule."""
    counts = np.diff(candidates.row_start)
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts), np.asarray(candidates.columns, np.int32)


def _rooms(components: Components, room: npt.NDArray[np.int64], topic_count: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the arrays of I4: room of each component and topic, each topic's components, and those without room."""
    if topic_count == 0:
        return tuple(np.zeros((4, 0), np.int64))
    slots = components.slots
    of_slot = room[slots[:, OWNER]]
    by_component, by_topic = np.zeros(len(slots), np.int64), np.zeros(topic_count, np.int64)
    np.add.at(by_component, slots[:, COMPONENT], of_slot)
    np.add.at(by_topic, slots[:, TOPIC], of_slot)
    stands = np.flatnonzero(slots[:, SIZE])
    parts = np.bincount(slots[stands, TOPIC], minlength=topic_count)
    dead = np.bincount(slots[stands, TOPIC], by_component[stands] == 0, minlength=topic_count)
    return by_component, by_topic, parts.astype(np.int64), dead.astype(np.int64)
