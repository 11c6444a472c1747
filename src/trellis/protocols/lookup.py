"""Greedy lookups on the identifier ring: the neighbour that is closest to a place, if it is closer than oneself.

"Closest" is ring distance in both directions, wrapped around; of two at the same distance the smaller identifier is
closer, everywhere (A-VIT-14, A-VIT-16). So a lookup comes closer with every hop, never goes in circles, and with true
ring links ends at the one node that is closest of all: the rendezvous node of the place.  [VI §III-B]
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from trellis.protocols.effects import NodeId
from trellis.protocols.ring import RING, identifier, ring_distance


def closeness(node: int, place: int) -> tuple[int, int]:
    """The smaller, the closer. No two nodes are equally close."""
    return ring_distance(node, place), node


def rendezvous(place: int, nodes: Iterable[NodeId]) -> NodeId:
    """The node with the identifier closest to a place, seen from above: for checks and small sets."""
    return min(nodes, key=lambda node: (*closeness(identifier(node), place), node))


class Compass:
    """Finds the neighbour closest to a place in the logarithm of their number."""

    def __init__(self, owner: NodeId, neighbors: Iterable[NodeId] = ()) -> None:
        self.owner, self.identifier = owner, identifier(owner)
        self.set(neighbors)

    def set(self, neighbors: Iterable[NodeId]) -> None:
        placed = sorted([(identifier(node), node) for node in neighbors])
        self._places = [place for place, _ in placed]
        self._nodes = [node for _, node in placed]

    def next_hop(self, place: int) -> NodeId | None:
        """The neighbour closest to `place`; None where the owner itself is closer than all of them."""
        places = self._places
        if not places:
            return None
        after = bisect_left(places, place) % len(places)  # the first at or after it, around the ring
        one, other = places[after], places[after - 1]  # and the last before it
        far_one, far_other = (one - place) % RING, (place - other) % RING
        # Where there are few, the way round may be the shorter one.
        far_one, far_other = min(far_one, RING - far_one), min(far_other, RING - far_other)
        if (far_other, other) < (far_one, one):
            after, one, far_one = after - 1, other, far_other
        away = (self.identifier - place) % RING
        if (min(away, RING - away), self.identifier) < (far_one, one):
            return None
        return self._nodes[after]
