"""What a joiner needs, and whom it may be linked to: told by answers alone.  [OM Alg. 5; A-OMN-4, A-OMN-21]"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.knowledge import Told
from trellis.protocols.topics import places

OFFERED_MAX = 64  # nodes that are asked for a joiner because an answer names them


def offered(
    told: Mapping[NodeId, Told], node: NodeId, asked: Collection[NodeId], key: Callable[[NodeId], int]
) -> list[NodeId]:
    """Return neighbors of those who answered, for topics of the joiner that none of them has: one for each topic.

    In the order of keys, which favors nobody.
    """
    if node not in told:
        return []
    named: dict[NodeId, int] = {}
    for other, answer in told.items():
        if other != node:
            for peer, (_, wants) in answer.neighbours.items():
                if peer not in asked and peer != node:
                    named[peer] = named.get(peer, 0) | wants
    missing = lacking(told, node)
    for other in told:
        if other != node:
            missing &= ~told[other].stays
    found: dict[NodeId, None] = {}
    for peer in sorted(named, key=lambda peer: (key(peer), peer)):
        if named[peer] & missing:
            found[peer] = None
            missing &= ~named[peer]
    return list(found)[:OFFERED_MAX]


def parts_to_join(told: Mapping[NodeId, Told], node: NodeId) -> dict[int, list[list[NodeId]]]:
    """The joiner needs one link on each topic that none of its neighbours has: whoever wants it is one part."""
    parts: dict[int, list[list[NodeId]]] = {}
    for place in places(lacking(told, node)):
        bit = 1 << place
        others = [other for other in told if other != node and told[other].stays & bit]
        # One that joins itself is in no part of the topic yet: a link to it alone would leave both apart.
        joined = [other for other in others if not told[other].joining] or others
        if joined:
            parts[bit] = [[node], joined]
    return parts


def lacking(told: Mapping[NodeId, Told], node: NodeId) -> int:
    """Topics of the joiner that none of its neighbours has, or only such as say that they leave them."""
    covered = 0
    for peer, (_, wants) in told[node].neighbours.items():
        covered |= wants & ~told[peer].leaving if peer in told else wants
    return told[node].stays & ~covered
