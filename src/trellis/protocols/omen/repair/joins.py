"""The links that a joiner needs, by the answers of a repair of kind "join".  [OM Alg. 5; A-OMN-4, A-OMN-21]

A joiner needs a link on each of its topics that none of its neighbors has. The subscribers of a topic are already
connected with each other, so any one of them will do. `told` has the answers by node, the joiner's own included.

With `connectivity` 2 a joiner needs two neighbors on each topic of at least two others (`wanted` is 2 below). Then a
topic that was one block (`blocks.py`) is one block again: no single loss separates the joiner from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

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
    wanted: int = 1,
) -> list[NodeId]:
    """Return the nodes to which Alg. 1 would link a joiner, on the topics that answers do not cover so far.

    They are asked next. `offers` is what gossip says about backups that were not asked: their topics as a bitset, and
    their degree (an empty tuple if it is unknown). `wanted` is the number of neighbors that cover a topic.
    """
    open_topics = uncovered(told, node, wanted)
    parts: dict[int, list[list[NodeId]]] = {}
    for index in places(open_topics):
        able = [one for one, (topics, _) in offers.items() if topics >> index & 1]
        if able:
            parts[1 << index] = [[node], able]
    degrees = {one: sum(degree) for one, (_, degree) in offers.items()} | {node: told[node].degree}
    chosen = low_edges(parts, degrees, {one: key(one) for one in degrees}, rho=rho, centre=node)
    return [end for pair in chosen for end in pair if end != node]


def parts_to_join(
    told: Mapping[NodeId, Told], node: NodeId, chosen: Collection[NodeId] = (), wanted: int = 1
) -> dict[int, list[list[NodeId]]]:
    """Return for each topic that the joiner needs the two parts to connect: the joiner, and the other subscribers.

    `chosen`    nodes to which the joiner will be linked in any case
    `wanted`    the number of neighbors that cover a topic. Neighbors are left out of the other subscribers
    """
    parts: dict[int, list[list[NodeId]]] = {}
    covering = _covering(told, node, chosen)
    for index in places(told[node].stays):
        bit, near = 1 << index, covering.get(index, set())
        if len(near) >= wanted:
            continue
        others = [other for other in told if other != node and other not in near and told[other].stays & bit]
        # A node that is joining itself is not connected to the others yet. A link to it alone would not help.
        joined = [other for other in others if not told[other].joining] or others
        if joined:
            parts[bit] = [[node], joined]
    return parts


def uncovered(told: Mapping[NodeId, Told], node: NodeId, wanted: int = 1) -> int:
    """Return the topics that the joiner needs and that too few answers cover. Nodes that join themselves cover none."""
    covering, missing = _covering(told, node), told[node].stays
    joined = [other for other in told if other != node and not told[other].joining]
    for index in places(missing):
        near = covering.get(index, set())
        if len(near.union(other for other in joined if told[other].stays >> index & 1)) >= wanted:
            missing ^= 1 << index
    return missing


def _covering(told: Mapping[NodeId, Told], node: NodeId, chosen: Collection[NodeId] = ()) -> dict[int, set[NodeId]]:
    """Return the neighbors of the joiner on each of its topics, by index, with those in `chosen`.

    A neighbor that is leaving a topic does not count.
    """
    near = {
        peer: wants & ~told[peer].leaving if peer in told else wants
        for peer, (_, wants) in told[node].neighbours.items()
    }
    near |= {peer: told[peer].stays for peer in chosen}
    covering: dict[int, set[NodeId]] = {}
    for peer, topics in near.items():
        for index in places(topics & told[node].stays):
            covering.setdefault(index, set()).add(peer)
    return covering
