"""Records of neighbours, and the choices among them: whom we miss least, and who is most like a stranger."""

from __future__ import annotations

from collections.abc import Iterable

from trellis.protocols.effects import NodeId
from trellis.protocols.spidercast.goals import Goal
from trellis.protocols.spidercast.messages import Stamp


class Neighbor:
    """The record of a neighbour.  [SC Fig. 1: id, degree, target, interest]"""

    __slots__ = ("degree", "interest", "refused_at", "stamp", "target")

    def __init__(self, degree: int, target: int, interest: int, stamp: Stamp) -> None:
        self.degree, self.target, self.interest, self.stamp = degree, target, interest, stamp
        self.refused_at = -1  # the task's `changes` when the neighbour last ignored a DISCONNECT


def high_degree(record: Neighbor, strictly: bool) -> bool:
    """Does the neighbour show that it can do without a link?

    A-SPC-6: the prose's `target <= degree`; with Fig. 3's `>` (strictly) no link is ever dropped below L^max.
    """
    return record.degree > record.target if strictly else record.degree >= record.target


def fewest_missed(candidates: Iterable[tuple[NodeId, Neighbor]], goal: Goal, under: int) -> tuple[list[NodeId], int]:
    """Those whose loss leaves fewest topics under-covered, and what is under-covered then.  [SC Fig. 3, l. 11-18]"""
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
    """Those that share most topics with `interest`.  [SC Fig. 4, l. 8]"""
    tied: list[NodeId] = []
    most = 0
    for node, record in candidates:
        shared = (record.interest & interest).bit_count()
        if shared > most:
            tied, most = [], shared
        if shared == most:
            tied.append(node)
    return tied
