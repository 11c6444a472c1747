"""Exact topic diameters and radii: from every node of every topic, a breadth-first search inside G(t).

[OMen 6.7; SpiderCast 3.2] The diameter of t is the greatest, the radius the least, eccentricity of its
nodes in G(t). Measured are connected topics with at least two subscribers; split topics have no diameter.

64 searches run at once, one a bit of a word [Then et al., "The more the merrier", VLDB 2014]. A step visits the nodes
that some of the 64 searches reached in the step before, so no search costs more than it would alone. The cost:

    sum over topics of |t.nodes| x links of G(t)     divided by 64 over the number of steps at which a node is
                                                     reached by some search: about 4 in random overlays, so by 16;
                                                     in long paths by about 1

Nodes are taken in breadth-first order from the edge of G(t), so that the 64 are near each other and reach others at
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

PART_COST = 1 << 26  # sources x (nodes + link ends): some 10 ms


@dataclass(frozen=True, eq=False)
class TopicDiameters:
    diameter: npt.NDArray[np.int32]  # of each topic; -1 where it is split or has fewer than two subscribers
    radius: npt.NDArray[np.int32]  # likewise

    @property
    def measured(self) -> npt.NDArray[np.int64]:
        """The topics that have a diameter."""
        return np.flatnonzero(self.diameter >= 0)

    @property
    def maximum(self) -> int | None:
        """Diam, the greatest topic diameter; None without any topic to measure."""
        return int(self.diameter.max()) if len(self.measured) else None

    @property
    def mean(self) -> float | None:
        """diam, the mean topic diameter over the measured topics."""
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
    """The exact diameter and radius of every connected topic. `connected`: the connectivity, if it is known."""
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
    """What the searches of `topic_diameters` cost: sum over measured topics of subscribers x links of G(t)."""
    return int(np.sum(np.where(connected.components == 1, subscribers * connected.links, 0)))


@njit(cache=True)
def _renumber(offsets, first, neighbors, measured, new_first, new_neighbors):  # type: ignore[no-untyped-def]
    """The same graphs, the nodes of each in breadth-first order from a node that is far from others."""
    rank = np.empty(len(first) - 1, neighbors.dtype)
    queue = np.empty(len(first) - 1, neighbors.dtype)
    for topic in range(len(measured)):
        begin, end = offsets[topic], offsets[topic + 1]
        if not measured[topic]:
            continue
        start = begin
        for _ in range(2):  # the second search starts where the first ended
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
        for place in range(begin, end):
            new_first[place] = cursor
            for link in range(first[queue[place]], first[queue[place] + 1]):
                new_neighbors[cursor] = rank[neighbors[link]]
                cursor += 1


@njit(cache=True, nogil=True)
def _eccentricities(offsets, first, neighbors, measured, begin, end, eccentricity):  # type: ignore[no-untyped-def]
    """Fills the eccentricity of the positions from `begin` to `end` whose topics are measured."""
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
    """Searches from `source` and the positions after it, one a bit. `frontier` and `reached` are zero before and after.

    seen      by position - low: the searches that reached it, in this step or before
    frontier  those that reached it in the last step
    reached   those that reach it in this step
    """
    seen[:] = 0
    for bit in range(sources):
        place = source - low + bit
        seen[place] = frontier[place] = np.uint64(1) << np.uint64(bit)
        queue[bit] = place
    active = sources
    alive = ~np.uint64(0) >> np.uint64(64 - sources)  # searches that reached something in the last step
    step = 0
    while active > 0:
        step += 1
        count = 0
        for index in range(active):
            place = queue[index]
            searches = frontier[place]
            frontier[place] = 0
            for link in range(first[low + place], first[low + place + 1]):
                neighbor = neighbors[link] - low
                new = searches & ~seen[neighbor]
                if new != 0:
                    if reached[neighbor] == 0:
                        following[count] = neighbor
                        count += 1
                    reached[neighbor] |= new
        reaching = np.uint64(0)
        for index in range(count):
            place = following[index]
            seen[place] |= reached[place]
            frontier[place] = reached[place]
            reaching |= reached[place]
            reached[place] = 0
        ended = alive & ~reaching  # all they could reach, they had reached a step ago
        if ended != 0:
            for bit in range(sources):
                if (ended >> np.uint64(bit)) & np.uint64(1):
                    eccentricity[source + bit] = step - 1
        alive = reaching
        active = count
        queue, following = following, queue
