"""What a repair does with `connectivity` 2: it proves that required nodes are in one block, or links them so.

[docs/omen.md, "Topics that survive any one crash"] `Repair` calls these functions with its answers. `required` has the
required nodes of each topic by the index of the topic. `blocks.py` says what a block is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.blocks import Blocks, Wanted, in_one_block, joining_edges
from trellis.protocols.omen.knowledge import Answers
from trellis.protocols.omen.shadow import Pair

Required = Mapping[int, set[NodeId]]


def worth_asking_for_blocks(
    answers: Answers,
    index: int,
    required: set[NodeId],
    gone: Collection[NodeId],
    *,
    hints: bool,
    asked: Collection[NodeId] | None,
) -> set[NodeId]:
    """Return nodes that have not answered and whose answers may prove that required nodes are in one block.

    For each node that seems to cut the topic, they are on paths around it. The parameters are those of
    `Answers.worth_asking`.
    """
    worth = set[NodeId]()
    for lost in Blocks(answers.graph(index), required).cuts():
        known = None if asked is None else {*asked, *worth}
        worth |= answers.worth_asking(index, required - {lost}, gone, hints=hints, asked=known, lost=lost)
    return worth


def lacking_blocks(answers: Answers, required: Required) -> int:
    """Return the topics, as a bitset, whose required nodes are not proven to be in one block."""
    lacking = 0
    for index, nodes in required.items():
        if len(nodes) > 1 and not in_one_block(answers.graph(index), nodes):
            lacking |= 1 << index
    return lacking


def links_for_blocks(
    answers: Answers,
    required: Required,
    shadow: Collection[NodeId],
    chosen: Collection[Pair],
    *,
    linked: Iterable[Pair],
    key: Callable[[NodeId], int],
    rho: float,
) -> list[Pair]:
    """Return the links that are needed besides `chosen`, so that the required nodes of each topic are in one block.

    `shadow`    the nodes that may be ends of links, required nodes included, as in Alg. 1
    `chosen`    the links by which Alg. 1 connects the required nodes
    `linked`    pairs of the shadow set that have a link already
    `key`       breaks ties
    """
    topics: dict[int, Wanted] = {}
    for index, nodes in required.items():
        if len(nodes) > 1:
            graph = answers.graph(index)
            topics[1 << index] = Wanted(graph, frozenset(nodes), frozenset(graph.keys() & set(shadow)))
            for one, other in chosen:
                if one in graph and other in graph:
                    graph[one].add(other)
                    graph[other].add(one)
    degrees = {node: answers.told[node].degree for node in shadow}
    for pair in chosen:
        for node in pair:
            degrees[node] += 1
    return joining_edges(topics, degrees, {node: key(node) for node in shadow}, linked=[*linked, *chosen], rho=rho)
