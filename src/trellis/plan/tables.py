"""Make the kernel's tables: choose the form for an instance, compute its memory, and fill it.

The three forms of `trellis.plan.kernel` choose the same edges, but have different costs:

BITS      a few operations per pair and 256 topics at each look; nothing is stored per pair
TRIANGLE  one operation per pair and shared topic; 2 bytes for each of the n(n - 1)/2 pairs
LISTS     some comparisons of two nodes' topics per pair; 6 bytes for each pair that shares a topic
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trellis.model.interests import OffsetArray
from trellis.model.names import IdArray
from trellis.plan import fill
from trellis.plan.candidates import Candidates, Sampling
from trellis.plan.kernel import single_out_giants
from trellis.plan.state import (
    BITS,
    CHUNK,
    COMPONENT,
    FOLLOWING,
    GIANT,
    LISTS,
    OUTSIDERS,
    OWNER,
    START,
    TOPIC,
    TRIANGLE,
    Components,
    Pairs,
    Ties,
)

# Nanoseconds per pair and 256 topics (BITS), per pair and shared topic (the others), and per pair (TRIANGLE): rough
# values of benchmarks/bench_plan.py. They change the time, never the result.
BITS_NS, TRIANGLE_NS, TRIANGLE_PAIR_NS, LISTS_NS = 6, 8, 1, 300
# With at most so many nodes all pairs are compared. With more nodes, only if that takes at most this long by the values
# above.
EXACT_NODES, EXACT_NS = 20_000, 8 * 10**9
LIMITED_PAIRS = 10_000_000  # With costs or caps, all pairs are compared if there are at most this many.
FREELY_BYTES = 2**30  # Below this memory the fastest form is taken, above it the smallest.


class Shape(NamedTuple):
    """The numbers that determine the cost of an instance."""

    nodes: int
    topics: int
    slots: int
    meetings: int  # sum over topics of the pairs of its nodes, which is at least the number of candidate pairs
    width: int  # bytes of a contribution

    @classmethod
    def of(cls, offsets: OffsetArray, topics: IdArray, topic_count: int) -> Shape:
        popularity = np.bincount(topics, minlength=topic_count)
        meetings = int(np.sum(popularity * (popularity - 1) // 2))
        width = contribution_type(np.diff(offsets)).itemsize
        return cls(len(offsets) - 1, topic_count, len(topics), meetings, width)

    @property
    def pairs(self) -> int:
        return self.nodes * (self.nodes - 1) // 2

    @property
    def listed_max(self) -> int:
        """Return an upper bound of the number of pairs that share a topic."""
        return min(self.pairs, self.meetings)

    @property
    def bytes_common(self) -> int:
        """Return the memory of the tables that every form has, in bytes."""
        return 96 * self.slots + 112 * self.nodes + 64 * self.topics

    def best_form(self) -> int:
        """Return the fastest form that fits into FREELY_BYTES, or the smallest if none does."""
        forms = (BITS, TRIANGLE, LISTS)
        room = max(FREELY_BYTES, min(self.bytes_of(form) for form in forms))
        return min((form for form in forms if self.bytes_of(form) <= room), key=self.nanoseconds_of)

    def bytes_of(self, form: int, listed: int | None = None) -> int:
        """Return the memory of all tables at their peak, in bytes.

        `listed` is the number of candidate pairs, if known.
        """
        blocks = -(-self.nodes // CHUNK)
        chunks = CHUNK * blocks * (blocks + 1) // 2
        common = self.bytes_common
        if form == BITS:
            return common + 64 * groups_of(self.topics) * CHUNK * blocks + 5 * self.width * chunks
        if form == TRIANGLE:
            return common + (CHUNK + 5) * self.width * chunks
        listed = self.listed_max if listed is None else listed
        return common + (4 + self.width) * listed + 5 * self.width * (listed // CHUNK + self.nodes)

    def bytes_sampled(self, sampling: Sampling) -> int:
        """Return the memory at the peak if candidates are drawn: first the draw, then LISTS with the drawn pairs."""
        listed = min(sampling.pairs_max(self.nodes, self.slots), self.meetings)
        return max(sampling.bytes_of(self.nodes, self.slots), self.bytes_of(LISTS, listed))

    def prefers_sampling(self, is_limited: bool = False) -> bool:
        """Return whether comparing all pairs would take so long that sampling is worth a few more links.

        is_limited  with costs or caps
        """
        if is_limited:
            return self.listed_max > LIMITED_PAIRS
        return self.nodes > EXACT_NODES and self.nanoseconds_of(self.best_form()) > EXACT_NS

    def nanoseconds_of(self, form: int) -> int:
        """Return an estimate of the time that a form takes."""
        if form == BITS:
            return BITS_NS * self.pairs * groups_of(self.topics)
        if form == TRIANGLE:
            return TRIANGLE_NS * self.meetings + TRIANGLE_PAIR_NS * self.pairs
        return LISTS_NS * self.meetings


def groups_of(topics: int) -> int:
    """Return the number of groups of four words that hold a bit per topic."""
    return max(1, -(-topics // 256))


def make_components(offsets: OffsetArray, topics: IdArray, topic_count: int, component: IdArray) -> Components:
    """Return the tables. `component` has for each slot the slot that stands for its TC-component."""
    slots = np.zeros((len(topics), 6), np.int32)
    slots[:, TOPIC] = topics
    slots[:, OWNER] = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    slots[:, COMPONENT] = component
    slots[:, FOLLOWING] = np.arange(len(topics), dtype=np.int32)
    by_topic = np.zeros((topic_count + 1, 3), np.int64)
    by_topic[:-1, OUTSIDERS] = np.bincount(topics, minlength=topic_count)
    np.cumsum(by_topic[:-1, OUTSIDERS], out=by_topic[1:, START])
    by_topic[:, GIANT] = -1
    slot_at, node_at = np.empty((2, len(topics)), np.int32)
    fill.fill_places(slots, by_topic, slot_at, node_at)
    fill.fill_circles(slots, by_topic)
    return Components(np.asarray(offsets, np.int64), slots, by_topic, slot_at, node_at)


def make_pairs(form: int, components: Components, candidates: Candidates | None = None) -> Pairs:
    """Return the tables of a form, with the giants entered.

    candidates  pairs to use instead of all that share a topic; only for the form LISTS
    """
    offsets, slots, by_topic, slot_at, node_at = components
    nodes, sizes = len(offsets) - 1, np.diff(offsets)
    blocks, block = -(-nodes // CHUNK), np.arange(nodes) // CHUNK
    dtype = contribution_type(sizes)
    planes = np.zeros((0, 1, 8, CHUNK), np.uint64)
    contributions, columns = np.zeros(0, dtype), np.zeros(0, np.int32)
    row_start = np.zeros(nodes + 1, np.int64)
    chunks = blocks - block  # Row i needs its own block and those after it.
    if form == BITS:
        planes = np.zeros((blocks, groups_of(len(by_topic) - 1), 8, CHUNK), np.uint64)
        fill.fill_planes(slots, planes)
    elif form == TRIANGLE:
        ends = np.cumsum(chunks * CHUNK)
        row_start[:-1] = ends - chunks * CHUNK - block * CHUNK
        contributions = np.zeros(int(ends[-1]) if nodes else 0, dtype)
        fill.fill_triangle(offsets, slots, by_topic, slot_at, node_at, row_start, contributions)
    elif candidates is None:
        np.cumsum(fill.count_listed(offsets, slots, by_topic, slot_at, node_at), out=row_start[1:])
        columns, contributions = np.empty(row_start[-1], np.int32), np.empty(row_start[-1], dtype)
        fill.fill_listed(offsets, slots, by_topic, slot_at, node_at, row_start[:-1].copy(), columns, contributions)
    else:
        row_start, columns = candidates
        contributions = np.empty(row_start[-1], dtype)
        fill.fill_candidates(offsets, slots, by_topic, row_start, columns, contributions)
    if form == LISTS:
        chunks = -(-np.diff(row_start) // CHUNK)
    chunk_start = np.zeros(nodes + 1, np.int64)
    np.cumsum(chunks, out=chunk_start[1:])
    rows = np.tile(sizes.astype(dtype), (2, 1))  # A node contributes only in its own topics.
    active = np.zeros((2, blocks * CHUNK), dtype)
    active[0] = np.iinfo(dtype).max
    single_out_giants(slots, by_topic, slot_at, node_at, form, planes)
    return Pairs(
        form,
        planes,
        contributions,
        columns,
        row_start,
        chunk_start,
        np.repeat(rows, chunks, axis=1),
        rows,
        active,
    )


def make_ties(pairs: Pairs) -> Ties:
    """Return empty tables for MinMaxODA. A score is twice as wide as a contribution."""
    dtype = np.uint32 if pairs.bounds.dtype.itemsize == 2 else np.int64
    padded, chunks = len(pairs.active[0]), len(pairs.bounds[0])
    return Ties(*(np.zeros(size, dtype) for size in (padded, chunks, padded, padded // CHUNK)))


def contribution_type(sizes: OffsetArray) -> np.dtype[np.unsignedinteger]:
    """Return a type wide enough for any contribution, at most the second largest number of topics of a node."""
    widest = int(np.partition(sizes, -2)[-2]) if len(sizes) > 1 else 0
    return np.dtype(np.uint16 if widest < 2**16 else np.uint32)
