"""Choosing backups: a set cover, lambda times over, balanced or not.  [SH Alg. 11-12; OM §4.2]

The same routines as `trellis.plan` has in kernels, in plain Python over the few candidates that a node knows.
`weight(u)` is u's degree plus the number of nodes that count on it, as its descriptor says (A-OMN-11).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from trellis.protocols.effects import NodeId
from trellis.protocols.topics import places


class Candidate(NamedTuple):
    node: NodeId
    interest: int
    weight: int


def choose_backups(
    routine: str, topics: int, candidates: Sequence[Candidate], coverage: int, random: Random
) -> list[NodeId]:
    """Backups that cover each topic `coverage` times, or as often as there are candidates for it.

    Every backup covers something (individual commitment, [SH Eq. 1]); covers are disjoint.
    """
    useful = [candidate for candidate in candidates if candidate.interest & topics]
    if routine == "greedy":
        return _greedy(topics, useful, coverage)
    return _primal_dual(topics, useful, coverage, random, carry=routine == "primal-dual-carry")


def _greedy(topics: int, candidates: list[Candidate], coverage: int) -> list[NodeId]:
    """The candidate that covers most uncovered topics; no weights.  [OM §4.2]"""
    left = {candidate.node: candidate.interest for candidate in candidates}
    chosen: list[NodeId] = []
    for _ in range(coverage):
        rest = topics
        while rest and left:
            best = max(left, key=lambda node: (left[node] & rest).bit_count())
            if not left[best] & rest:
                break
            chosen.append(best)
            rest &= ~left.pop(best)
    return chosen


def _primal_dual(
    topics: int, candidates: list[Candidate], coverage: int, random: Random, *, carry: bool
) -> list[NodeId]:
    """An uncovered topic at random, its subscriber of least weight; all rivals get lighter by that.  [SH Alg. 12]"""
    wanting: dict[int, list[int]] = {1 << place: [] for place in places(topics)}  # bit of a topic -> candidates
    for number, candidate in enumerate(candidates):
        bits = candidate.interest & topics
        while bits:  # as `places`, which would take twice as long here
            lowest = bits & -bits
            wanting[lowest].append(number)
            bits ^= lowest
    wanted = [bit for bit, rivals in wanting.items() if rivals]
    first = [candidate.weight for candidate in candidates]
    weight = list(first)
    is_chosen = [False] * len(candidates)
    chosen: list[NodeId] = []
    for _ in range(coverage):
        if not carry:
            weight = list(first)
        rest = wanted
        while rest:
            bit = rest[random.randrange(len(rest))]
            rivals = [number for number in wanting[bit] if not is_chosen[number]]
            if not rivals:  # A-SHD-6: nobody is left to cover it once more
                rest = [other for other in rest if other != bit]
                continue
            # A-SHD-4: a weight of 0 is a last resort, then drawn at random.
            positive = [number for number in rivals if weight[number] > 0]
            if positive:
                taken = min(positive, key=weight.__getitem__)
                spared = weight[taken]
                for number in positive:
                    weight[number] -= spared
            else:
                taken = rivals[random.randrange(len(rivals))]
            is_chosen[taken] = True
            chosen.append(candidates[taken].node)
            interest = candidates[taken].interest
            rest = [other for other in rest if not interest & other]
    return chosen
