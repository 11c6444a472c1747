"""Records of neighbors, and the choices among them: the least needed neighbor, and the most similar one."""

from __future__ import annotations

from collections.abc import Iterable

from trellis.protocols.effects import NodeId
from trellis.protocols.spidercast.goals import Goal
from trellis.protocols.spidercast.messages import Stamp


class Neighbor:
    """The record of a neighbor.  [SC Fig. 1: id, degree, target, interest]"""

    __slots__ = ("degree", "interest", "refused_at", "stamp", "target")

    def __init__(self, degree: int, target: int, interest: int, stamp: Stamp) -> None:
        self.degree, self.target, self.interest, self.stamp = degree, target, interest, stamp
        # The task's `changes` when the neighbor last ignored a DISCONNECT. -1: it has not ignored one.
        self.refused_at = -1


def high_degree(record: Neighbor, strictly: bool) -> bool:
    """Return whether the neighbor's degree shows that it can do without a link.

    A-SPC-6: the paper's text says `target <= degree`. With `>` as in Fig. 3 (`strictly`) no link is dropped below
    L^max.
    """
    return record.degree > record.target if strictly else record.degree >= record.target


def fewest_missed(candidates: Iterable[tuple[NodeId, Neighbor]], goal: Goal, under: int) -> tuple[list[NodeId], int]:
    """Return the neighbors whose loss leaves fewest topics under-covered, and these topics.  [SC Fig. 3, l. 11-18]"""
    tied: list[NodeId] = []
    least, under_then = -1, 0
    for node, record in candidates:
        without = goal.under_without(under, record.interest)
        count = without.bit_count()
        if least < 0 or count < least:
            tied, least, under_then = [], count, without
        if count == least:
            tied.append(node)
    return tied, under_then


def most_alike(candidates: Iterable[tuple[NodeId, Neighbor]], interest: int) -> list[NodeId]:
    """Return the neighbors that share most topics with `interest`.  [SC Fig. 4, l. 8]"""
    tied: list[NodeId] = []
    most = 0
    for node, record in candidates:
        shared = (record.interest & interest).bit_count()
        if shared > most:
            tied, most = [], shared
        if shared == most:
            tied.append(node)
    return tied
