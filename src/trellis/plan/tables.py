"""The kernel's tables: which form suits an instance, how much memory it needs, and filling them.

The three forms of `trellis.plan.kernel` choose the same edges and differ in what they cost:

BITS      a few operations per pair and 256 topics at each look, nothing stored per pair
TRIANGLE  one operation per pair and shared topic, 2 bytes for each of the n(n - 1)/2 pairs
LISTS     some comparisons of two nodes' topics per pair, 6 bytes for each pair that shares a topic
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

# Nanoseconds per pair and 256 topics (BITS), per pair and shared topic (the others), and per pair
# (TRIANGLE): rough figures of benchmarks/bench_plan.py. They decide the time, never the result.
BITS_NS, TRIANGLE_NS, TRIANGLE_PAIR_NS, LISTS_NS = 6, 8, 1, 300
# Up to so many nodes all pairs are looked at, and beyond it up to so long, by the figures above.
EXACT_NODES, EXACT_NS = 20_000, 8 * 10**9
LIMITED_PAIRS = 10_000_000  # up to so many pairs are all looked at where links have costs or caps
FREELY_BYTES = 2**30  # up to here the fastest form is taken, beyond it the smallest


class Shape(NamedTuple):
    """What the cost of an instance depends on."""

    nodes: int
    topics: int
    slots: int
    meetings: int  # sum over topics of the pairs of its nodes: no fewer than the candidate pairs
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
        """No more pairs than that share a topic."""
        return min(self.pairs, self.meetings)

    @property
    def bytes_common(self) -> int:
        """Memory of the tables that every form has."""
        return 96 * self.slots + 112 * self.nodes + 64 * self.topics

    def best_form(self) -> int:
        """The fastest of the forms that fit into FREELY_BYTES; the smallest where none does."""
        forms = (BITS, TRIANGLE, LISTS)
        room = max(FREELY_BYTES, min(self.bytes_of(form) for form in forms))
        return min((form for form in forms if self.bytes_of(form) <= room), key=self.nanoseconds_of)

    def bytes_of(self, form: int, listed: int | None = None) -> int:
        """Memory of all tables at their peak; `listed` is the number of candidate pairs, where it is known."""
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
        """Memory at the peak when candidates are drawn: first the draw, then LISTS with what was drawn."""
        listed = min(sampling.pairs_max(self.nodes, self.slots), self.meetings)
        return max(sampling.bytes_of(self.nodes, self.slots), self.bytes_of(LISTS, listed))

    def prefers_sampling(self, is_limited: bool = False) -> bool:
        """Whether all pairs would take so long that candidates are worth the few links more.

        is_limited  with costs or caps
        """
        if is_limited:
            return self.listed_max > LIMITED_PAIRS
        return self.nodes > EXACT_NODES and self.nanoseconds_of(self.best_form()) > EXACT_NS

    def nanoseconds_of(self, form: int) -> int:
        if form == BITS:
            return BITS_NS * self.pairs * groups_of(self.topics)
        if form == TRIANGLE:
            return TRIANGLE_NS * self.meetings + TRIANGLE_PAIR_NS * self.pairs
        return LISTS_NS * self.meetings


def groups_of(topics: int) -> int:
    """Groups of four words that hold a bit per topic."""
    return max(1, -(-topics // 256))


def make_components(offsets: OffsetArray, topics: IdArray, topic_count: int, component: IdArray) -> Components:
    """`component` gives for each slot the slot that stands for its TC-component (`trellis.plan.components`)."""
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
    """The tables of a form, after which the giants are singled out.

    candidates  pairs instead of all that share a topic; only in the form LISTS
    """
    offsets, slots, by_topic, slot_at, node_at = components
    nodes, sizes = len(offsets) - 1, np.diff(offsets)
    blocks, block = -(-nodes // CHUNK), np.arange(nodes) // CHUNK
    dtype = contribution_type(sizes)
    planes = np.zeros((0, 1, 8, CHUNK), np.uint64)
    contributions, columns = np.zeros(0, dtype), np.zeros(0, np.int32)
    row_start = np.zeros(nodes + 1, np.int64)
    chunks = blocks - block  # row i needs its own block and those behind it
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
    rows = np.tile(sizes.astype(dtype), (2, 1))  # a node contributes in its own topics only
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
    """Tables for MinMaxODA, still to be filled: a score is twice as wide as a contribution."""
    dtype = np.uint32 if pairs.bounds.dtype.itemsize == 2 else np.int64
    padded, chunks = len(pairs.active[0]), len(pairs.bounds[0])
    return Ties(*(np.zeros(size, dtype) for size in (padded, chunks, padded, padded // CHUNK)))


def contribution_type(sizes: OffsetArray) -> np.dtype[np.unsignedinteger]:
    """Wide enough for any contribution: at most the second largest number of topics of a node."""
    widest = int(np.partition(sizes, -2)[-2]) if len(sizes) > 1 else 0
    return np.dtype(np.uint16 if widest < 2**16 else np.uint32)
