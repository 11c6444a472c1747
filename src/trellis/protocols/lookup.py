"""Greedy lookups on the identifier ring: find the neighbor closest to a position, if it is closer than this node.

The distance is measured along the ring, in the shorter direction. If two nodes are at the same distance, the one with
the smaller identifier is closer (A-VIT-14, A-VIT-16). So a lookup comes closer with every hop and never returns to a
node. If the links along the ring are correct, it ends at the closest of all nodes: the rendezvous node of the position.
[VI §III-B]
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from operator import itemgetter

from trellis.protocols.effects import NodeId
from trellis.protocols.ring import RING, identifier, ring_distance


def closeness(node: int, position: int) -> tuple[int, int]:
    """Return a key by which nodes are compared: smaller is closer. No two nodes are equally close."""
    return ring_distance(node, position), node


def rendezvous(position: int, nodes: Iterable[NodeId]) -> NodeId:
    """Return the node closest to a position among all of `nodes`. Used by checks, and for small sets."""
    return min(nodes, key=lambda node: (*closeness(identifier(node), position), node))


class Compass:
    """Finds the neighbor closest to a position by one binary search.

    Owner and neighbors divide the ring: each is the closest one to the positions around it, up to the middle between it
    and the next node. These middles are computed when the neighbors change, so a lookup does not compare distances.
    """

    def __init__(self, owner: NodeId, neighbors: Iterable[NodeId] = ()) -> None:
        self.owner = owner
        self.set(neighbors)

    def set(self, neighbors: Iterable[NodeId]) -> None:
        """Use these neighbors from now on."""
        placed: list[tuple[int, NodeId | None]] = sorted([(identifier(node), node) for node in neighbors])
        insort(placed, (identifier(self.owner), None), key=itemgetter(0))
        # for each node, the last position to which it is the closest, and its name
        ends: list[tuple[int, NodeId | None]] = []
        for (position, node), (following, _) in zip(placed, [*placed[1:], placed[0]], strict=True):
            apart = (following - position) % RING or RING
            # The position right in the middle belongs to the smaller identifier (A-VIT-14).
            ends.append(((position + apart // 2 - (apart % 2 == 0 and following < position)) % RING, node))
        ends.sort(key=itemgetter(0))
        self._ends = [end for end, _ in ends]
        # behind the last one, the ring begins again with the first
        self._nodes = [*(node for _, node in ends), ends[0][1]]

    def next_hop(self, position: int) -> NodeId | None:
        """Return the neighbor closest to `position`, or None if the owner itself is closer than all of them."""
        return self._nodes[bisect_left(self._ends, position)]
