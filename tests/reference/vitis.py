"""Vitis word for word, for tests: definitions over sets and full scans, nothing kept from one call to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log

from trellis.protocols.ring import RING, identifier


def utility(one: set[str], other: set[str], rate: Mapping[str, float] | None = None) -> float:
    """VI Eq. 1; 0 where nothing is wanted (A-VIT-6)."""
    weigh = (lambda topics: float(len(topics))) if rate is None else (lambda topics: sum(rate[t] for t in topics))
    return weigh(one & other) / weigh(one | other) if weigh(one | other) else 0.0


def ring_distance(one: int, other: int) -> int:
    return min((one - other) % RING, (other - one) % RING)


def closest(place: int, nodes: Iterable[str]) -> str:
    return min(nodes, key=lambda node: (ring_distance(identifier(node), place), identifier(node)))


def next_hop(owner: str, neighbors: Iterable[str], place: int) -> str | None:
    """The closest of us all, unless that is the owner."""
    found = closest(place, [owner, *neighbors])
    return None if found == owner else found


def small_world(owner: str, candidates: Iterable[str], distances: list[int]) -> list[str]:
    """VI Alg. 4, l. 2-10: successor, predecessor, and the nearest to each distance; each is taken out of the rest."""
    rest = set(candidates)
    taken = []

    def away(node: str) -> int:
        return (identifier(node) - identifier(owner)) % RING

    def take(key) -> None:
        if rest:
            best = min(rest, key=key)
            rest.discard(best)
            taken.append(best)

    take(away)
    take(lambda node: -away(node))
    for distance in distances:
        take(lambda node, distance=distance: ring_distance(away(node), distance))
    return taken


Proposal = tuple[str, str, int]  # gateway, parent, hops


def elect(
    me: str, topic: str, proposals: Mapping[str, Proposal], hops_max: int, take_back: bool
) -> tuple[str, int, set[str]]:
    """VI Alg. 5, l. 3-18 for one topic: the gateway, its distance, and the parents that would do.

    `proposals` are those of the neighbours that want the topic (A-VIT-15).
    """
    place = identifier(topic)

    def distance(node: str) -> tuple[int, int]:
        return ring_distance(identifier(node), place), identifier(node)

    admitted = []
    for node, (gateway, parent, hops) in proposals.items():
        if not (node == parent or parent not in proposals):  # l. 7
            continue
        if parent == me and not take_back:  # A-VIT-11
            continue
        if hops + 1 <= hops_max and distance(gateway) < distance(me):
            admitted.append((gateway, hops + 1, node))
    if not admitted:
        return me, 0, {me}
    best = min(admitted, key=lambda one: (distance(one[0]), one[1]))
    return best[0], best[1], {node for gateway, hops, node in admitted if (gateway, hops) == best[:2]}


def expected_hops(nodes: int) -> float:
    """Of a lookup between random places of an even ring with one long link a node, drawn as n^u nodes ahead.

    Each hop goes along the ring, or over the link if that leaves less of the way. Links of nodes on the way are looked
    at for the first time, so what is left to go depends on the distance alone.
    """

    def chance(ahead: int) -> float:
        """That the link leads to the node so many ahead; the next one is the successor, so no long link."""
        least, most = (1.0 if ahead == 2 else ahead - 0.5), min(nodes, ahead + 0.5)
        return (log(most) - log(least)) / log(nodes) if 2 <= ahead < nodes else 0.0

    hops = [0.0, 1.0]
    for far in range(2, nodes // 2 + 1):
        rest = 1.0  # the chance that the link is of no use
        mean = 1.0
        for left in range(far - 1):
            lands = chance(far - left) + (chance(far + left) if left else 0.0)
            mean, rest = mean + lands * hops[left], rest - lands
        hops.append(mean + rest * hops[far - 1])
    return 2 * sum(hops) / nodes
