"""Magnet's definitions, slowly: labels as fractions, greedy routes hop by hop, similarity by sets; and still rings.

A still ring is a set of nodes whose tables are given: no timer runs, so a test sees one join at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from random import Random

from conversation import Conversation
from trellis.protocols.magnet import MagnetConfig, MagnetNode
from trellis.protocols.oscar.labels import hashed
from trellis.protocols.oscar.messages import Peer


def fraction(label: bytes) -> Fraction:
    return Fraction(int.from_bytes(label, "big"), 256 ** len(label))


def label(value: Fraction | float) -> bytes:
    """The label of a binary fraction."""
    rest, digits = Fraction(value) % 1, bytearray()
    while rest:
        rest *= 256
        digits.append(int(rest))
        rest -= int(rest)
    return bytes(digits)


def clockwise(start: Fraction, end: Fraction) -> Fraction:
    return (end - start) % 1


def greedy_route(places: Mapping[str, Fraction], down: Mapping[str, Iterable[str]], start: str, end: str) -> list[str]:
    """At each node the neighbour on the arc to the target that is nearest to it.  [MG §2.2, A-MAG-11]"""
    route = [start]
    while route[-1] != end:
        here, target = places[route[-1]], places[end]
        ahead = [node for node in down[route[-1]] if clockwise(here, places[node]) <= clockwise(here, target)]
        route.append(min(ahead, key=lambda node: clockwise(places[node], target)))
    return route


def similarity(one: set[str], other: set[str], rates: Mapping[str, float] | None = None) -> float:
    def weight(topics: set[str]) -> float:
        return sum(1.0 if rates is None else rates.get(topic, 0.0) for topic in topics)

    return weight(one & other) / weight(one | other) if weight(one | other) else 0.0


class StillRing:
    """Nodes at given places with given fingers, on both rings, with nothing going on."""

    def __init__(
        self,
        places: Mapping[str, Fraction],
        fingers: Mapping[str, Iterable[str]],
        interests: Mapping[str, str],
        config: MagnetConfig,
        *,
        kind: type[MagnetNode] = MagnetNode,
        record: bool = False,
    ) -> None:
        self.places = dict(places)
        ring = sorted(places, key=lambda name: places[name])
        after = {name: ring[(at + 1) % len(ring)] for at, name in enumerate(ring)}
        self.down = {name: {after[name], *fingers.get(name, ())} - {name} for name in ring}
        self.nodes = {name: kind(name, tuple(sorted(interests[name])), Random(name), config) for name in ring}
        peers = {name: Peer(name, label(places[name]), 1, 1) for name in ring}
        control = sorted(places, key=hashed)
        for name, node in self.nodes.items():
            node._has_begun, node.placement.stage, node.trees.is_open = True, "placed", True
            table = node.skewed.table
            table.move(label(places[name]))
            table.successors = [peers[after[name]]] if len(ring) > 1 else []
            table.predecessor = peers[ring[ring.index(name) - 1]] if len(ring) > 1 else None
            table.fingers = {other: peers[other] for other in fingers.get(name, ()) if other != name}
            for other in fingers.get(name, ()):
                if other != name:
                    self.nodes[other].skewed.table.guests[name] = peers[name]
                    self.nodes[other].skewed.table.touch()
            table.touch()
            at, table = control.index(name), node.control.table
            table.move(hashed(name))
            next_one, before = control[(at + 1) % len(control)], control[at - 1]
            if len(control) > 1:
                table.successors = [Peer(next_one, hashed(next_one), 1, 1)]
                table.predecessor = Peer(before, hashed(before), 1, 1)
            table.touch()
        self.talk = Conversation(self.nodes.values(), record=record)

    def home(self, topic: str) -> str:
        control = sorted(self.nodes, key=hashed)
        return next((name for name in control if hashed(name) >= hashed(topic)), control[0])

    def join(self, name: str) -> None:
        """The node joins the trees of all its topics, and everything that comes of it is over."""
        self.talk.carry_out(name, self.nodes[name].trees.open())
        self.talk.run(1_000)

    def parent(self, name: str, topic: str) -> str | None:
        tree = self.nodes[name].trees.forest.get(topic)
        return None if tree is None else tree.parent

    def path(self, name: str, topic: str) -> list[str]:
        """From the root to a node, up the parents."""
        path = [name]
        while (before := self.parent(path[-1], topic)) is not None:
            assert before not in path, f"a circle: {path}"
            path.append(before)
        return path[::-1]
