"""Find topics that the loss of one node would split, for all nodes and topics at once.

A node *cuts* a topic if the other subscribers are not connected without it. A topic that no node cuts survives any
single crash. A topic of one or two subscribers has no cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trellis.jit import njit
from trellis.measure.induced import topic_graphs
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay


@dataclass(frozen=True)
class Cut:
    """A topic that falls apart without one of its nodes."""

    topic: str
    subscribers: int
    node: str  # the node whose loss leaves most pieces; the first of several
    pieces: int
    nodes: int  # number of nodes that cut the topic

    def __str__(self) -> str:
        more = f"; {self.nodes - 1:,} more of its nodes cut it" if self.nodes > 1 else ""
        return f"{self.topic} ({self.subscribers:,} nodes): {self.pieces} pieces without {self.node}{more}"

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "subscribers": self.subscribers,
            "node": self.node,
            "pieces": self.pieces,
            "nodes": self.nodes,
        }


@dataclass(frozen=True)
class Cuts:
    """All cuts of an overlay."""

    topics: int  # topics that some node cuts
    nodes: int  # nodes that cut some topic
    worst: tuple[Cut, ...]  # topics with most pieces first


def find_cuts(interests: Interests, overlay: Overlay, *, topics_max: int) -> Cuts:
    """Return all cuts of an overlay. At most `topics_max` topics are described."""
    pieces = pieces_without(interests, overlay)
    cutting = np.flatnonzero(pieces > 1)
    topic = np.searchsorted(interests.topic_offsets, cutting, side="right") - 1
    topics, first, counts = np.unique(topic, return_index=True, return_counts=True)
    most = np.maximum.reduceat(pieces[cutting], first) if len(first) else np.zeros(0, np.int64)
    worst = []
    for k in np.lexsort([topics, -most])[:topics_max].tolist():
        own = cutting[first[k] : first[k] + counts[k]]
        at = own[np.argmax(pieces[own])]
        name, subscribers = interests.topics[int(topics[k])], len(interests.nodes_of(int(topics[k])))
        worst.append(
            Cut(name, subscribers, interests.nodes[int(interests.topic_nodes[at])], int(most[k]), int(counts[k]))
        )
    return Cuts(len(topics), len(np.unique(interests.topic_nodes[cutting])), tuple(worst))


def pieces_without(interests: Interests, overlay: Overlay) -> npt.NDArray[np.int64]:
    """Return for each subscription of `topic_nodes` into how many pieces its component falls without its node."""
    graphs = topic_graphs(interests, overlay)
    pieces = np.zeros(interests.subscriptions, np.int64)
    extra_components(graphs.first, graphs.neighbors, pieces)
    return pieces


@njit(cache=True)
def extra_components(first: Any, neighbors: Any, pieces: Any) -> None:
    """Add to `pieces`, for each position, the number of pieces of its component when the position is removed.

    Positions and their links are those of `trellis.measure.induced.TopicGraphs`: all topics side by side. One
    depth-first search is enough: a subtree is connected only through its parent if no link from it leads further up
    (Hopcroft, Tarjan 1973). So a root leaves as many pieces as it has children. Any other position leaves one more than
    the number of children whose subtrees reach no higher than itself.
    """
    number = np.zeros(len(pieces), np.int64)  # in order of discovery, from 1; 0: not discovered yet
    highest = np.zeros(len(pieces), np.int64)  # the smallest number to which a link from the subtree leads
    parent = np.full(len(pieces), -1, np.int64)
    cursor = first[:-1].copy()
    met = 0
    for root in range(len(pieces)):
        if number[root]:
            continue
        met += 1
        number[root] = highest[root] = met
        at = root
        while at >= 0:
            if cursor[at] < first[at + 1]:
                to = neighbors[cursor[at]]
                cursor[at] += 1
                if number[to] == 0:
                    met += 1
                    number[to] = highest[to] = met
                    parent[to] = at
                    at = to
                elif to != parent[at]:
                    highest[at] = min(highest[at], number[to])
                continue
            above = parent[at]
            if above >= 0:
                highest[above] = min(highest[above], highest[at])
                pieces[above] += highest[at] >= number[above]
                pieces[at] += 1  # the part above it
            at = above
