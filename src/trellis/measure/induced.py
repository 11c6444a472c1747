"""Find the links inside each topic: G(t), the subgraph of the overlay that t.nodes induce.

A subscription (v, t) has a *position*: its index in `interests.topic_nodes`, where the nodes of a topic are adjacent. A
link (u, v) is a link of G(t) for each topic t that u and v share. As an *induced link* it joins the position of (u, t)
with that of (v, t). Induced links are found by merging the two topic lists of each link. The cost is the sum over links
of the lengths of both lists, or of the shorter one times a logarithm if the lengths differ much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trellis.errors import InputError
from trellis.jit import njit
from trellis.model.interests import Interests, OffsetArray
from trellis.model.overlay import Overlay

PositionArray = npt.NDArray[np.signedinteger]  # int32 as long as that is enough

BLOCK = 1 << 22  # induced links held at once: 32 MiB of positions
GALLOP = 16  # A list that is this many times longer than the other is searched instead of walked.


@dataclass(frozen=True, eq=False)
class InducedLinks:
    """The induced links of some links of the overlay."""

    u: PositionArray
    v: PositionArray
    shared: npt.NDArray[np.int32]  # for each of those links, the number of topics that both ends share


@dataclass(frozen=True, eq=False)
class TopicGraphs:
    """All G(t) side by side, in CSR form over positions: no link leads from one topic into another."""

    offsets: OffsetArray  # the positions of topic t are offsets[t]..offsets[t + 1]
    first: OffsetArray  # the neighbors of position p are neighbors[first[p]:first[p + 1]]
    neighbors: PositionArray


def over_the_same_nodes(interests: Interests, overlay: Overlay) -> None:
    """Raise InputError unless the overlay and the interests have the same nodes."""
    if interests.nodes is not overlay.nodes and interests.nodes != overlay.nodes:
        raise InputError(
            "",
            f"the overlay is over other nodes ({len(overlay.nodes)}) than the interests ({len(interests.nodes)})",
            "give the interests that the overlay was made for",
        )


def positions(interests: Interests) -> PositionArray:
    """Return the position of each entry of `interests.node_topics`."""
    of_entries = np.empty(interests.subscriptions, position_type(interests))
    _positions(interests.node_topics, interests.topic_offsets, of_entries)
    return of_entries


def induced_links(interests: Interests, overlay: Overlay) -> Iterator[InducedLinks]:
    """Yield all induced links, in blocks of limited size, in the order of the overlay's links."""
    over_the_same_nodes(interests, overlay)
    position, sizes = positions(interests), interests.sizes
    room = np.cumsum(np.minimum(sizes[overlay.u], sizes[overlay.v]))
    begin, taken = 0, 0
    while begin < len(overlay):
        end = max(int(np.searchsorted(room, taken + BLOCK, side="right")), begin + 1)
        ends = np.empty((2, room[end - 1] - taken), position.dtype)
        shared = np.empty(end - begin, np.int32)
        count = _induce(
            interests.node_offsets,
            interests.node_topics,
            position,
            overlay.u[begin:end],
            overlay.v[begin:end],
            ends[0],
            ends[1],
            shared,
        )
        yield InducedLinks(ends[0, :count], ends[1, :count], shared)
        begin, taken = end, int(room[end - 1])


def topic_graphs(interests: Interests, overlay: Overlay) -> TopicGraphs:
    """Return all G(t). This takes 8 bytes for each induced link and for each subscription, and one block."""
    first = np.zeros(interests.subscriptions + 1, np.int64)
    for block in induced_links(interests, overlay):
        _count_ends(block.u, block.v, first)
    np.cumsum(first, out=first)
    neighbors = np.empty(int(first[-1]), position_type(interests))
    cursor = first[:-1].copy()
    for block in induced_links(interests, overlay):
        _put_ends(block.u, block.v, cursor, neighbors)
    return TopicGraphs(interests.topic_offsets, first, neighbors)


def position_type(interests: Interests) -> type[np.signedinteger]:
    """Return the integer type that is wide enough for positions."""
    return np.int32 if interests.subscriptions < 2**31 else np.int64


@njit(cache=True)
def _positions(node_topics, topic_offsets, out):  # type: ignore[no-untyped-def]
    """Fill the position of each entry. Nodes come in ascending order, as in `topic_nodes`."""
    cursor = topic_offsets[:-1].copy()
    for entry in range(len(node_topics)):
        topic = node_topics[entry]
        out[entry] = cursor[topic]
        cursor[topic] += 1


@njit(cache=True)
def _induce(offsets, topics, position, us, vs, out_u, out_v, shared):  # type: ignore[no-untyped-def]
    """Fill the positions of the induced links of the links (us, vs), and the number of them for each link."""
    count = 0
    for link in range(len(us)):
        begin = count
        u, v = us[link], vs[link]
        i, i_end, j, j_end = offsets[u], offsets[u + 1], offsets[v], offsets[v + 1]
        swapped = i_end - i > j_end - j
        if swapped:  # i walks through the shorter list.
            i, i_end, j, j_end = j, j_end, i, i_end
        gallop = j_end - j > GALLOP * (i_end - i)
        while i < i_end and j < j_end:
            if topics[i] < topics[j]:
                i += 1
            elif topics[i] > topics[j]:
                j += 1
                if gallop:
                    j = _first_not_below(topics, j, j_end, topics[i])
            else:
                out_u[count] = position[j] if swapped else position[i]
                out_v[count] = position[i] if swapped else position[j]
                count += 1
                i += 1
                j += 1
        shared[link] = count - begin
    return count


@njit(cache=True)
def _first_not_below(values, low, high, wanted):  # type: ignore[no-untyped-def]
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _count_ends(us, vs, first):  # type: ignore[no-untyped-def]
    for link in range(len(us)):
        first[us[link] + 1] += 1
        first[vs[link] + 1] += 1


@njit(cache=True)
def _put_ends(us, vs, cursor, neighbors):  # type: ignore[no-untyped-def]
    for link in range(len(us)):
        u, v = us[link], vs[link]
        neighbors[cursor[u]] = v
        neighbors[cursor[v]] = u
        cursor[u] += 1
        cursor[v] += 1
