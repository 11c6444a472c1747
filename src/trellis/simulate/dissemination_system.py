"""Define what the systems of VI §IV have in common in the simulator: measures, publications, checks and pictures.

Gossip never ends, so these systems need not become quiet. Instead, a check looks at them `settle_ms_max` after
everything was healed, which is a stated number of rounds. Each node publishes some events by itself, a while after its
start. So a run without a schedule of publications also shows how events spread, and checks see events under faults.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, NamedTuple, cast

import msgspec

from trellis import ids
from trellis.errors import InputError
from trellis.protocols.effects import Deliver, Effects, NodeId, Seed, Send, SetTimer, Topic
from trellis.protocols.lookup import rendezvous
from trellis.protocols.node import ProtocolNode
from trellis.protocols.ring import identifier
from trellis.protocols.vitis.config import TableConfig
from trellis.protocols.vitis.messages import CODEC, EVENT_TYPES, Event, Handover, Notification, Pull
from trellis.protocols.vitis.overlay import OverlayNode
from trellis.protocols.vitis.relays import RelayPaths
from trellis.protocols.vitis.select import around
from trellis.simulate.dissemination import Dissemination
from trellis.simulate.system import Carried, System, Violation, Watcher, World

TALK_FROM_MS, TALK_UNTIL_MS = 30_000, 60_000  # time after a node's start
ROUNDS_TO_HEAL = 40
MESSAGES_PER_NODE_MAX = 500  # most messages of one event; each node tells each neighbor at most once


class TableSystem(System):
    """A system whose nodes are `OverlayNode`s."""

    config: TableConfig
    publication_types = EVENT_TYPES
    # rates of publication by topic (A-VIT-5); None: all topics have the same
    rates: Mapping[Topic, float] | None = None

    def _prepare(self, config: TableConfig, publications: int, rates: str = "") -> None:
        """Set what all these systems have. Subclasses call this when they are created."""
        if publications < 0:
            raise InputError("", f"publications is {publications}", "give 0 or more")
        self.config, self.publications, self.codec, self.rates_file = config, publications, CODEC, rates
        if rates:
            self.rates = rates_in(rates)
        self.dissemination: Dissemination | None = None
        self.must_settle = False
        self.settle_ms = max(TALK_FROM_MS + 5_000, (config.age_max + config.linger_rounds) * config.period_ms)
        self.settle_ms_max = max(self.settle_ms, ROUNDS_TO_HEAL * config.period_ms)

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        contacts = world.contacts(node, random, 5)
        made: OverlayNode = self.node_type()(
            node,
            topics,
            random,
            self.config,
            contacts=contacts,
            table=world.topics,
            incarnation=world.incarnation(node),
            **self.node_options(),
        )
        return cast(ProtocolNode, Talking(made, self, world) if self.publications else made)

    @abstractmethod
    def node_type(self) -> type[Any]:
        """Return the class of the system's nodes, a kind of `OverlayNode`."""

    def node_options(self) -> dict[str, Any]:
        """Return arguments for the nodes beside those that all systems have."""
        return {}

    def parameters(self) -> dict[str, Any]:
        more = {"rates": self.rates_file} if self.rates_file else {}
        return {**msgspec.structs.asdict(self.config), "publications": self.publications, **more}

    def watcher(self, world: World) -> Watcher:
        self.dissemination = Dissemination(self, world)
        return self.dissemination

    def carried(self, message: msgspec.Struct) -> Carried | None:
        if isinstance(message, Notification | Event | Pull | Handover):
            return Carried(message.topic, message.origin, message.sequence, message.hops)
        return None

    def metrics(self, world: World) -> Mapping[str, float]:
        """Return the measures over all events so far, and how full the routing tables are."""
        nodes = [node_of(world, name) for name in world.living]
        sizes = [len(node.table.table) for node in nodes]
        found = {"table_mean": sum(sizes) / max(1, len(sizes)), "table_max": float(max(sizes, default=0))}
        if self.dissemination is not None:
            found.update(self.dissemination.measure().metrics())
        return found

    def ring_key(self, node: NodeId) -> int:
        return identifier(node)

    def check_always(self, world: World) -> None:
        if self.dissemination is None:
            return
        for one in self.dissemination.publications:
            if one.repeated:
                raise Violation(f"an event of {one.origin} on {one.topic} was delivered twice to an application")
        if self.dissemination.unbound:
            raise Violation("an event was seen that nobody published")

    def check_settled(self, world: World) -> None:
        for name in world.living:
            if node_of(world, name).topics != world.topics_of(name):
                raise Violation(f"{name} wants {node_of(world, name).topics}, not {world.topics_of(name)}")


class Talking:
    """A node that also publishes by itself. To the driver it looks like any other node."""

    def __init__(self, inner: OverlayNode, system: TableSystem, world: World) -> None:
        self.inner, self.id, self._system = inner, inner.id, system
        self._random = Random(ids.stream(world.seed, "talk", inner.id, world.incarnation(inner.id)))
        self.on_message, self.on_peer_down = inner.on_message, inner.on_peer_down
        self.subscribe, self.unsubscribe, self.publish = inner.subscribe, inner.unsubscribe, inner.publish
        self.leave, self.check = inner.leave, inner.check

    def start(self) -> Effects:
        span = TALK_UNTIL_MS - TALK_FROM_MS
        talks = [
            SetTimer(f"talk/{number}", TALK_FROM_MS + self._random.randrange(span))
            for number in range(self._system.publications)
        ]
        return [*self.inner.start(), *talks]

    def on_timer(self, tag: str) -> Effects:
        if not tag.startswith("talk/"):
            return self.inner.on_timer(tag)
        topics = self.inner.topics
        if not topics:
            return []
        topic = self._draw(topics)
        if self._system.dissemination is not None:
            self._system.dissemination.on_publish(self.id, topic, b"")
        return self.inner.publish(topic, b"")

    def _draw(self, topics: tuple[Topic, ...]) -> Topic:
        rates = self._system.rates
        weights = [rates.get(topic, 0.0) for topic in topics] if rates is not None else []
        if any(weights):
            return self._random.choices(topics, weights)[0]
        return topics[self._random.randrange(len(topics))]


