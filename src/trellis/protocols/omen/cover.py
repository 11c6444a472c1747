"""Choosing backups: a set cover, lambda times over, balanced or not.  [SH Alg. 11-12; OM §4.2]

primal-dual            an uncovered topic at random, its subscriber of least weight  [SH Alg. 12]
primal-dual-carry      the same, lowered weights carried to the next cover  [A-SHD-5]
primal-dual-uncovered  an uncovered topic at random, its subscriber with most uncovered topics  [OM §4.2]
greedy                 the node with most uncovered topics  [OM §4.2]

The same routines as `trellis.plan` has in kernels, in plain Python over the few candidates that a node knows. A test
holds both against one slow reference. `weight(u)` is u's degree plus the number of nodes that count on it, as its
descriptor says (A-OMN-11). Ties go to the candidate that comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from trellis.protocols.effects import NodeId
from trellis.protocols.topics import places


class Candidate(msgspec.Struct, frozen=True, gc=False):
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
    if routine == "primal-dual-uncovered":
        return _by_topic(topics, useful, coverage, random)
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


def _by_topic(topics: int, candidates: list[Candidate], coverage: int, random: Random) -> list[NodeId]:
    """buildBackupsByPD: an uncovered topic at random, its subscriber "with the maximum uncovered topics".  [OM §4.2]"""
    left = {candidate.node: candidate.interest & topics for candidate in candidates}
    coverable = 0  # topics that a candidate has
    for interest in left.values():
        coverable |= interest
    chosen: list[NodeId] = []
    for _ in range(coverage):
        rest = coverable
        while rest:
            uncovered = list(places(rest))
            topic = 1 << uncovered[random.randrange(len(uncovered))]
            rivals = [node for node, interest in left.items() if interest & topic]
            if not rivals:  # A-SHD-6: nobody is left to cover it once more
                rest ^= topic
                continue
            best = max(rivals, key=lambda node: (left[node] & rest).bit_count())
            chosen.append(best)
            rest &= ~left.pop(best)
    return chosen


def _primal_dual(
    topics: int, candidates: list[Candidate], coverage: int, random: Random, *, carry: bool
) -> list[NodeId]:
    """An uncovered topic at random, its subscriber of least weight; all rivals get lighter by that.  [SH Alg. 12]"""
    covers = [list(places(candidate.interest & topics)) for candidate in candidates]
    wanting: dict[int, list[int]] = {place: [] for place in places(topics)}  # place of a topic -> candidates
    for number, covered in enumerate(covers):
        for place in covered:
            wanting[place].append(number)
    wanted = [place for place, rivals in wanting.items() if rivals]
    weight = [candidate.weight for candidate in candidates]
    is_chosen = [False] * len(candidates)
    chosen: list[NodeId] = []
    for _ in range(coverage):
        if not carry:
            weight = [0 if is_chosen[number] else one.weight for number, one in enumerate(candidates)]
        rest = wanted
        while rest:
            place = rest[random.randrange(len(rest))]
            positive = [number for number in wanting[place] if weight[number] > 0]  # who is chosen weighs 0
            if positive:
                taken = min(positive, key=weight.__getitem__)
                spared = weight[taken]
                for number in positive:
                    weight[number] -= spared
            else:  # A-SHD-4: a weight of 0 is a last resort, then drawn at random.
                rivals = [number for number in wanting[place] if not is_chosen[number]]
                if not rivals:  # A-SHD-6: nobody is left to cover it once more
                    if all(is_chosen[number] for other in rest for number in wanting[other]):
                        # Nor any other: drop all. The draws are those of dropping one by one, which takes n^2 steps.
                        for size in range(len(rest) - 1, 0, -1):
                            random.randrange(size)
                        break
                    rest = [other for other in rest if other != place]
                    continue
                taken = rivals[random.randrange(len(rivals))]
            is_chosen[taken] = True
            chosen.append(candidates[taken].node)
            gone = frozenset(covers[taken])
            rest = [other for other in rest if other not in gone]
    return chosen
