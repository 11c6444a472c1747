"""Measure topic connectivity: the number of TC-components of each topic.

An overlay is a TCO if every G(t) has at most one component. Topics with 0 or 1 subscriber are connected by definition.
`missing` is `sum_t (components(t) - 1)` over the topics with subscribers: the number of components that further links
must remove. One union-find covers all topics at once, and its cost is that of the induced links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trellis.jit import njit
from trellis.measure.induced import PositionArray, induced_links, position_type
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Connectivity:
    """The components of every topic."""

    components: IntArray  # number of TC-components of each topic; 0 without subscribers
    links: IntArray  # number of links of each G(t)
    component: PositionArray  # for each position, the first position of its TC-component
    idle_links: int  # links whose ends share no topic, so they serve none

    @property
    def is_tco(self) -> bool:
        return not bool(np.any(self.components > 1))

    @property
    def split(self) -> IntArray:
        """Return the topics with more than one component, ascending ("partitioned topics")."""
        return np.flatnonzero(self.components > 1)

    @property
    def missing(self) -> int:
        return int(np.sum(self.components) - np.count_nonzero(self.components))


@dataclass(frozen=True)
class SplitTopic:
    """A split topic, described for people."""

    topic: str
    subscribers: int
    components: int
    sizes: tuple[int, ...]  # number of nodes of each shown component, largest first
    members: tuple[tuple[str, ...], ...]  # names of some nodes of each shown component

    def __str__(self) -> str:
        parts = [
            f"{size} ({', '.join(names)}{', ...' if size > len(names) else ''})"
            for size, names in zip(self.sizes, self.members, strict=True)
        ]
        more = ", ..." if self.components > len(parts) else ""
        return f"{self.topic}: {self.components} components of {', '.join(parts)}{more}"

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "subscribers": self.subscribers,
            "components": self.components,
            "sizes": list(self.sizes),
            "members": [list(names) for names in self.members],
        }


def connectivity(interests: Interests, overlay: Overlay) -> Connectivity:
    """Return the components of all topics."""
    parent = np.arange(interests.subscriptions, dtype=position_type(interests))
    links_at = np.zeros(interests.subscriptions, np.int32)
    idle = 0
    for block in induced_links(interests, overlay):
        _unite(parent, links_at, block.u, block.v)
        idle += int(np.count_nonzero(block.shared == 0))
    components, links = np.zeros((2, len(interests.topics)), np.int64)
    _gather(interests.topic_offsets, parent, links_at, components, links)
    return Connectivity(components, links, parent, idle)


def split_topics(
    interests: Interests,
    result: Connectivity,
    *,
    topics_max: int | None = None,
    components_max: int = 4,
    members_max: int = 3,
) -> list[SplitTopic]:
    """Return the split topics, most components first, with the largest components of each and some of their members."""
    split = result.split
    order = np.lexsort([split, -result.components[split]])[:topics_max]
    return [_describe(interests, result, int(topic), components_max, members_max) for topic in split[order]]


def _describe(
    interests: Interests, result: Connectivity, topic: int, components_max: int, members_max: int
) -> SplitTopic:
    begin, end = interests.topic_offsets[topic : topic + 2]
    component, nodes = result.component[begin:end], interests.topic_nodes[begin:end]
    firsts, sizes = np.unique(component, return_counts=True)
    shown = np.lexsort([firsts, -sizes])[:components_max]
    return SplitTopic(
        interests.topics[topic],
        len(nodes),
        len(firsts),
        tuple(sizes[shown].tolist()),
        tuple(
            tuple(interests.nodes.take(nodes[component == first][:members_max]).to_pylist()) for first in firsts[shown]
        ),
    )


@njit(cache=True)
def _unite(parent, links_at, us, vs):  # type: ignore[no-untyped-def]
    """Join the sets of both ends of each link. The root of a set is its first position.

    With path halving alone, a find costs O(log n) amortized, and labels do not depend on the order of links.
    """
    for link in range(len(us)):
        links_at[us[link]] += 1
        u, v = _root(parent, us[link]), _root(parent, vs[link])
        if u < v:
            parent[v] = u
        elif v < u:
            parent[u] = v


@njit(cache=True)
def _root(parent, position):  # type: ignore[no-untyped-def]
    while parent[position] != position:
        parent[position] = parent[parent[position]]
        position = parent[position]
    return position


@njit(cache=True)
def _gather(topic_offsets, parent, links_at, components, links):  # type: ignore[no-untyped-def]
    """Point every position directly at its root, and count roots and links of each topic."""
    for topic in range(len(components)):
        for position in range(topic_offsets[topic], topic_offsets[topic + 1]):
            # A parent has a smaller position, so it already points at its root.
            parent[position] = parent[parent[position]]
            components[topic] += parent[position] == position
            links[topic] += links_at[position]
