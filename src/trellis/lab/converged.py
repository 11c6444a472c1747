"""Magnet and the strawman on converged tables: what the protocols come to, without their messages.  [MG §2-3]

A protocol run of 10,000 nodes takes minutes, this model takes seconds. So the lab runs it at the papers' sizes with
several seeds, and says "reproduced (converged model)" where the rule holds: the protocol has not shown it at that size.
What is idealised: samples are uniform and of this very moment, walks end anywhere in their arc with equal chance,
nodes join one at a time, and trees are joined when all tables are complete. Everything else follows Alg. 1, Fig. 1
and Alg. 2. Nodes are numbers here, clockwise from 0 once the ring stands.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from itertools import pairwise
from random import Random

import numpy as np

from trellis.protocols.oscar.labels import Label, hashed, midpoint

Wanted = Mapping[str, tuple[str, ...]]
WALKS = 5
SAMPLES = 10


class Converged:
    """A ring of nodes with their fingers. `topics[rank]`: what the node at that place wants."""

    def __init__(self, ring: list[str], labels: list[Label], wanted: Wanted, links: int, random: Random) -> None:
        self.ring, self.labels = ring, labels
        self.topics = [wanted[name] for name in ring]
        self.subscribers: dict[str, list[int]] = {}
        for rank, topics in enumerate(self.topics):
            for topic in topics:
                self.subscribers.setdefault(topic, []).append(rank)
        # Distances to the successor and to the fingers, ascending.
        self.down = [draw_fingers(len(ring), links, random) for _ in ring]

    def hop(self, here: int, target: int) -> int:
        """The neighbour closest to the target from below (A-MAG-11)."""
        down, count = self.down[here], len(self.ring)
        return (here + down[bisect_right(down, (target - here) % count) - 1]) % count

    def hops(self, here: int, target: int) -> int:
        count = 0
        while here != target:
            here = self.hop(here, target)
            count += 1
        return count


def build(
    wanted: Wanted, seed: int, *, similar: bool, links: int = 19, rates: Mapping[str, float] | None = None
) -> Converged:
    random = Random(f"{seed} {similar}")
    names = sorted(wanted)
    random.shuffle(names)  # A-MAG-9
    labels = place(names, wanted, random, rates) if similar else {name: hashed(name) for name in names}
    ring = sorted(names, key=lambda name: labels[name])
    return Converged(ring, [labels[name] for name in ring], wanted, links, random)


def place(names: list[str], wanted: Wanted, random: Random, rates: Mapping[str, float] | None) -> dict[str, Label]:
    """Alg. 1 for one node after the other."""
    likeness = _likeness(wanted, rates)
    labels: dict[str, Label] = {}
    ring: list[Label] = []  # in order
    known: dict[str, list[str]] = {}  # subscribers by topic
    for name in names:
        best: list[str] = []
        most = -1.0
        view: dict[str, None] = {}
        for topic in wanted[name]:
            others = known.setdefault(topic, [])
            view.update(dict.fromkeys(others if len(others) <= SAMPLES else random.sample(others, SAMPLES)))
            others.append(name)
        for other, value in zip(view, likeness(name, list(view)), strict=True):
            if value > most:
                best, most = [other], value
            elif value == most:
                best.append(other)
        if best:
            label = labels[random.choice(best)]
            after = bisect_right(ring, label)
            labels[name] = midpoint(label, ring[after % len(ring)])
        else:
            labels[name] = hashed(name)
        insort(ring, labels[name])
    return labels


def _likeness(wanted: Wanted, rates: Mapping[str, float] | None) -> Callable[[str, list[str]], list[float]]:
    """sim(p, .) of several nodes; by rates where they are known (A-MAG-1)."""
    number: dict[str, int] = {}
    for topics in wanted.values():
        for topic in topics:
            number.setdefault(topic, len(number))
    if rates is None:
        bits = {name: sum(1 << number[topic] for topic in topics) for name, topics in wanted.items()}

        def plain(name: str, others: list[str]) -> list[float]:
            mine = bits[name]
            return [(mine & bits[one]).bit_count() / (mine | bits[one]).bit_count() for one in others]

        return plain
    weights = np.array([rates[topic] for topic in number], dtype=np.float32)
    row = {name: at for at, name in enumerate(wanted)}
    table = np.zeros((len(wanted), len(number)), dtype=np.float32)
    for name, topics in wanted.items():
        places = [number[topic] for topic in topics]
        table[row[name], places] = weights[places]
    totals = table.sum(axis=1)

    def weighted(name: str, others: list[str]) -> list[float]:
        rows = [row[one] for one in others]
        shared = table[rows] @ (table[row[name]] > 0).astype(np.float32)
        return list(map(float, shared / (totals[rows] + totals[row[name]] - shared)))

    return weighted


def draw_fingers(count: int, links: int, random: Random) -> list[int]:
    """Medians of five walks each, then for each finger a partition and a peer in it.  [MG Fig. 1]"""
    bounds = [count]
    while bounds[-1] > 2:
        sample = sorted(random.randrange(1, bounds[-1]) for _ in range(WALKS))
        bounds.append(sample[WALKS // 2])
    bounds.append(1)
    partitions = [(low, high) for high, low in pairwise(bounds) if high > low]
    found = {1}
    for _ in range((links - 2) // 2 + (random.randrange(2) if links % 2 else 0)):
        for _ in range(8):  # a peer that is taken already is drawn again
            low, high = random.choice(partitions) if partitions else (1, 2)
            distance = random.randrange(low, high)
            if distance not in found:
                found.add(distance)
                break
    return sorted(distance for distance in found if distance < max(2, count))


def relays(net: Converged, seed: int, tree: str) -> dict[str, int]:
    """Per topic the nodes on its tree that do not want it, the home location among them (A-MAG-21)."""
    random, found = Random(f"{seed} homes"), {}
    for topic in sorted(net.subscribers):
        home = random.randrange(len(net.ring))
        wanted = list(net.subscribers[topic])
        random.shuffle(wanted)
        nodes = grafts(net, home, wanted, random) if tree == "graft" else greedy_paths(net, home, wanted)
        found[topic] = len(nodes.difference(wanted))
    return found


def greedy_paths(net: Converged, home: int, wanted: list[int]) -> set[int]:
    nodes = {home}
    for target in wanted:
        here = home
        while here != target:
            here = net.hop(here, target)
            nodes.add(here)
    return nodes


def grafts(net: Converged, home: int, wanted: list[int], random: Random) -> set[int]:
    """Alg. 2 as printed: from a subscriber that has joined up to the grafting point, then down the greedy route."""
    count, parents = len(net.ring), {home: home}
    for at, target in enumerate(wanted):
        if target in parents:
            continue
        here = wanted[random.randrange(at)] if at else home  # l. 1-6: one of a sample is one of all
        while here != home:  # l. 7-11
            hop = net.hop(here, target)
            if (here - home) % count < (target - home) % count and parents.get(hop) == here:
                break
            here = parents[here]
        while here != target:  # l. 12-14
            hop = net.hop(here, target)
            parents.setdefault(hop, here)  # in the tree already: no link is added before it (A-MAG-12)
            here = hop
    return set(parents)
