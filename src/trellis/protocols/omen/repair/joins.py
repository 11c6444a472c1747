"""The links that a joiner needs, by the answers of a repair of kind "join".  [OM Alg. 5; A-OMN-4, A-OMN-21]

A joiner needs a link on each of its topics that none of its neighbors has. The subscribers of a topic are already
connected with each other, so any one of them will do. `told` has the answers by node, the joiner's own included.
"""

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
    """Return the nodes to which Alg. 1 would link a joiner, on the topics that no answer covers so far.

    They are asked next. `offers` is what gossip says about backups that were not asked: their topics as a bitset, and
    their degree (an empty tuple if it is unknown).
    """
    open_topics = uncovered(told, node)
    parts: dict[int, list[list[NodeId]]] = {}
    for index in places(open_topics):
        able = [one for one, (topics, _) in offers.items() if topics >> index & 1]
        if able:
            parts[1 << index] = [[node], able]
    degrees = {one: sum(degree) for one, (_, degree) in offers.items()} | {node: told[node].degree}
    chosen = low_edges(parts, degrees, {one: key(one) for one in degrees}, rho=rho, centre=node)
    return [end for pair in chosen for end in pair if end != node]


def parts_to_join(told: Mapping[NodeId, Told], node: NodeId) -> dict[int, list[list[NodeId]]]:
    """Return for each topic that the joiner needs the two parts to connect: the joiner, and the other subscribers."""
    parts: dict[int, list[list[NodeId]]] = {}
    for index in places(_lacking(told, node)):
        bit = 1 << index
        others = [other for other in told if other != node and told[other].stays & bit]
        # A node that is joining itself is not connected to the others yet. A link to it alone would not help.
        joined = [other for other in others if not told[other].joining] or others
        if joined:
            parts[bit] = [[node], joined]
    return parts


def uncovered(told: Mapping[NodeId, Told], node: NodeId) -> int:
    """Return the topics that the joiner needs and that no answer covers. Nodes that join themselves cover none."""
    missing = _lacking(told, node)
    for other, answer in told.items():
        if other != node and not answer.joining:
            missing &= ~answer.stays
    return missing


def _lacking(told: Mapping[NodeId, Told], node: NodeId) -> int:
    """Return the topics of the joiner that none of its neighbors has. One that is leaving a topic does not count."""
    covered = 0
    for peer, (_, wants) in told[node].neighbours.items():
        covered |= wants & ~told[peer].leaving if peer in told else wants
    return told[node].stays & ~covered
