"""Lookups over the ring, long links and friends, beside log^2 N: as expected, over drawn tables, and by gossip.

    expected_hops   what greedy routing takes on an even ring, by a recurrence: no chance, no gossip
    drawn           tables as Symphony draws them and Alg. 4 picks them, seen from above: chance, no gossip
    gossiped        tables as nodes find them from nothing

With one long link the mean number of hops by log^2 N rises towards 4 / pi^2 = 0.405, from below. At a distance of D
nodes the link leads x D away with density 1 / (x ln N), and leaves |1 - x| D: the expected fall of ln D in a hop is the
integral of -ln |1 - x| / x from 0 to 2 over ln N, which is (pi^2 / 4) / ln N. So 4 / pi^2 ln^2 N hops lead from N to 1;
but the last ln N nodes or so are walked along the ring, in fewer hops, and ln ln N is much of ln N for a long time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import log, sqrt
from random import Random
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np

from bench_vitis import wrong_successors
from trellis import ids
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.lookup import Compass, rendezvous
from trellis.protocols.ring import RING, identifier
from trellis.protocols.small_world import LongLinks
from trellis.protocols.vitis.select import around, take_small_world
from trellis.simulate.dissemination_system import node_of
from trellis.simulate.engine import Engine
from trellis.simulate.population import Population
from trellis.simulate.systems import maker_of

LOOKUPS = 20_000
LIMIT = 4 / np.pi**2
Placed = list[tuple[int, str]]  # nodes with their identifiers, in the order of the ring


class Hops(NamedTuple):
    """Mean hops, by log^2 N and times k; `error` is its standard error, over seeds where there are several."""

    hops: float
    by_log: float
    error: float

    def __str__(self) -> str:
        return f"{self.hops:6.2f} hops, k / log^2 N times that {self.by_log:.4f} +- {self.error:.4f}"


def expected_hops(nodes: int, long_links: int, friends: int = 0) -> float:
    """Mean hops of a lookup between random places of an even ring, for friends that are random nodes.

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
    """Converged tables, the friends random nodes. Links are used both ways (A-VIT-8)."""
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


def gossiped(nodes: int, long_links: int, friends: int, seed: int, cycles: int) -> Engine:
    """A network after so many cycles. One topic a node, of 20 subscribers each: more would take memory, not hops."""
    interests = {f"n{number}": (f"t{number % max(1, nodes // 20)}",) for number in range(nodes)}
    made = maker_of("vitis")(publications=0, sw_neighbors=2 + long_links, table_size=2 + long_links + friends)
    engine = Engine(made, interests, seed=seed)
    engine.watchers.clear()
    engine.run(cycles * 1000)
    return engine


def placed(names: list[str]) -> Placed:
    return sorted((identifier(name), name) for name in names)


def small_world(ring: Placed, place: int, long_links: LongLinks) -> list[str]:
    """Successor, predecessor and long links of the node at a place, chosen by Alg. 4 among all nodes of the ring."""
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


def strayed_links(world: Population) -> int:
    """Long links that do not lead to the node that Alg. 4 would take if a node saw all others."""
    ring, found = placed(list(world.living)), 0
    for place, (_, name) in enumerate(ring):
        node = node_of(world, name)
        wanted = small_world(ring, place, node.long_links)[2:]
        found += sum(one not in node.table for one in wanted)
    return found


def walks(names: list[str], next_hop: Callable[[str, int], str | None], seed: int) -> tuple[list[int], int]:
    """Hops of lookups between random places, and how many end elsewhere than at the rendezvous node."""
    random, ring = Random(ids.stream(seed, "figure", "walks")), placed(names)
    hops, astray = [], 0
    for _ in range(LOOKUPS):
        name, place, count = random.choice(names), random.randrange(RING), 0
        while (hop := next_hop(name, place)) is not None:
            name, count = hop, count + 1
        hops.append(count)
        at = bisect_left(ring, (place, ""))
        astray += name != rendezvous(place, [ring[at % len(ring)][1], ring[at - 1][1]])
    return hops, astray


def summed_up(nodes: int, long_links: int, runs: list[list[int]]) -> Hops:
    scale = long_links / log(nodes) ** 2
    means = [mean(run) for run in runs]
    error = stdev(means) / sqrt(len(means)) if len(means) > 1 else stdev(runs[0]) / sqrt(len(runs[0]))
    return Hops(mean(means), mean(means) * scale, error * scale)


def never_rises(measured: list[Hops]) -> bool:
    """Within two standard errors of the difference."""
    return all(b.by_log <= a.by_log + 2 * sqrt(a.error**2 + b.error**2) for a, b in pairwise(measured))


def growth(measured: list[Hops]) -> str:
    if len(measured) < 2:
        return "one size alone says nothing of growth"
    return "never rises" if never_rises(measured) else "rises"


def by_expectation(sizes: list[int], long_links: int, friends: int) -> Iterator[str]:
    measured = []
    for nodes in sizes:
        hops = expected_hops(nodes, long_links, friends)
        measured.append(Hops(hops, hops * long_links / log(nodes) ** 2, 0.0))
        yield f"{nodes:6} nodes: {measured[-1]}"
    yield f"  {growth(measured)}; its limit with one long link is {LIMIT:.3f}"


def over_drawn(sizes: list[int], long_links: int, friends: int, seeds: list[int]) -> Iterator[str]:
    measured = []
    for nodes in sizes:
        runs = []
        for seed in seeds:
            compasses = drawn(nodes, long_links, friends, seed)
            hops, astray = walks(list(compasses), lambda name, place: compasses[name].next_hop(place), seed)  # noqa: B023
            assert not astray, "a lookup over true rings ends at the rendezvous node"
            runs.append(hops)
        measured.append(summed_up(nodes, long_links, runs))
        yield f"{nodes:6} nodes: {measured[-1]}"
    yield f"  {growth(measured)}"


def by_gossip(sizes: list[int], long_links: int, friends: int, seeds: list[int], cycles: int) -> Iterator[str]:
    measured = []
    for nodes in sizes:
        runs = []
        for seed in seeds:
            world = gossiped(nodes, long_links, friends, seed, cycles).world
            compass = {name: node_of(world, name).relays.compass for name in world.living}
            hops, astray = walks(list(world.living), lambda name, place: compass[name].next_hop(place), seed)  # noqa: B023
            runs.append(hops)
            wrong, strayed = wrong_successors(world), strayed_links(world)
            told = f"{strayed} long links not where they were drawn, {wrong} wrong successors, {astray} lookups astray"
            yield f"    seed {seed}: {summed_up(nodes, long_links, [hops])}; {told}"
        measured.append(summed_up(nodes, long_links, runs))
        yield f"{nodes:6} nodes: {measured[-1]}"
    yield f"  {growth(measured)}"
