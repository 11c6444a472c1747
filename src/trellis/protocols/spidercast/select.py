"""The choice of the node to ask next: all that differs between the two tasks, and between SpiderCast and baselines.

Each function gets the view, the under-covered topics, our interest, and the nodes that must not be asked.  [SC Fig. 5,
§3.9.1]

The figure prints that coverage is counted over `cands`. We count it over the neighbors, as in Fig. 3 (A-SPC-5). The
excluded nodes are the present neighbors and nodes that were asked not long ago (A-SPC-21).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from trellis.protocols.effects import NodeId
from trellis.protocols.membership import InterestView

Selection = Callable[[InterestView, int, int, Collection[NodeId]], NodeId | None]


def next_greedy_coverage_node(
    view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]
) -> NodeId | None:
    """Return the node that covers most under-covered topics, if it covers any (A-SPC-10).  [SC Fig. 5, l. 1-9]"""
    return view.best_cover(uncovered, exclude)


def next_greedy_node_literal(
    view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]
) -> NodeId | None:
    """Return the best node even if it covers nothing, by the letter of l. 8 (A-SPC-10, alternative)."""
    return view.similar(uncovered, exclude)


def next_random_coverage_node(
    view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]
) -> NodeId | None:
    """Return a random node that covers an under-covered topic.  [SC Fig. 5, l. 10-19]"""
    return view.random_cover(uncovered, exclude)


def next_similarity_node(
    view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]
) -> NodeId | None:
    """Return the node whose interest shares most topics with ours.  [SC §3.9.1]"""
    return view.similar(interest, exclude)


def next_random_node(view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]) -> NodeId | None:
    """Return a random node.  [SC §3.9.1]"""
    return view.random_node(exclude)
