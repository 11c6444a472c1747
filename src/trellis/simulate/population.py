"""Keep the nodes of a run, their topics and the links that they claim. This is the `World` that systems see.

I1  `actors` holds exactly the living nodes. An actor is one incarnation of a name, and never runs again once it is
    down.
I2  `membership` knows the topics of exactly the living nodes, and during the start also of those about to start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from trellis import ids
from trellis.protocols.effects import Effects, NodeId, Topic
from trellis.protocols.membership import InterestView
from trellis.protocols.node import ProtocolNode
from trellis.protocols.topics import TopicTable
from trellis.simulate.system import System
from trellis.simulate.views import Membership

UP, DOWN, PAUSED = 0, 1, 2
Event = tuple[int, Any, Any, Any]  # see simulate/engine.py


class Actor:
    """One incarnation of a node, as the engine sees it."""

    __slots__ = (
        "born_us",
        "claims",
        "incarnation",
        "name",
        "node",
        "number",
        "on_message",
        "on_timer",
        "state",
        "timers",
        "topics",
        "waiting",
    )

    def __init__(self, name: NodeId, number: int, incarnation: int, topics: tuple[Topic, ...], born_us: int) -> None:
        self.name, self.number, self.incarnation, self.topics, self.born_us = name, number, incarnation, topics, born_us
        self.state = UP
        self.timers: dict[str, Event] = {}  # tag -> its pending timer
        # claimed peers in the order of the claims: the order of a set could differ between runs
        self.claims: dict[NodeId, None] = {}
        self.waiting: list[Event] = []  # events that came while the node was paused
        self.node: ProtocolNode
        self.on_message: Callable[[NodeId, Any], Effects]
        self.on_timer: Callable[[str], Effects]

    def embody(self, node: ProtocolNode) -> None:
        self.node, self.on_message, self.on_timer = node, node.on_message, node.on_timer


class Population:
    """Implements `World`. The engine advances `now_us`, brings nodes up and down, and changes their claims."""

    def __init__(
        self,
        system: System,
        seed: int,
        *,
        view_share: float = 1.0,
        first_links: Iterable[tuple[NodeId, NodeId]] = (),
        number_of: Callable[[str], int],
    ) -> None:
        self.system, self.seed = system, seed
        self.now_us = 0
        self.topics = TopicTable()
        self.membership = Membership(seed, share=view_share)
        self.actors: dict[NodeId, Actor] = {}
        self._number_of = number_of
        self._incarnations: dict[NodeId, int] = {}
        self._living: list[NodeId] | None = []
        self._first: dict[NodeId, list[NodeId]] = {}
        for u, v in first_links:
            self._first.setdefault(u, []).append(v)
            self._first.setdefault(v, []).append(u)

    # Called by systems

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    @property
    def living(self) -> list[NodeId]:
        if self._living is None:
            self._living = sorted(self.actors)
        return self._living

    def is_living(self, node: NodeId) -> bool:
        return node in self.actors

    def node(self, node: NodeId) -> ProtocolNode:
        return self.actors[node].node

    def incarnation(self, node: NodeId) -> int:
        return self._incarnations.get(node, 0)

    def born_ms(self, node: NodeId) -> int:
        return self.actors[node].born_us // 1000

    def topics_of(self, node: NodeId) -> tuple[Topic, ...]:
        return self.actors[node].topics

    def claims(self, node: NodeId) -> list[NodeId]:
        return sorted(self.actors[node].claims)

    def links(self) -> list[tuple[NodeId, NodeId]]:
        actors: dict[NodeId, Actor] = self.actors
        found: list[tuple[NodeId, NodeId]] = []
        for name in self.living:
            claims = actors[name].claims
            found += [(name, peer) for peer in claims if name < peer and peer in actors and name in actors[peer].claims]
        found.sort()
        return found

    def view(self, owner: NodeId, random: Random) -> InterestView:
        return self.membership.view(owner, random)

    def contacts(self, node: NodeId, random: Random, count: int) -> list[NodeId]:
        known, names = self.membership.interests, self.membership.names
        if len(known) <= 4 * count + 1:
            others = sorted(known.keys() - {node})
            return random.sample(others, min(count, len(others)))
        # Draw again if the name is not there. Listing all others for each of 10,000 nodes would take longer.
        chosen: dict[NodeId, None] = {}
        while len(chosen) < count:
            name = names[random.randrange(len(names))]
            if name != node and name in known:
                chosen[name] = None
        return list(chosen)

    def first_neighbors(self, node: NodeId) -> list[NodeId]:
        known = self.membership.interests
        return (
            sorted(peer for peer in self._first.get(node, ()) if peer in known) if self.incarnation(node) <= 1 else []
        )

    # Called by the engine

    def expect(self, starting: Mapping[NodeId, tuple[Topic, ...]], later: Iterable[NodeId]) -> None:
        """Make all nodes that start at time 0 known to each other before the first one is created."""
        self.membership.register([*starting, *later])
        for name, topics in starting.items():
            self.membership.put(name, self.topics.bits(topics))

    def bring_up(self, name: NodeId, topics: tuple[Topic, ...]) -> Actor:
        """Start a new incarnation of a name. The caller must carry out `start()` of its node."""
        incarnation = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        actor = Actor(name, self._number_of(name), incarnation, topics, self.now_us)
        self.membership.put(name, self.topics.bits(topics))
        random = Random(ids.stream(self.seed, "node", name, incarnation))
        actor.embody(self.system.make_node(name, topics, random, self))
        self.actors[name], self._living = actor, None
        return actor

    def bring_down(self, actor: Actor) -> None:
        """End an incarnation. It never runs again (I1)."""
        actor.state = DOWN
        actor.waiting.clear()
        actor.timers.clear()
        del self.actors[actor.name]
        self.membership.drop(actor.name)
        self._living = None

    def set_topics(self, actor: Actor, topics: Iterable[Topic]) -> None:
        actor.topics = self.topics.normal(topics)
        self.membership.put(actor.name, self.topics.bits(actor.topics))
