"""Measure how similar the interests of nodes are: pairwise intersection and top-d-intersection.  [SpiderCast 3.4]

The intersection of two nodes n and m, in %, is `100 |n.topics & m.topics| / min(|n.topics|, |m.topics|)`. It is 0 if
one of them has no topics. `tdi_n(d)` is its mean over the d other nodes of highest intersection with n, or over all
others if there are fewer than d. `tdi(d)` is the mean of `tdi_n(d)` over the nodes.

The result is exact. The cost is the sum over topics of subscribers squared: 10^8 steps for 100 topics of 1000
subscribers. On large instances, a sample of nodes may be measured instead of all. Each of them is still compared with
every other node, so its own `tdi_n` is exact. The result says how many were measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trellis.errors import InputError
from trellis.jit import njit
from trellis.measure.threads import Progress, in_threads, split_evenly
from trellis.model.interests import Interests

D = 20  # SpiderCast's d: the degree that nodes reach [SC 3.4]
STEPS_MAX = 2 * 10**9  # About ten seconds on two cores; a minute for a million nodes, whose counts exceed the cache.
BINS = 11  # intersections of 0, then above 0 up to 10 %, ..., above 90 up to 100 %


@dataclass(frozen=True, eq=False)
class Similarity:
    """Intersections of the interests of nodes."""

    nodes: int
    measured: int  # nodes whose intersections with all others were computed
    seed: int | None  # seed of the sample; None: all nodes were measured
    top_intersection: npt.NDArray[np.float64]  # tdi(1), tdi(2), ...
    mean: float  # mean intersection over all pairs, in %
    histogram: npt.NDArray[np.int64]  # pairs by intersection, see BINS; a pair counts once for each measured end

    def tdi(self, d: int) -> float:
        assert 1 <= d <= len(self.top_intersection), f"tdi({d}) was not measured: give a d_max of at least {d}"
        return float(self.top_intersection[d - 1])


def similarity(
    interests: Interests,
    *,
    d_max: int = D,
    sample: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Similarity:
    """Return tdi(1) to tdi(d_max) and the distribution of intersections, of all nodes or of a random sample."""
    if d_max < 1:
        raise InputError("", f"the d of tdi(d) is {d_max}", "compare with at least 1 other node")
    if sample is not None and sample < 1:
        raise InputError("", f"the sample has {sample} nodes", "draw at least 1")
    nodes = len(interests.nodes)
    sampled = sample is not None and sample < nodes
    chosen = np.arange(nodes)
    if sampled:
        chosen = np.sort(np.random.default_rng(seed).choice(nodes, sample, replace=False))
    bounds, costs = split_evenly(_steps(interests)[chosen] + 1, part_cost=1 << 24, parts_max=1024)
    tops = np.zeros((len(costs), d_max))
    sums = np.zeros(len(costs))
    histograms = np.zeros((len(costs), BINS), np.int64)

    def measure(part: int, begin: int, end: int) -> None:
        sums[part] = _intersections(
            interests.node_offsets,
            interests.node_topics,
            interests.topic_offsets,
            interests.topic_nodes,
            chosen[begin:end],
            tops[part],
            histograms[part],
        )

    in_threads(measure, bounds, costs, threads=threads, progress=progress)
    pairs = max(len(chosen) * (nodes - 1), 1)
    return Similarity(
        nodes,
        len(chosen),
        seed if sampled else None,
        tops.sum(axis=0) / max(len(chosen), 1),
        float(sums.sum()) / pairs,
        histograms.sum(axis=0),
    )


def sample_within(interests: Interests, steps_max: int = STEPS_MAX) -> int | None:
    """Return how many nodes can be measured within `steps_max` steps, or None if all can."""
    steps = int(_steps(interests).sum())
    return None if steps <= steps_max else max(len(interests.nodes) * steps_max // steps, 1)


def _steps(interests: Interests) -> npt.NDArray[np.int64]:
    """Return for each node the number of subscribers of its topics, with repeats. This is the cost of comparing it."""
    popularity = np.concatenate([[0], np.cumsum(interests.popularity[interests.node_topics])])
    return np.diff(popularity[interests.node_offsets])


@njit(cache=True, nogil=True)
def _intersections(  # type: ignore[no-untyped-def]
    node_offsets, node_topics, topic_offsets, topic_nodes, chosen, top, histogram
):
    """Add tdi_n(d) of each chosen node n to top[d - 1], and its pairs to the histogram. Return their sum."""
    nodes, d_max = len(node_offsets) - 1, len(top)
    shared = np.zeros(nodes, np.int32)
    others = np.empty(nodes, np.int32)  # nodes that share a topic with n
    values = np.empty(nodes, np.float64)
    total = 0.0
    for n in chosen:
        size = node_offsets[n + 1] - node_offsets[n]
        count = 0
        for topic in node_topics[node_offsets[n] : node_offsets[n + 1]]:
            for m in topic_nodes[topic_offsets[topic] : topic_offsets[topic + 1]]:
                if m != n:
                    if shared[m] == 0:
                        others[count] = m
                        count += 1
                    shared[m] += 1
        for index in range(count):
            m = others[index]
            smaller = min(size, node_offsets[m + 1] - node_offsets[m])
            values[index] = 100.0 * shared[m] / smaller
            histogram[(10 * shared[m] + smaller - 1) // smaller] += 1
            total += values[index]
            shared[m] = 0
        histogram[0] += nodes - 1 - count
        best = _best_first(values, count, min(count, d_max))
        reached = 0.0
        for d in range(1, d_max + 1):
            if d <= len(best):
                reached += best[d - 1]
            if nodes > 1:
                top[d - 1] += reached / min(d, nodes - 1)
    return total


@njit(cache=True, nogil=True)
def _best_first(values, count, wanted):  # type: ignore[no-untyped-def]
    """Return the `wanted` largest of the first `count` values, largest first. (np.partition takes 9 s to compile.)"""
    heap = values[:wanted].copy()  # the smallest of them is at the top
    for index in range(wanted // 2 - 1, -1, -1):
        _sink(heap, index, wanted)
    for index in range(wanted, count):
        if values[index] > heap[0]:
            heap[0] = values[index]
            _sink(heap, 0, wanted)
    for size in range(wanted - 1, 0, -1):
        heap[0], heap[size] = heap[size], heap[0]
        _sink(heap, 0, size)
    return heap


@njit(cache=True, nogil=True)
def _sink(heap, index, size):  # type: ignore[no-untyped-def]
    while 2 * index + 1 < size:
        child = 2 * index + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[index] <= heap[child]:
            return
        heap[index], heap[child] = heap[child], heap[index]
        index = child
