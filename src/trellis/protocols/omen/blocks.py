"""Blocks of one topic's graph, and links that bring nodes into one block: for topics that survive any one crash.

A *block* of a graph is a largest set of nodes that stay connected after the loss of any one of them, or the two ends of
a link that lies on no cycle. Two blocks share at most one node. Such a node cuts the graph: without it the blocks are
not connected. A connected graph of three or more nodes survives the loss of any one node if it is one block.

Why a repair needs blocks of its required nodes only: let every topic be one block, and let some nodes depart. Each
block at the edge of what is left then has a living neighbor of a departed node, besides the node by which it hangs on
the rest. Otherwise the loss of that one node would have split the topic before. So if new links bring all living
neighbors of the departed nodes into one block, no block is left beside it. Links that nobody has told of can only merge
further blocks (docs/omen.md, "Topics that survive any one crash").

`repair/block_links.py` uses this for repairs, and `Requests` before it drops a link.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.shadow import Pair, next_edge

Graph = Mapping[NodeId, Collection[NodeId]]  # node -> its neighbors; each link at both ends


class Wanted(NamedTuple):
    """What one topic needs."""

    graph: dict[NodeId, set[NodeId]]  # Links that are proven or chosen already. `joining_edges` adds its own.
    required: frozenset[NodeId]  # Nodes that must be in one block. They must be connected.
    ends: frozenset[NodeId]  # Nodes of the graph that may be ends of new links, with the required nodes.


def blocks_of(graph: Graph) -> list[frozenset[NodeId]]:
    """Return the blocks of a graph. A node without links is in none.

    This is the algorithm of Hopcroft and Tarjan without recursion. `order` has the order in which nodes were found, and
    `low` the earliest node that the part below a node is linked to. If that is not before its parent, the part below is
    a block that hangs on its parent.
    """
    order: dict[NodeId, int] = {}
    low: dict[NodeId, int] = {}
    blocks: list[frozenset[NodeId]] = []
    for root in graph:
        if root in order:
            continue
        order[root] = low[root] = len(order)
        waiting = [root]  # Nodes of blocks that are not complete yet.
        path: list[tuple[NodeId, NodeId | None, list[NodeId]]] = [(root, None, list(graph[root]))]
        while path:
            node, parent, left = path[-1]
            if left:
                peer = left.pop()
                if peer not in order:
                    order[peer] = low[peer] = len(order)
                    waiting.append(peer)
                    path.append((peer, node, list(graph[peer])))
                elif peer != parent:
                    low[node] = min(low[node], order[peer])
                continue
            path.pop()
            if parent is None:
                continue
            low[parent] = min(low[parent], low[node])
            if low[node] >= order[parent]:
                first = waiting.index(node)
                blocks.append(frozenset([*waiting[first:], parent]))
                del waiting[first:]
    return blocks


class Blocks:
    """The blocks of one graph, and those among them that are between required nodes."""

    def __init__(self, graph: Graph, required: Collection[NodeId]) -> None:
        self._blocks = blocks_of(graph)
        self._of: dict[NodeId, list[int]] = {}  # node -> its blocks
        for number, block in enumerate(self._blocks):
            for node in block:
                self._of.setdefault(node, []).append(number)
        self.between = self._between(required)  # Blocks on the paths between required nodes.

    def cuts(self) -> list[NodeId]:
        """Return the nodes whose loss would disconnect required nodes that are left: those between two blocks."""
        counts: dict[NodeId, int] = {}
        for number in self.between:
            for node in self._blocks[number]:
                counts[node] = counts.get(node, 0) + 1
        return sorted(node for node, count in counts.items() if count > 1)

    def passed(self, start: NodeId) -> dict[NodeId, int]:
        """Return how many blocks of `between` the paths from `start` to each connected node pass through.

        The blocks of a connected graph form a tree, so all paths between two nodes pass through the same blocks.
        """
        passed, seen, todo = {start: 0}, set[int](), [start]
        while todo:
            node = todo.pop()
            for number in self._of.get(node, ()):
                if number in seen:
                    continue
                seen.add(number)
                count = passed[node] + (number in self.between)
                for peer in self._blocks[number]:
                    if peer not in passed:
                        passed[peer] = count
                        todo.append(peer)
        return passed

    def _between(self, required: Collection[NodeId]) -> set[int]:
        """Return the blocks on the paths from one required node to all others."""
        first = min(required, default=None)
        if first is None:
            return set()
        entered: dict[int, NodeId] = {}  # block -> its node that is nearest to the first required node
        by: dict[NodeId, int] = {}  # node -> the block by which it was reached
        seen, todo = {first}, [first]
        while todo:
            node = todo.pop()
            for number in self._of.get(node, ()):
                if number in entered:
                    continue
                entered[number] = node
                fresh = self._blocks[number] - seen
                seen |= fresh
                by.update(dict.fromkeys(fresh, number))
                todo += fresh
        between = set[int]()
        for end in required:
            while end in by and by[end] not in between:
                between.add(by[end])
                end = entered[by[end]]
        return between


def in_one_block(graph: Graph, nodes: Collection[NodeId]) -> bool:
    """Return whether a block has all of these nodes, of which there are at least two."""
    return any(block.issuperset(nodes) for block in blocks_of(graph))


def joining_edges(
    topics: Mapping[int, Wanted],
    degrees: Mapping[NodeId, int],
    keys: Mapping[NodeId, int],
    *,
    linked: Iterable[Pair] = (),
    rho: float = 3.0,
) -> list[Pair]:
    """Return new links, each as (lower key, higher key), that bring the required nodes of each topic into one block.

    `topics`    what each topic needs, by the bit of the topic; the new links are added to its graph
    `degrees`   the present degree of each node, with links that are chosen already
    `keys`      break ties
    `linked`    pairs that have a link already, as (lower key, higher key)
    `rho`       see `OMenConfig.rho`

    The rule is LowODA's, as in `low_edges`. The contribution of a pair is the number of blocks between required nodes
    that a link would merge, less one, summed over all topics. It always ends: two required nodes that are in no common
    block are not linked.
    """
    ends = {node for one in topics.values() for node in (*one.ends, *one.required)}
    nodes = sorted(ends, key=lambda node: (keys[node], node))
    index_of = {node: number for number, node in enumerate(nodes)}
    members = {bit: [node for node in nodes if node in one.ends or node in one.required] for bit, one in topics.items()}
    pairs: list[tuple[int, int]] = []
    number_of = [[-1] * len(nodes) for _ in nodes]
    have = set(linked)
    for i, one in enumerate(nodes):
        for j in range(i + 1, len(nodes)):
            if (one, nodes[j]) not in have:
                number_of[i][j] = number_of[j][i] = len(pairs)
                pairs.append((i, j))
    gains: dict[int, dict[int, int]] = {bit: {} for bit in topics}  # For each topic: pair -> its contribution there.
    counts = [0] * len(pairs)
    degree = [degrees[node] for node in nodes]
    chosen: list[Pair] = []

    def count_again(bit: int) -> None:
        for number, gain in gains[bit].items():
            counts[number] -= gain
        gains[bit] = _gains(topics[bit], members[bit], index_of, number_of)
        for number, gain in gains[bit].items():
            counts[number] += gain

    for bit in topics:
        count_again(bit)
    while (number := next_edge(counts, pairs, degree, rho, number_of)) is not None:
        i, j = pairs[number]
        one, other = nodes[i], nodes[j]
        chosen.append((one, other))
        degree[i] += 1
        degree[j] += 1
        for bit, wanted in topics.items():
            if one in wanted.graph and other in wanted.graph:
                wanted.graph[one].add(other)
                wanted.graph[other].add(one)
                count_again(bit)
    return chosen


def _gains(
    wanted: Wanted, members: list[NodeId], index_of: Mapping[NodeId, int], number_of: list[list[int]]
) -> dict[int, int]:
    """Return the contribution of each pair of a topic's members, where it is not 0."""
    blocks = Blocks(wanted.graph, wanted.required)
    if len(blocks.between) < 2:
        return {}
    gains: dict[int, int] = {}
    for index, one in enumerate(members):
        passed, row = blocks.passed(one), number_of[index_of[one]]
        for other in members[index + 1 :]:
            number = row[index_of[other]]
            if number >= 0 and passed.get(other, 0) > 1:
                gains[number] = passed[other] - 1
    return gains
