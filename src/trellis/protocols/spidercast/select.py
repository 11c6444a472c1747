"""Whom to ask next: the only difference between the two tasks, and between SpiderCast and its baselines.

Each routine is given the view, the under-covered topics, our interest, and whom not to ask.  [SC Fig. 5, §3.9.1]
The figure prints that cover is counted over `cands`; it is counted over the neighbours, as in Fig. 3 (A-SPC-5).
Present neighbours and nodes that were asked just now are excluded (A-SPC-21).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from trellis.protocols.effects import NodeId
from trellis.protocols.membership import InterestView

Selection = Callable[[InterestView, int, int, Collection[NodeId]], NodeId | None]


def next_greedy_coverage_node(
    view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]
) -> NodeId | None:
    """The node that covers most of what is under-covered; none that covers nothing (A-SPC-10).  [SC Fig. 5, l. 1-9]"""
    return view.best_cover(uncovered, exclude)


def next_greedy_node_literal(
    view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]
) -> NodeId | None:
    """The letter of l. 8: the best node even where the best covers nothing (A-SPC-10, alternative)."""
    return view.similar(uncovered, exclude)


def next_random_coverage_node(
    view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]
) -> NodeId | None:
    """Any node that covers something that is under-covered.  [SC Fig. 5, l. 10-19]"""
    return view.random_cover(uncovered, exclude)


def next_similarity_node(
    view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]
) -> NodeId | None:
    """The node whose interest has most in common with ours.  [SC §3.9.1]"""
    return view.similar(interest, exclude)


def next_random_node(view: InterestView, uncovered: int, interest: int, exclude: Collection[NodeId]) -> NodeId | None:
    """Any node.  [SC §3.9.1]"""
    return view.random_node(exclude)
