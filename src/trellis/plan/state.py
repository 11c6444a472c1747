"""What the kernel works on: the names of its tables and of their columns.

Kernels take arrays. The tuples here bundle them for the way into `trellis.plan.kernel.choose_edges`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

BITS, TRIANGLE, LISTS, BLOCKS = range(4)  # forms; BLOCKS: LISTS of what `trellis.plan.twice` looks for
ALL, LOW = range(2)
LEVEL, ROW = range(2)  # of `cursors`
DEGREE_MAX, EDGES, LEFT = range(3)  # of `totals`; LEFT: sum over topics of (TC-components - 1)
TOPIC, OWNER, COMPONENT, FOLLOWING, SIZE, PLACE = range(6)  # of `slots`
START, OUTSIDERS, GIANT = range(3)  # of `by_topic`
CHUNK = 64


class Components(NamedTuple):
    """Who is connected with whom, topic by topic. A TC-component goes by one of its slots."""

    offsets: Any  # the slots of node i are offsets[i]:offsets[i + 1], by ascending topic
    # [slot, TOPIC | OWNER | ...]: its node; the slot that stands for its TC-component; the next slot of
    # that, around in a circle; its size, where the slot stands for it; where the slot is in `slot_at`.
    slots: Any
    # [topic, START | OUTSIDERS | GIANT]: where the topic's slots start in `slot_at`, with those outside
    # the giant first; how many these are; the slot that stands for the giant. One row more than topics.
    by_topic: Any
    slot_at: Any
    node_at: Any


class Pairs(NamedTuple):
    """The candidate pairs and what is known of their contributions."""

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
    """MinMaxODA: what its ties go by while the maximum degree stays."""

    light: Any  # [node]: LIGHTEST less its uncovered topics when the maximum degree last rose
    scores: Any  # [chunk]: no active pair's score is greater
    row_scores: Any  # [node]: the greatest of its row; 0 if it is not active
    block_scores: Any  # [block of 64 nodes]: none of its rows has a greater one


class State(NamedTuple):
    """What one call of `choose_edges` leaves to the next."""

    degrees: Any
    cursors: Any  # [ALL | LOW, LEVEL | ROW]
    totals: Any  # [DEGREE_MAX | EDGES | LEFT]
    edges: Any  # [edge, i | j | contribution], i < j, in the order chosen
