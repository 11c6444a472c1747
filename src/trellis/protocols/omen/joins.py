"""What a joiner needs, and whom it may be linked to: told by answers alone.  [OM Alg. 5; A-OMN-4, A-OMN-21]"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.knowledge import Told
from trellis.protocols.omen.shadow import LowEdges
from trellis.protocols.topics import places


def chosen_partners(
    told: Mapping[NodeId, Told],
    node: NodeId,
    offers: Mapping[NodeId, tuple[int, tuple[int, ...]]],
    low_edges: LowEdges,
    key: Callable[[NodeId], int],
    rho: float,
) -> list[NodeId]:
    """Return the ends of links that Alg. 1 chooses for a joiner, on the topics that no answer covers so far.

    `offers` is what gossip says of backups that were not asked: their topics, and their degree where it is known.
    """
    open_topics = uncovered(told, node)
    parts: dict[int, list[list[NodeId]]] = {}
    for place in places(open_topics):
        able = [one for one, (topics, _) in offers.items() if topics >> place & 1]
        if able:
            parts[1 << place] = [[node], able]
    degrees = {one: sum(degree) for one, (_, degree) in offers.items()} | {node: told[node].degree}
    chosen = low_edges(parts, degrees, {one: key(one) for one in degrees}, rho=rho, centre=node)
    return [end for pair in chosen for end in pair if end != node]


def parts_to_join(told: Mapping[NodeId, Told], node: NodeId) -> dict[int, list[list[NodeId]]]:
    """The joiner needs one link on each topic that none of its neighbours has: whoever wants it is one part."""
    parts: dict[int, list[list[NodeId]]] = {}
    for place in places(_lacking(told, node)):
        bit = 1 << place
        others = [other for other in told if other != node and told[other].stays & bit]
        # One that joins itself is in no part of the topic yet: a link to it alone would leave both apart.
        joined = [other for other in others if not told[other].joining] or others
        if joined:
            parts[bit] = [[node], joined]
    return parts


def uncovered(told: Mapping[NodeId, Told], node: NodeId) -> int:
    """Topics of the joiner for which nobody has answered that has joined itself."""
    missing = _lacking(told, node)
    for other, answer in told.items():
        if other != node and not answer.joining:
            missing &= ~answer.stays
    return missing


def _lacking(told: Mapping[NodeId, Told], node: NodeId) -> int:
    """Topics of the joiner that none of its neighbours has, or only such as say that they leave them."""
    covered = 0
    for peer, (_, wants) in told[node].neighbours.items():
        covered |= wants & ~told[peer].leaving if peer in told else wants
    return told[node].stays & ~covered