def rates_in(path: str) -> dict[Topic, float]:
    """Return the publication rates in a table with columns topic and rate."""
    from trellis.model import read_rates, read_rows
    from trellis.model.kinds import RATES

    topics = read_rows(path, RATES).names("topic")
    return dict(zip(topics, read_rates(path, topics).tolist(), strict=True))


def node_of(world: World, name: NodeId) -> Any:
    """Return the protocol node of a name, without the `Talking` around it."""
    node = world.node(name)
    return node.inner if isinstance(node, Talking) else node


def require(value: str, choices: tuple[str, ...], where: str) -> str:
    """Return `value` if it is one of the choices, else raise InputError."""
    if value not in choices:
        raise InputError(f"{where} {value}", "is not known", f"choose from {', '.join(choices)}")
    return value


# Checks, which look at all nodes at once


def check_ring(world: World) -> None:
    """Check I-17: each node knows its true successor and predecessor."""
    ring = sorted(world.living, key=identifier)
    if len(ring) < 2:
        return
    for place, name in enumerate(ring):
        node = node_of(world, name)
        known = around(node.identifier, node.table.table.entries)
        true = (ring[(place + 1) % len(ring)], ring[place - 1])
        believed = (known[0][1], known[-1][1]) if known else (None, None)
        if believed != true:
            raise Violation(f"I-17: {name} has {believed} beside it on the ring, not {true}")


def check_lookups(world: World, topics: Iterable[Topic]) -> None:
    """Check I-17: every lookup ends at the true rendezvous node, from whichever node it starts."""
    for topic in topics:
        place = identifier(topic)
        wanted = rendezvous(place, world.living)
        for name in world.living:
            ended = name
            while (hop := node_of(world, ended).relays.compass.next_hop(place)) is not None:
                if not world.is_living(hop):
                    raise Violation(f"I-17: the lookup of {topic} by {name} goes to {hop}, which is gone")
                ended = hop
            if ended != wanted:
                raise Violation(f"I-17: the lookup of {topic} by {name} ends at {ended}, not at {wanted}")


def check_paths(world: World) -> None:
    """Check I-20: each next hop of a relay path is alive and knows that it relays the topic."""
    for name in world.living:
        relays: RelayPaths = node_of(world, name).relays
        for topic, hop in relays.up.items():
            if hop is None:
                continue
            other = node_of(world, hop).neighbors.get(name) if world.is_living(hop) else None
            if other is None or topic not in other.relays:
                raise Violation(f"{name} relays {topic} through {hop}, which does not know")


class Spread(NamedTuple):
    """How one event spread: deliveries by node, the nodes reached, and the number of messages."""

    delivered: Counter[NodeId]
    reached: set[NodeId]
    messages: int


def spread(world: World, publisher: NodeId, topic: Topic) -> Spread:
    """Publish an event and pass it on with the real handlers of the living nodes, without loss and delay."""
    delivered: Counter[NodeId] = Counter()
    reached, messages = {publisher}, 0
    waiting: deque[tuple[NodeId, NodeId, msgspec.Struct]] = deque()

    def carry_out(name: NodeId, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Send) and not isinstance(effect.to, Seed):
                waiting.append((name, effect.to, effect.message))
            elif isinstance(effect, Deliver):
                delivered[name] += 1

    carry_out(publisher, node_of(world, publisher).publish(topic, b"?"))
    while waiting:
        sender, to, message = waiting.popleft()
        messages += 1
        if messages > MESSAGES_PER_NODE_MAX * len(world.living):
            raise Violation(f"I-19: an event of {publisher} on {topic} never comes to rest")
        if world.is_living(to):
            reached.add(to)
            carry_out(to, node_of(world, to).on_message(sender, message))
    return Spread(delivered, reached, messages)


def check_events(world: World, topics: Iterable[Topic], random: Random) -> None:
    """Check I-19: an event on each topic reaches every subscriber, and its application once."""
    wanting: dict[Topic, list[NodeId]] = {}
    for name in world.living:
        for topic in world.topics_of(name):
            wanting.setdefault(topic, []).append(name)
    for topic in topics:
        subscribers = wanting.get(topic, [])
        if not subscribers:
            continue
        # One subscriber, and one node of all, which may have to hand its event over (A-VIT-20).
        for publisher in (random.choice(subscribers), random.choice(world.living)):
            found = spread(world, publisher, topic)
            missed = [name for name in subscribers if not found.delivered[name]]
            if missed:
                raise Violation(f"I-19: an event of {publisher} on {topic} misses {', '.join(missed[:3])}")
            twice = [name for name, count in found.delivered.items() if count > 1 or name not in subscribers]
            if twice:
                raise Violation(f"I-19: an event of {publisher} on {topic} was delivered wrongly at {twice[0]}")


def topics_of(world: World) -> list[Topic]:
    return sorted({topic for name in world.living for topic in world.topics_of(name)})
