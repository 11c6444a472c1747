"""The choice of backups: lambda set covers of a node's topics.  [SH Alg. 11-12; OM §4.2]

`Views` calls `choose_backups` for each view. Until all topics are covered, each rule takes one more backup:

primal-dual            draw an uncovered topic, and take its subscriber of least weight  [SH Alg. 12]
primal-dual-carry      the same, but lowered weights are kept for the next cover  [A-SHD-5]
primal-dual-uncovered  draw an uncovered topic, and take its subscriber with most uncovered topics  [OM §4.2]
greedy                 take the node with most uncovered topics  [OM §4.2]

`trellis.plan` has the same rules as kernels. These are in plain Python, for the few candidates that a node knows. A
test compares both with one slow reference. The weight of a node is its degree plus the number of nodes that count on it
as a backup, as its descriptor says (A-OMN-11). Ties go to the candidate that comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from trellis.protocols.effects import NodeId
from trellis.protocols.topics import places


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A node that may become a backup."""

    node: NodeId
    interest: int  # A bitset of all its topics.
    weight: int


def choose_backups(
    routine: str, topics: int, candidates: Sequence[Candidate], coverage: int, random: Random
) -> list[NodeId]:
    """Return backups that cover each topic `coverage` times, or as often as there are candidates for it.

    Each backup has at least one of the topics (individual commitment, [SH Eq. 1]). No node is in two covers.
    """
    useful = [candidate for candidate in candidates if candidate.interest & topics]
    if routine == "greedy":
        return _greedy(topics, useful, coverage)
    if routine == "primal-dual-uncovered":
        return _by_topic(topics, useful, coverage, random)
    return _primal_dual(topics, useful, coverage, random, carry=routine == "primal-dual-carry")


def _greedy(topics: int, candidates: list[Candidate], coverage: int) -> list[NodeId]:
    """Take the candidate with most uncovered topics each time, without weights.  [OM §4.2]"""
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
    """Draw an uncovered topic, and take its subscriber "with the maximum uncovered topics".  [OM §4.2]

    This is the paper's buildBackupsByPD.
    """
    left = {candidate.node: candidate.interest & topics for candidate in candidates}
    coverable = 0  # Topics that a candidate has.
    for interest in left.values():
        coverable |= interest
    chosen: list[NodeId] = []
    for _ in range(coverage):
        rest = coverable
        while rest:
            uncovered = list(places(rest))
            topic = 1 << uncovered[random.randrange(len(uncovered))]
            rivals = [node for node, interest in left.items() if interest & topic]
            if not rivals:  # A-SHD-6: no candidate is left to cover the topic once more.
                rest ^= topic
                continue
            best = max(rivals, key=lambda node: (left[node] & rest).bit_count())
            chosen.append(best)
            rest &= ~left.pop(best)
    return chosen


def _primal_dual(
    topics: int, candidates: list[Candidate], coverage: int, random: Random, *, carry: bool
) -> list[NodeId]:
    """Draw an uncovered topic, and take its subscriber of least weight.  [SH Alg. 12]

    That weight is then subtracted from the weights of all its subscribers. `carry`: the lowered weights are kept for
    the next cover.
    """
    covers = [list(places(candidate.interest & topics)) for candidate in candidates]
    wanting: dict[int, list[int]] = {index: [] for index in places(topics)}  # bit index of a topic -> candidates
    for number, covered in enumerate(covers):
        for index in covered:
            wanting[index].append(number)
    wanted = [index for index, rivals in wanting.items() if rivals]
    weight = [candidate.weight for candidate in candidates]
    is_chosen = [False] * len(candidates)
    chosen: list[NodeId] = []
    for _ in range(coverage):
        if not carry:
            weight = [0 if is_chosen[number] else one.weight for number, one in enumerate(candidates)]
        rest = wanted
        while rest:
            index = rest[random.randrange(len(rest))]
            positive = [number for number in wanting[index] if weight[number] > 0]  # A chosen candidate has weight 0.
            if positive:
                taken = min(positive, key=weight.__getitem__)
                spared = weight[taken]
                for number in positive:
                    weight[number] -= spared
            else:  # A-SHD-4: only candidates of weight 0 are left, and one of them is drawn.
                rivals = [number for number in wanting[index] if not is_chosen[number]]
                if not rivals:  # A-SHD-6: no candidate is left to cover the topic once more.
                    if all(is_chosen[number] for other in rest for number in wanting[other]):
                        # No other topic has one either: drop all of them. The random draws are the same as if they were
                        # dropped one by one, which would take n^2 steps.
                        for size in range(len(rest) - 1, 0, -1):
                            random.randrange(size)
                        break
                    rest = [other for other in rest if other != index]
                    continue
                taken = rivals[random.randrange(len(rivals))]
            is_chosen[taken] = True
            chosen.append(candidates[taken].node)
            gone = frozenset(covers[taken])
            rest = [other for other in rest if other not in gone]
    return chosen
