"""The answers of one repair, and which nodes they prove to be connected on a topic.

A proof uses answers alone. Two nodes are proven to be connected on a topic if a chain of nodes leads from one to the
other, for which this holds:

P1  Each node of the chain has answered in this repair, so after the event was known (docs/omen.md, condition 2).
P2  Each node takes part in the topic and is not leaving it.
P3  Each two consecutive nodes name each other as neighbors, in their present runs.

A part of a topic is a set of nodes that are proven to be connected. Nodes in different parts may be connected all the
same, by nodes that were not asked. `worth_asking` finds such nodes.

Deviation: Alg. 1 of the paper tests connectivity within the shadow set. A proof here may use any node that answers.

`Questions` and `Requests` have an `Answers` each. Bitsets are over the topics of the question, and a topic's index
is its index in the question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.messages import Answer, Relayed, unpack
from trellis.protocols.topics import places

AROUND_MAX = 64  # Most nodes that are asked around one part at once.
_Graph = dict[NodeId, dict[NodeId, None]]  # Possible links on one topic: node -> nodes that it may be linked to.


class Told:
    """One answer, decoded. `neighbours` has each neighbor's incarnation and topics, `paths` the hint of each topic."""

    __slots__ = (
        "degree",
        "incarnation",
        "joining",
        "leaving",
        "neighbours",
        "paths",
        "stays",
        "topics_version",
        "wants",
    )

    def __init__(self, answer: Answer | Relayed, index_of: dict[str, int]) -> None:
        self.incarnation, self.degree, self.joining = answer.incarnation, answer.degree, answer.joining
        self.topics_version = answer.topics_version
        self.wants, self.leaving = unpack(answer.wants), unpack(answer.leaving)
        self.stays = self.wants & ~self.leaving  # Topics on which it can be part of a proof (P2).
        self.neighbours = {one.node: (one.incarnation, unpack(one.wants)) for one in answer.neighbours}
        self.paths = {index_of[hint.topic]: hint.path for hint in answer.hints if hint.topic in index_of}

    def leaves(self, topics: tuple[Topic, ...]) -> tuple[frozenset[Topic], dict[NodeId, int]]:
        """Return which of the question's topics the node is leaving, and its neighbors on them with incarnations."""
        names = frozenset(topics[index] for index in places(self.leaving) if index < len(topics))
        return names, {
            peer: incarnation for peer, (incarnation, wants) in self.neighbours.items() if wants & self.leaving
        }


