"""Name the tables of the kernel and their columns.

Kernels take arrays. The tuples here bundle them for `trellis.plan.kernel.choose_edges`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

BITS, TRIANGLE, LISTS, BLOCKS = range(4)  # forms; BLOCKS: LISTS with the contributions of `trellis.plan.twice`
ALL, LOW = range(2)
LEVEL, ROW = range(2)  # indexes of `cursors`
DEGREE_MAX, EDGES, LEFT = range(3)  # indexes of `totals`; LEFT: sum over topics of (TC-components - 1)
TOPIC, OWNER, COMPONENT, FOLLOWING, SIZE, PLACE = range(6)  # columns of `slots`
START, OUTSIDERS, GIANT = range(3)  # columns of `by_topic`
CHUNK = 64


class Components(NamedTuple):
    """The TC-components of all topics. A TC-component is named after one of its slots."""

    offsets: Any  # the slots of node i are offsets[i]:offsets[i + 1], by ascending topic
    # [slot, TOPIC | OWNER | ...]: its topic; its node; the slot that stands for its TC-component; the next slot of
    # that, in a circle; its size, if the slot stands for it; the index of the slot in `slot_at`.
    slots: Any
    # [topic, START | OUTSIDERS | GIANT]: where the topic's slots start in `slot_at`, with those outside the giant
    # first; how many these are; the slot that stands for the giant. There is one row more than topics.
    by_topic: Any
    slot_at: Any
    node_at: Any


class Pairs(NamedTuple):
    """The candidate pairs and what is known about their contributions."""

    form: int
    planes: Any  # BITS: [block of 64 nodes, group of 256 topics, 4 words of topics then 4 of outside, node]
    contributions: Any  # TRIANGLE, LISTS
    columns: Any  # LISTS
    row_start: Any  # TRIANGLE: (i, j) is at row_start[i] + j; LISTS: row i is row_start[i]:row_start[i + 1]
    chunk_start: Any  # the chunks of row i are chunk_start[i]:chunk_start[i + 1]
    bounds: Any  # [ALL | LOW, chunk]
    rows: Any  # [ALL | LOW, node]: the greatest bound of a row
    active: Any  # [ALL | LOW, node]: all bits set, or none


class Ties(NamedTuple):
    """MinMaxODA: how ties are broken while the maximum degree stays."""

    light: Any  # [node]: LIGHTEST minus its uncovered topics when the maximum degree last rose
    scores: Any  # [chunk]: upper bound of the scores of active pairs
    row_scores: Any  # [node]: the greatest score of its row; 0 if it is not active
    block_scores: Any  # [block of 64 nodes]: upper bound of the scores of its rows


class State(NamedTuple):
    """The state that one call of `choose_edges` passes to the next."""

    degrees: Any
    cursors: Any  # [ALL | LOW, LEVEL | ROW]
    totals: Any  # [DEGREE_MAX | EDGES | LEFT]
    edges: Any  # [edge, i | j | contribution], i < j, in the order in which they were chosen
