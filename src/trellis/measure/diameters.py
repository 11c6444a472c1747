"""Compute exact topic diameters and radii, by a breadth-first search inside G(t) from every node of every topic.

[OMen 6.7; SpiderCast 3.2] The diameter of t is the largest eccentricity of its nodes in G(t), and the radius is the
smallest. Only connected topics with at least two subscribers are measured; split topics have no diameter.

64 searches run at once, one for each bit of a word [Then et al., "The more the merrier", VLDB 2014]. A step visits the
nodes that some of the 64 searches reached in the previous step, so no search costs more than it would alone. The cost
is the sum over topics of |t.nodes| x links of G(t), times s / 64. Here s is the number of steps in which some search
reaches a given node: about 4 in random overlays, and up to 64 in long paths.

Nodes are taken in breadth-first order from the edge of G(t). So the 64 sources are near each other and reach others at
nearly the same step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trellis.jit import njit
from trellis.measure.connectivity import Connectivity, connectivity
from trellis.measure.induced import topic_graphs
from trellis.measure.threads import Progress, in_threads, split_evenly
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay

PART_COST = 1 << 26  # sources x (nodes + link ends): about 10 ms


@dataclass(frozen=True, eq=False)
class TopicDiameters:
    """The diameters and radii of all topics, in hops."""

    diameter: npt.NDArray[np.int32]  # of each topic; -1 if it is split or has fewer than two subscribers
    radius: npt.NDArray[np.int32]  # of each topic, in the same way

    @property
    def measured(self) -> npt.NDArray[np.int64]:
        """Return the topics that have a diameter."""
        return np.flatnonzero(self.diameter >= 0)

    @property
    def maximum(self) -> int | None:
        """Return Diam, the largest topic diameter, or None if no topic was measured."""
        return int(self.diameter.max()) if len(self.measured) else None

    @property
    def mean(self) -> float | None:
        """Return diam, the mean topic diameter over the measured topics, or None."""
        return float(self.diameter[self.measured].mean()) if len(self.measured) else None

    @property
    def radius_maximum(self) -> int | None:
        return int(self.radius.max()) if len(self.measured) else None

    @property
    def radius_mean(self) -> float | None:
        return float(self.radius[self.measured].mean()) if len(self.measured) else None


def topic_diameters(
    interests: Interests,
    overlay: Overlay,
    *,
    connected: Connectivity | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> TopicDiameters:
    """Return the exact diameter and radius of every connected topic.

    `connected` is the connectivity, if it is known.
    """
    connected = connected or connectivity(interests, overlay)
    subscribers = interests.popularity
    measured = (connected.components == 1) & (subscribers > 1)
    graphs = topic_graphs(interests, overlay)
    first, neighbors = graphs.first.copy(), np.empty_like(graphs.neighbors)
    _renumber(graphs.offsets, graphs.first, graphs.neighbors, measured, first, neighbors)

    eccentricity = np.full(interests.subscriptions, -1, np.int32)
    source_cost = np.where(measured, subscribers + 2 * connected.links, 0)
    bounds, costs = split_evenly(np.repeat(source_cost, subscribers), PART_COST, parts_max=4096)

    def search(_: int, begin: int, end: int) -> None:
        _eccentricities(graphs.offsets, first, neighbors, measured, begin, end, eccentricity)

    in_threads(search, bounds, costs, threads=threads, progress=progress)
    diameter, radius = np.full((2, len(interests.topics)), -1, np.int32)
    topics = np.flatnonzero(subscribers)
    if len(topics):
        diameter[topics] = np.maximum.reduceat(eccentricity, graphs.offsets[topics])
        radius[topics] = np.minimum.reduceat(eccentricity, graphs.offsets[topics])
    return TopicDiameters(diameter, radius)


def search_cost(subscribers: npt.NDArray[np.int64], connected: Connectivity) -> int:
    """Return the cost of `topic_diameters`: the sum over measured topics of subscribers x links of G(t)."""
    return int(np.sum(np.where(connected.components == 1, subscribers * connected.links, 0)))


@njit(cache=True)
def _renumber(offsets, first, neighbors, measured, new_first, new_neighbors):  # type: ignore[no-untyped-def]
    """Renumber the nodes of each graph in breadth-first order from a node that is far from others."""
    rank = np.empty(len(first) - 1, neighbors.dtype)
    queue = np.empty(len(first) - 1, neighbors.dtype)
    for topic in range(len(measured)):
        begin, end = offsets[topic], offsets[topic + 1]
        if not measured[topic]:
            continue
        start = begin
        for _ in range(2):  # The second search starts where the first one ended.
            rank[begin:end] = -1
            queue[begin] = start
            rank[start] = begin
            head, tail = begin, begin + 1
            while head < tail:
                position = queue[head]
                head += 1
                for link in range(first[position], first[position + 1]):
                    neighbor = neighbors[link]
                    if rank[neighbor] < 0:
                        rank[neighbor] = tail
                        queue[tail] = neighbor
                        tail += 1
            start = queue[end - 1]
        cursor = first[begin]
        for index in range(begin, end):
            new_first[index] = cursor
            for link in range(first[queue[index]], first[queue[index] + 1]):
                new_neighbors[cursor] = rank[neighbors[link]]
                cursor += 1


@njit(cache=True, nogil=True)
def _eccentricities(offsets, first, neighbors, measured, begin, end, eccentricity):  # type: ignore[no-untyped-def]
    """Fill the eccentricity of the positions from `begin` to `end` whose topics are measured."""
    topic = np.searchsorted(offsets, begin, side="right") - 1
    while begin < end:
        until = min(end, offsets[topic + 1])
        if measured[topic] and begin < until:
            low, high = offsets[topic], offsets[topic + 1]
            seen, frontier, reached = np.zeros((3, high - low), np.uint64)
            queue, following = np.empty((2, high - low), np.int64)
            for source in range(begin, until, 64):
                sources = min(64, until - source)
                _search(first, neighbors, low, source, sources, seen, frontier, reached, queue, following, eccentricity)
        begin = max(begin, until)
        topic += 1


@njit(cache=True, nogil=True)
def _search(  # type: ignore[no-untyped-def]
    first, neighbors, low, source, sources, seen, frontier, reached, queue, following, eccentricity
):
    """Search from `source` and the positions after it, one per bit. `frontier` and `reached` are zero before and after.

    seen      by position - low: the searches that have reached it so far
    frontier  the searches that reached it in the last step
    reached   the searches that reach it in this step
    """
    seen[:] = 0
    for bit in range(sources):
        offset = source - low + bit
        seen[offset] = frontier[offset] = np.uint64(1) << np.uint64(bit)
        queue[bit] = offset
    active = sources
    alive = ~np.uint64(0) >> np.uint64(64 - sources)  # searches that reached a new node in the last step
    step = 0
    while active > 0:
        step += 1
        count = 0
        for index in range(active):
            offset = queue[index]
            searches = frontier[offset]
            frontier[offset] = 0
            for link in range(first[low + offset], first[low + offset + 1]):
                neighbor = neighbors[link] - low
                new = searches & ~seen[neighbor]
                if new != 0:
                    if reached[neighbor] == 0:
                        following[count] = neighbor
                        count += 1
                    reached[neighbor] |= new
        reaching = np.uint64(0)
        for index in range(count):
            offset = following[index]
            seen[offset] |= reached[offset]
            frontier[offset] = reached[offset]
            reaching |= reached[offset]
            reached[offset] = 0
        ended = alive & ~reaching  # They reached their last node in the previous step.
        if ended != 0:
            for bit in range(sources):
                if (ended >> np.uint64(bit)) & np.uint64(1):
                    eccentricity[source + bit] = step - 1
        alive = reaching
        active = count
        queue, following = following, queue
