"""Interest views: the nodes that a node knows with their interests, to choose neighbors from.  [SC §2.2]

`InterestView` is the interface that an overlay protocol uses. This module implements it in plain Python, for live nodes
that know a few hundred others. The simulator implements it with arrays, for a full membership of 10,000 nodes. Both
give the same answers, because both break ties by the same rule:

The tie rule: sort the tied candidates by name. For the random choices these are all candidates. Let k be their number,
draw `r = random.randrange(k)` from the view's own `Random`, and return the candidate with index r. One number is drawn
for each answer, even if k = 1. If there is no candidate, no number is drawn and the answer is None.

There are three views: `full_view` (all nodes), `static_view` (a uniform share of all nodes, drawn once [SC §3.7,
A-SPC-19]), and `gossip_view.py` (kept up to date by gossip, for live nodes).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from random import Random
from typing import Protocol

from trellis.protocols.effects import NodeId


class InterestView(Protocol):
    """What an overlay protocol asks about other nodes. The owner of a view is never a candidate.

    Interests are bitsets of the `TopicTable` of the node, or of the whole run in a simulation.
    """

    version: int  # Changes whenever an answer could have changed.

    def best_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        """Return the node with most topics of `uncovered`, or None if no node has any of them.  [SC Fig. 5, l. 8]"""
        ...

    def random_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        """Return a random node with at least one topic of `uncovered`, or None.  [SC Fig. 5, l. 17-18]"""
        ...

    def similar(self, interest: int, exclude: Collection[NodeId]) -> NodeId | None:
        """Return the node that shares most topics with `interest`, even if that is no topic.  [SC §3.9.1]"""
        ...

    def random_node(self, exclude: Collection[NodeId]) -> NodeId | None:
        """Return a random node.  [SC §3.9.1]"""
        ...

    def interest_of(self, node: NodeId) -> int:
        """Return the interest of a node, or 0 if the node is unknown."""
        ...

    def subscribers(self, topic: int) -> int:
        """Return how many known nodes, without the owner, subscribe to the topic with this one bit."""
        ...


class KnownInterests:
    """An interest view in plain Python. Every answer scans all entries."""

    def __init__(self, owner: NodeId, random: Random, interests: Mapping[NodeId, int] | None = None) -> None:
        self.owner, self.random = owner, random
        self.version = 0
        self._interests: dict[NodeId, int] = {}
        self._names: list[NodeId] = []  # sorted
        for node, interest in (interests or {}).items():
            self.learn(node, interest)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._interests

    @property
    def names(self) -> list[NodeId]:
        """Return all known nodes, sorted."""
        return list(self._names)

    def learn(self, node: NodeId, interest: int) -> None:
        """Set the interest of `node`. The owner itself is ignored."""
        if node == self.owner or self._interests.get(node) == interest:
            return
        if node not in self._interests:
            insort(self._names, node)
        self._interests[node] = interest
        self.version += 1

    def forget(self, node: NodeId) -> None:
        """Remove a node, if it is known."""
        if self._interests.pop(node, None) is not None:
            del self._names[bisect_left(self._names, node)]
            self.version += 1

    def best_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        return self._most(uncovered, exclude, at_least=1)

    def similar(self, interest: int, exclude: Collection[NodeId]) -> NodeId | None:
        return self._most(interest, exclude, at_least=0)

    def random_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        return self._any([node for node in self._names if self._interests[node] & uncovered and node not in exclude])

    def random_node(self, exclude: Collection[NodeId]) -> NodeId | None:
        return self._any([node for node in self._names if node not in exclude])

    def interest_of(self, node: NodeId) -> int:
        return self._interests.get(node, 0)

    def subscribers(self, topic: int) -> int:
        return sum(1 for interest in self._interests.values() if interest & topic)

    def _most(self, wanted: int, exclude: Collection[NodeId], at_least: int) -> NodeId | None:
        """Return the node with most topics of `wanted`, if it has at least `at_least` of them."""
        best = at_least
        tied: list[NodeId] = []
        for node in self._names:
            shared = (self._interests[node] & wanted).bit_count()
            if shared < best or node in exclude:
                continue
            if shared > best:
                best, tied = shared, []
            tied.append(node)
        return self._any(tied)

    def _any(self, candidates: list[NodeId]) -> NodeId | None:
        """Return a random one of `candidates`, which must be sorted by name."""
        return candidates[self.random.randrange(len(candidates))] if candidates else None


def full_view(owner: NodeId, random: Random, everybody: Mapping[NodeId, int]) -> KnownInterests:
    """Return a view of all other nodes with their interests."""
    return KnownInterests(owner, random, everybody)


def static_view(owner: NodeId, random: Random, everybody: Mapping[NodeId, int], percent: float) -> KnownInterests:
    """Return a view of a uniform sample of the other nodes: `percent` of them, at least one.  [SC §3.7]

    The sample is drawn once and does not change.
    """
    others = sorted(node for node in everybody if node != owner)
    count = min(len(others), max(1, round(len(others) * percent / 100)))
    return KnownInterests(owner, random, {node: everybody[node] for node in random.sample(others, count)})
