"""Greedy lookups on the identifier ring: the neighbour that is closest to a place, if it is closer than oneself.

"Closest" is ring distance in both directions, wrapped around; of two at the same distance the smaller identifier is
closer, everywhere (A-VIT-14, A-VIT-16). So a lookup comes closer with every hop, never goes in circles, and with true
ring links ends at the one node that is closest of all: the rendezvous node of the place.  [VI §III-B]
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from operator import itemgetter

from trellis.protocols.effects import NodeId
from trellis.protocols.ring import RING, identifier, ring_distance


def closeness(node: int, place: int) -> tuple[int, int]:
    """The smaller, the closer. No two nodes are equally close."""
    return ring_distance(node, place), node


def rendezvous(place: int, nodes: Iterable[NodeId]) -> NodeId:
    """The node with the identifier closest to a place, seen from above: for checks and small sets."""
    return min(nodes, key=lambda node: (*closeness(identifier(node), place), node))


class Compass:
    """Finds the neighbour closest to a place by one binary search.

    Owner and neighbours stand around the ring; each is the closest to the places around it, up to the middle between
    it and the next. These middles are computed when the neighbours change, so that a lookup need not compare distances.
    """

    def __init__(self, owner: NodeId, neighbors: Iterable[NodeId] = ()) -> None:
        self.owner = owner
        self.set(neighbors)

    def set(self, neighbors: Iterable[NodeId]) -> None:
        placed: list[tuple[int, NodeId | None]] = sorted([(identifier(node), node) for node in neighbors])
        insort(placed, (identifier(self.owner), None), key=itemgetter(0))
        ends: list[tuple[int, NodeId | None]] = []  # the last place that each is the closest to, and its name
        for (one, node), (other, _) in zip(placed, [*placed[1:], placed[0]], strict=True):
            apart = (other - one) % RING or RING
            # The place right in the middle belongs to the smaller identifier (A-VIT-14).
            ends.append(((one + apart // 2 - (apart % 2 == 0 and other < one)) % RING, node))
        ends.sort(key=itemgetter(0))
        self._ends = [end for end, _ in ends]
        self._nodes = [*(node for _, node in ends), ends[0][1]]  # past the last end the first begins again

    def next_hop(self, place: int) -> NodeId | None:
        """The neighbour closest to `place`; None where the owner itself is closer than all of them."""
        return self._nodes[bisect_left(self._ends, place)]
