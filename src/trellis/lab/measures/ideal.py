"""Lookups over perfect tables: what gossip can come to at best.  [VI §III-A]

    expected        greedy routing on an even ring, by a recurrence: no chance, no gossip
    perfect tables  tables as Symphony draws them and Alg. 4 picks them when a node sees all others: chance, no gossip

With one long link the mean number of hops by log^2 N rises towards 4 / pi^2 = 0.405, from below. At a distance of D
nodes the link leads x D away with density 1 / (x ln N), and leaves |1 - x| D: the expected fall of ln D in a hop is the
integral of -ln |1 - x| / x from 0 to 2 over ln N, which is (pi^2 / 4) / ln N. So 4 / pi^2 ln^2 N hops lead from N to 1;
but the last ln N nodes or so are walked along the ring, in fewer hops, and ln ln N is much of ln N for a long time.
"""

from __future__ import annotations

from bisect import bisect_left
from math import log
from random import Random

import numpy as np

from trellis import ids
from trellis.lab.experiment import Parameters
from trellis.lab.inputs import Inputs
from trellis.lab.table import Found
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.lookup import Compass, rendezvous
from trellis.protocols.ring import RING, identifier
from trellis.protocols.small_world import LongLinks
from trellis.protocols.vitis.select import around, take_small_world

LOOKUPS = 20_000
Placed = list[tuple[int, str]]  # nodes with their identifiers, in the order of the ring


def lookups(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Mean hops of lookups between random places. `system`: expected, or perfect tables."""
    nodes, long_links = int(parameters["nodes"]), int(parameters["long_links"])
    friends = int(parameters.get("friends", 0))
    if system == "expected":
        hops, astray = expected_hops(nodes, long_links, friends), 0
    else:
        walked, astray = walks(drawn(nodes, long_links, friends, seed), seed)
        hops = float(np.mean(walked))
    return {"hops": hops, "hops k / log^2 N": hops * long_links / log(nodes) ** 2, "astray": float(astray)}


def expected_hops(nodes: int, long_links: int, friends: int = 0) -> float:
    """Return the mean hops of a lookup between random places of an even ring, for friends that are random nodes.

    Greedy routing meets nodes that are closer than all before, and their links are news: so the rest of the way depends
    on the distance alone. From the other side the links of others serve in place of one's own, with the same density.
    """
    ranks = np.arange(1, nodes)
    mass = np.log(np.minimum(ranks + 0.5, nodes)) - np.log(np.maximum(ranks - 0.5, 1.0))  # of n^u, to the nearest
    chance = np.concatenate([[0.0, 0.0], mass[1:], np.zeros(nodes)]) / log(nodes)
    chance[2] += mass[0] / log(nodes)  # the successor is taken already
    half = nodes // 2
    no_friend = (1 - np.minimum(1.0, (2 * np.arange(half + 1) + 1) / nodes)) ** (2 * friends)  # used both ways
    hops = np.zeros(half + 1)
    for far in range(1, half + 1):
        left = np.arange(far - 1)  # nodes that a shortcut may leave; along the ring it is one less than before
        lands = chance[far - left] + np.where(left > 0, chance[far + left], 0.0)
        reached = 1 - (1 - np.minimum(1.0, np.cumsum(lands))) ** long_links * no_friend[: far - 1]
        best = np.diff(reached, prepend=0.0)
        hops[far] = 1 + best @ hops[: far - 1] + (1 - best.sum()) * hops[far - 1]
    return float(2 * hops.sum() / nodes)


def drawn(nodes: int, long_links: int, friends: int, seed: int) -> dict[str, Compass]:
    """Return perfect tables, the friends random nodes. Links are used both ways (A-VIT-8)."""
    random = Random(ids.stream(seed, "figure", "drawn", nodes, long_links, friends))
    ring = placed([f"n{number}" for number in range(nodes)])
    names = [name for _, name in ring]
    links: dict[str, set[str]] = {name: set() for name in names}
    for place, (own, name) in enumerate(ring):
        chosen = {*small_world(ring, place, LongLinks(own, long_links, random)), *random.sample(names, friends)}
        for other in chosen - {name}:
            links[name].add(other)
            links[other].add(name)
    return {name: Compass(name, others) for name, others in links.items()}


def placed(names: list[str]) -> Placed:
    return sorted((identifier(name), name) for name in names)


def small_world(ring: Placed, place: int, long_links: LongLinks) -> list[str]:
    """Return successor, predecessor and long links of the node at a place, chosen by Alg. 4 among all nodes."""
    own, count = ring[place][0], len(ring)
    beside = ring[(place + 1) % count], ring[place - 1]
    near = {name: (0, Descriptor(name)) for _, name in beside}
    distances = long_links.distances(beside[0][0], beside[1][0])
    for distance in distances:  # nobody farther away can be the closest to it, when the others are taken
        at, around_it = bisect_left(ring, ((own + distance) % RING, "")), len(distances) + 3
        names = [ring[one % count][1] for one in range(at - around_it, at + around_it)]
        near.update((name, (0, Descriptor(name))) for name in names)
    near.pop(ring[place][1], None)
    return take_small_world(around(own, near), long_links)


def walks(compasses: dict[str, Compass], seed: int) -> tuple[list[int], int]:
    """Return hops of lookups between random places, and how many end elsewhere than at the rendezvous node."""
    names = list(compasses)
    random, ring = Random(ids.stream(seed, "figure", "walks")), placed(names)
    hops, astray = [], 0
    for _ in range(LOOKUPS):
        name, place, count = random.choice(names), random.randrange(RING), 0
        while (hop := compasses[name].next_hop(place)) is not None:
            name, count = hop, count + 1
        hops.append(count)
        at = bisect_left(ring, (place, ""))
        astray += name != rendezvous(place, [ring[at % len(ring)][1], ring[at - 1][1]])
    return hops, astray