class Answers:
    """All answers so far, and the parts that they prove."""

    def __init__(self) -> None:
        self.told: dict[NodeId, Told] = {}
        self._proven: dict[NodeId, list[NodeId]] = {}  # Cache of `_links`: links that both ends have named.
        self._parts: dict[int, dict[NodeId, int]] = {}  # Cache of `parts`, by topic.

    def add(self, node: NodeId, told: Told) -> None:
        """Add the answer of a node, or replace it."""
        self.told[node] = told
        self._forget()

    def drop(self, node: NodeId) -> None:
        self.told.pop(node, None)
        self._forget()

    def _forget(self) -> None:
        self._proven, self._parts = {}, {}

    def __contains__(self, node: NodeId) -> bool:
        return node in self.told

    def linked(self, one: NodeId, other: NodeId) -> bool:
        """Return whether both nodes have answered and name each other as neighbors, in their present runs (P3)."""
        a, b = self.told.get(one), self.told.get(other)
        if a is None or b is None:
            return False
        there, back = a.neighbours.get(other), b.neighbours.get(one)
        return (
            there is not None
            and back is not None
            and run_of(there[0]) == run_of(b.incarnation)
            and run_of(back[0]) == run_of(a.incarnation)
        )

    def parts(self, index: int) -> dict[NodeId, int]:
        """Return the number of its proven part for each node that has answered and stays on the topic."""
        part = self._parts.get(index)
        if part is None:
            part = self._parts[index] = self._parts_of(1 << index)
        return part

    def parts_without(self, index: int, lost: NodeId) -> dict[NodeId, int]:
        """Return the number of the part of each such node if `lost` were not there."""
        return self._parts_of(1 << index, lost)

    def graph(self, index: int) -> dict[NodeId, set[NodeId]]:
        """Return the proven links of a topic: the neighbors of each node that has answered and stays on it."""
        told, proven, bit = self.told, self._links(), 1 << index
        return {
            node: {peer for peer in proven[node] if told[peer].stays & bit}
            for node, one in told.items()
            if one.stays & bit
        }

    def _parts_of(self, bit: int, lost: NodeId | None = None) -> dict[NodeId, int]:
        """Find the connected components of the proven links among nodes that stay on a topic, without `lost`."""
        told, proven = self.told, self._links()
        part: dict[NodeId, int] = {}
        for number, start in enumerate(told):
            if start in part or start == lost or not told[start].stays & bit:
                continue
            part[start] = number
            todo = [start]
            while todo:
                for peer in proven[todo.pop()]:
                    if peer not in part and peer != lost and told[peer].stays & bit:
                        part[peer] = number
                        todo.append(peer)
        return part

    def _links(self) -> dict[NodeId, list[NodeId]]:
        """Return the neighbors by proven links of each node that has answered. They do not depend on the topic."""
        if not self._proven:
            self._proven = {
                node: [peer for peer in one.neighbours if self.linked(node, peer)] for node, one in self.told.items()
            }
        return self._proven

    def worth_asking(
        self,
        index: int,
        required: Collection[NodeId],
        gone: Collection[NodeId],
        *,
        hints: bool,
        asked: Collection[NodeId] | None,
        lost: NodeId | None = None,
    ) -> set[NodeId]:
        """Return nodes that have not answered and whose answers may prove that the required nodes are connected.

        `index`   the topic
        `gone`    nodes that no path may use
        `hints`   whether paths may use hints, beside links that at least one end has named
        `asked`   nodes that will be asked anyway, or None
        `lost`    a node without which the others should be connected as well, or None

        With `asked`, the result is small: one part after the other is connected to those before it, each by the path
        that needs the fewest further questions. With None, the result has all nodes on one shortest path for each pair
        of required nodes in different parts.
        """
        part = self.parts(index) if lost is None else self.parts_without(index, lost)
        graph = self._possible_links(index, gone if lost is None else {*gone, lost}, hints=hints)
        apart = [node for node in sorted(required) if node in part]
        if asked is not None:
            return self._on_few_paths(apart, part, graph, asked)
        unasked = set[NodeId]()
        for start in apart:
            goals = [other for other in required if part.get(other, -1) != part[start]]
            unasked |= self._on_shortest_paths(start, goals, graph)
        return unasked

    def around_smallest_part(self, index: int, required: Collection[NodeId], seen: Collection[NodeId]) -> set[NodeId]:
        """Return up to `AROUND_MAX` nodes to ask around the part of a topic that has fewest nodes.

        The part has a required node, and its nodes name them as neighbors. They are not in `seen`. If there is none,
        the whole part is known, so the topic is split.
        """
        part, bit = self.parts(index), 1 << index
        around: dict[int, set[NodeId]] = {part[node]: set() for node in sorted(required) if node in part}
        sizes = dict.fromkeys(around, 0)
        for node, number in part.items():
            if number in around:
                sizes[number] += 1
                named = self.told[node].neighbours.items()
                around[number] |= {peer for peer, (_, wants) in named if wants & bit and peer not in seen}
        smallest = min(around, key=lambda number: (sizes[number] + len(around[number]), number))
        return set(sorted(around[smallest])[:AROUND_MAX])

    def _on_few_paths(
        self, apart: list[NodeId], part: Mapping[NodeId, int], graph: _Graph, asked: Collection[NodeId]
    ) -> set[NodeId]:
        """Return the nodes to ask on a tree of cheap paths that connects the parts of the nodes in `apart`."""
        joined, tree, unasked = {part[node] for node in apart[:1]}, apart[:1], set[NodeId]()
        while goals := {node for node in apart if part[node] not in joined}:
            path = _cheapest_path(tree, goals, graph, {*self.told, *asked, *unasked})
            if not path:
                break
            joined.add(part[path[-1]])
            tree += path
            unasked.update(node for node in path if node not in self.told)
        return unasked

    def _possible_links(self, index: int, gone: Collection[NodeId], *, hints: bool) -> _Graph:
        """Return the graph of possible links on a topic. Of each node's peers those with most such links come first."""
        bit = 1 << index
        graph: _Graph = {}

        def add(one: NodeId, other: NodeId) -> None:
            if one not in gone and other not in gone:
                graph.setdefault(one, {})[other] = None
                graph.setdefault(other, {})[one] = None

        for node, told in self.told.items():
            if not told.stays & bit:
                continue
            for peer, (_, wants) in told.neighbours.items():
                if wants & bit and (peer not in self.told or self.told[peer].stays & bit):
                    add(node, peer)
            if hints:
                steps = [node, *told.paths.get(index, ())]
                for one, other in pairwise(steps):
                    add(one, other)
        return {node: dict.fromkeys(sorted(near, key=lambda peer: -len(graph[peer]))) for node, near in graph.items()}

    def _on_shortest_paths(self, start: NodeId, goals: Iterable[NodeId], graph: _Graph) -> set[NodeId]:
        """Return the nodes that have not answered on shortest paths from `start`, one path for each goal."""
        before: dict[NodeId, NodeId | None] = {start: None}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for peer in graph.get(node, ()):
                if peer not in before:
                    before[peer] = node
                    queue.append(peer)
        unasked: set[NodeId] = set()
        for goal in goals:
            step = before.get(goal) if goal in before else None
            while step is not None:
                if step not in self.told:
                    unasked.add(step)
                step = before[step]
        return unasked

    def stays_on(self, node: NodeId, topics: int) -> int:
        """Return those of these topics that a node takes part in and is not leaving. 0 if it has not answered."""
        return self.told[node].stays & topics if node in self.told else 0


def masks(topics: tuple[str, ...]) -> dict[str, int]:
    """Return the index of each topic of a question."""
    return {topic: index for index, topic in enumerate(topics)}


def _cheapest_path(
    starts: Iterable[NodeId],
    goals: Collection[NodeId],
    graph: _Graph,
    free: Collection[NodeId],
) -> list[NodeId]:
    """Return the path from a start to a goal with the fewest nodes that are not `free`. Empty: there is none.

    This is a breadth-first search in which a step to a free node costs nothing.
    """
    before: dict[NodeId, NodeId | None] = {}
    queue: deque[tuple[NodeId, NodeId | None]] = deque((start, None) for start in starts)
    while queue:
        node, last = queue.popleft()
        if node in before:
            continue
        before[node] = last
        if node in goals:
            path = [node]
            while (step := before[path[-1]]) is not None:
                path.append(step)
            return path[::-1]
        for peer in graph.get(node, ()):
            if peer not in before:
                (queue.appendleft if peer in free else queue.append)((peer, node))
    return []
