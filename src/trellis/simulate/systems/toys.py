"""Define trivial systems that test the engine and the checker: ping-pong, a flooder, a mesh built by gossip.

`Mesh` has known defects to choose from, which a checker must find.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from trellis.errors import InputError
from trellis.protocols.effects import (
    Deliver,
    Effect,
    Effects,
    LinkDown,
    LinkUp,
    NodeId,
    Send,
    SetTimer,
    Topic,
)
from trellis.protocols.node import ProtocolNode
from trellis.protocols.wire import PEERS_MAX, Codec, Count, Name, NodeName
from trellis.simulate.schedule import FaultPlan
from trellis.simulate.system import System, Violation, World


class Quiet:
    """A node that does nothing."""

    def __init__(self, node: NodeId) -> None:
        self.id = node

    def start(self) -> Effects:
        return []

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        return []

    def on_timer(self, tag: str) -> Effects:
        return []

    def on_peer_down(self, peer: NodeId) -> Effects:
        return []

    def subscribe(self, topic: Topic) -> Effects:
        return []

    def unsubscribe(self, topic: Topic) -> Effects:
        return []

    def leave(self) -> Effects:
        return []

    def check(self) -> None: ...


# Ping-pong: each node exchanges messages with another one for ever. It measures only the engine.


class Ball(msgspec.Struct, frozen=True, gc=False, tag="ball"):
    """The only message of ping-pong."""

    turn: Count


class PingPongNode(Quiet):
    """A node that returns every ball."""

    def __init__(self, node: NodeId, partner: NodeId | None) -> None:
        super().__init__(node)
        self.partner = partner
        self.returned = 0

    def start(self) -> Effects:
        return [Send(self.partner, Ball(0))] if self.partner is not None else []

    def on_message(self, sender: NodeId, message: Any) -> Effects:
        self.returned += 1
        return [Send(sender, Ball(message.turn + 1))]


class PingPong(System):
    """Nodes that exchange balls with a random partner for ever."""

    name = "pingpong"

    def __init__(self) -> None:
        self.codec = Codec(Ball)

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        contacts = world.contacts(node, random, 1)
        return PingPongNode(node, contacts[0] if contacts else None)


# Flooder: the overlay gives the links. A publication goes to every neighbor from which it did not come.


class Flood(msgspec.Struct, frozen=True, gc=False, tag="flood"):
    """A publication on its way."""

    topic: Name
    origin: NodeName
    sequence: Count


class FlooderNode(Quiet):
    """A node that passes on every publication once."""

    def __init__(self, node: NodeId, topics: tuple[Topic, ...], neighbors: list[NodeId]) -> None:
        super().__init__(node)
        self.topics, self.neighbors, self.published = set(topics), neighbors, 0
        self.seen: set[tuple[NodeId, int]] = set()

    def start(self) -> Effects:
        return [LinkUp(peer) for peer in self.neighbors]

    def publish(self, topic: Topic, payload: bytes) -> Effects:
        self.published += 1
        return self._take(self.id, Flood(topic, self.id, self.published))

    def on_message(self, sender: NodeId, message: Any) -> Effects:
        return self._take(sender, message)

    def subscribe(self, topic: Topic) -> Effects:
        self.topics.add(topic)
        return []

    def unsubscribe(self, topic: Topic) -> Effects:
        self.topics.discard(topic)
        return []

    def _take(self, sender: NodeId, message: Flood) -> Effects:
        identity = (message.origin, message.sequence)
        if identity in self.seen:
            return []
        self.seen.add(identity)
        mine: list[Effect] = []
        if message.topic in self.topics:
            mine = [Deliver(message.topic, message.origin, message.sequence)]
        return [*mine, *(Send(peer, message) for peer in self.neighbors if peer != sender)]


class Flooder(System):
    """Nodes that flood publications over the links of the given overlay."""

    name = "flooder"

    def __init__(self) -> None:
        self.codec = Codec(Flood)

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        return FlooderNode(node, topics, world.first_neighbors(node))


# Mesh: each node links to all nodes it hears of, and drops nodes that were silent for a while.


class Hello(msgspec.Struct, frozen=True, gc=False, tag="hello"):
    """Sent to all known nodes in every round. `known` tells the receiver which nodes there are."""

    known: tuple[NodeName, ...]


class Bye(msgspec.Struct, frozen=True, gc=False, tag="bye"):
    """Sent by a node that leaves in order."""


ROUND_MS = 500
SILENCE_ROUNDS = 8  # Seven hellos in a row must be lost before a living neighbor is dropped by mistake.
TOMB_ROUNDS = 20  # For this long other nodes cannot bring back a dropped node. Only its own message does.
MUTANTS = ("no-timeout", "no-retry", "one-sided", "forgets-rejoined")


class MeshNode(Quiet):
    """A node that links to all nodes it hears of. `mutant` names the defect that it has."""

    def __init__(self, node: NodeId, contacts: list[NodeId], random: Random, mutant: str | None) -> None:
        super().__init__(node)
        self.random, self.mutant = random, mutant
        self.met: dict[NodeId, None] = dict.fromkeys(contacts)  # all nodes it has ever heard of
        self.silence: dict[NodeId, int] = dict.fromkeys(contacts, 0)  # known node -> rounds since it was heard
        self.tombs: dict[NodeId, int] = {}  # dropped node -> rounds left
        self.links: set[NodeId] = set()

    def start(self) -> Effects:
        return [SetTimer("round", self.random.randrange(ROUND_MS)), *self._greet(), *self._relink()]

    def on_timer(self, tag: str) -> Effects:
        for node in self.silence:
            self.silence[node] += 1
        for node in [node for node, rounds in self.silence.items() if rounds >= SILENCE_ROUNDS]:
            if self.mutant != "no-timeout":
                del self.silence[node]
                self.tombs[node] = TOMB_ROUNDS
        self.tombs = {node: rounds - 1 for node, rounds in self.tombs.items() if rounds > 1}
        return [*self._greet(), *self._retry(), *self._relink(), SetTimer("round", ROUND_MS)]

    def on_message(self, sender: NodeId, message: Any) -> Effects:
        if isinstance(message, Bye):
            self.silence.pop(sender, None)
            self.tombs[sender] = TOMB_ROUNDS
            return self._relink()
        if self.mutant == "forgets-rejoined" and sender in self.tombs:
            self.tombs[sender] = TOMB_ROUNDS
            return []
        self.tombs.pop(sender, None)
        self.silence[sender] = 0
        for node in message.known:
            if node != self.id and node not in self.tombs:
                self.silence.setdefault(node, 0)
        self.met.update(dict.fromkeys(self.silence))
        return self._relink()

    def on_peer_down(self, peer: NodeId) -> Effects:
        self.silence.pop(peer, None)
        return self._relink()

    def leave(self) -> Effects:
        return [Send(node, Bye()) for node in sorted(self.silence)]

    def check(self) -> None:
        assert self.id not in self.silence, f"{self.id} knows itself"

    def _greet(self) -> Effects:
        known = sorted(self.silence)
        return [Send(node, Hello(tuple(known[: PEERS_MAX - 1]))) for node in known]

    def _retry(self) -> Effects:
        """Send to one of the lost nodes, which may have restarted or may have been cut off."""
        lost = sorted(self.met.keys() - self.silence.keys())
        return [Send(self.random.choice(lost), Hello(()))] if lost and self.mutant != "no-retry" else []

    def _relink(self) -> Effects:
        wanted = set(self.silence)
        if self.mutant == "one-sided":
            wanted = {node for node in wanted if node > self.id or len(wanted) < 4}
        gone, new = sorted(self.links - wanted), sorted(wanted - self.links)
        self.links = wanted
        return [*(LinkDown(node) for node in gone), *(LinkUp(node) for node in new)]


class Mesh(System):
    """Links all nodes to each other once it has settled, so the overlay is a TCO as well."""

    name = "mesh"
    settle_ms = 2 * ROUND_MS * (SILENCE_ROUNDS + TOMB_ROUNDS)
    overlay_is_tco_promised = True
    fault_plan = FaultPlan(span_ms=20_000, duration_ms_max=6_000)

    def __init__(self, mutant: str | None = None) -> None:
        if mutant is not None and mutant not in MUTANTS:
            raise InputError("", f'the mesh has no bug called "{mutant}"', f"choose from {', '.join(MUTANTS)}")
        self.mutant = mutant
        self.codec = Codec(Hello | Bye)

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        return MeshNode(node, world.contacts(node, random, 3), random, self.mutant)

    def parameters(self) -> dict[str, Any]:
        return {"mutant": self.mutant, "round_ms": ROUND_MS, "silence_rounds": SILENCE_ROUNDS}

    def check_settled(self, world: World) -> None:
        living = world.living
        for node in living:
            others = [other for other in living if other != node]
            if world.claims(node) != others:
                missing = sorted(set(others).symmetric_difference(world.claims(node)))
                raise Violation(f"{node} should be linked to all others; wrong about {', '.join(missing[:5])}")
