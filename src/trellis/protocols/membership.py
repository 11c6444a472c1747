"""Who is known, and what they want: the interest view that overlay protocols choose neighbours from.  [SC §2.2]

`InterestView` is the small interface that a protocol asks. It is backed by plain Python here, for live nodes that know
a few hundred others, and by arrays in the simulator, for a full membership of 10,000. Both give the same answers:

The tie rule  take the tied candidates (for the random choices: all candidates) in the order of `sorted(names)`, k of
              them; draw `r = random.randrange(k)` from the Random that the view was made with, once per answer and even
              where k = 1; the answer is the r-th. Where there is no candidate nothing is drawn and the answer is None.

Three ways to fill one: `full_view` (everybody), `static_view` (a uniform share of everybody, drawn once [SC §3.7,
A-SPC-19]), and `gossip_view.py` (kept up to date by gossip: what a live node has).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from random import Random
from typing import Protocol

from trellis.protocols.effects import NodeId


class InterestView(Protocol):
    """Interests are bitsets of the run's or the node's `TopicTable`. The owner of a view is never a candidate."""

    version: int  # changes whenever an answer could have changed

    def best_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        """The node with most topics of `uncovered`; none that has no such topic.  [SC Fig. 5, l. 8]"""
        ...

    def random_cover(self, uncovered: int, exclude: Collection[NodeId]) -> NodeId | None:
        """Any node with at least one topic of `uncovered`.  [SC Fig. 5, l. 17-18]"""
        ...

    def similar(self, interest: int, exclude: Collection[NodeId]) -> NodeId | None:
        """The node that shares most topics with `interest`, even where the most is none.  [SC §3.9.1]"""
        ...

    def random_node(self, exclude: Collection[NodeId]) -> NodeId | None:
        """Any node.  [SC §3.9.1]"""
        ...

    def interest_of(self, node: NodeId) -> int:
        """The interest of a known node, 0 where it is unknown."""
        ...

    def subscribers(self, topic: int) -> int:
        """How many known nodes, the owner not among them, want the topic with this one bit."""
        ...


class KnownInterests:
    """An interest view in plain Python: every answer scans all entries."""

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
        return list(self._names)

    def learn(self, node: NodeId, interest: int) -> None:
        """`node` wants `interest` from now on. What is said about the owner is not kept."""
        if node == self.owner or self._interests.get(node) == interest:
            return
        if node not in self._interests:
            insort(self._names, node)
        self._interests[node] = interest
        self.version += 1

    def forget(self, node: NodeId) -> None:
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
        return candidates[self.random.randrange(len(candidates))] if candidates else None


def full_view(owner: NodeId, random: Random, everybody: Mapping[NodeId, int]) -> KnownInterests:
    """Full membership: the identity and the interest of every other node."""
    return KnownInterests(owner, random, everybody)


def static_view(owner: NodeId, random: Random, everybody: Mapping[NodeId, int], percent: float) -> KnownInterests:
    """`percent` of all other nodes, uniformly, at least one of them, drawn once and never changed.  [SC §3.7]"""
    others = sorted(node for node in everybody if node != owner)
    count = min(len(others), max(1, round(len(others) * percent / 100)))
    return KnownInterests(owner, random, {node: everybody[node] for node in random.sample(others, count)})
