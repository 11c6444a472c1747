"""Measure how well events are delivered: hit ratio, traffic overhead, propagation delay, load.  [VI §IV, MG §4]

A `Dissemination` watches a run of any system that can tell, by `System.carried`, which publication a message carries or
announces. It assigns each message and delivery to a publication that the engine announced, and sums up on request.

hit ratio           delivered (event, subscriber) pairs divided by expected ones. A subscriber is expected to get an
                    event if it was there and had subscribed at least `grace_ms` (10 s, VI §IV-E) before the
                    publication, and stays subscribed for `grace_ms` after it. The publisher does not count.
traffic overhead    an event counts once for each node that it reaches (it is pulled once, E-16). The overhead is the
                    share of these receptions where the node does not subscribe to the topic, over all nodes and per
                    node. `message_overhead` counts every message that carries, announces or requests an event instead.
propagation delay   links that an event has crossed when it first reaches a node, over the nodes to which it is
                    delivered. A node's own publications do not count.
duplicates          messages that bring an event to a node that it has already reached. Only messages of the type in
                    which the event travels first count: a notification, but not the answer to it.
repeated            events handed to the same application more than once. This is a defect of the system.

`attach` adds a `Dissemination` to a run that has already started, so the time before costs nothing. A system may list
in `publication_types` the message types that can carry events. All other types are then skipped without a closer look.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trellis.measure.distributions import Distribution
from trellis.protocols.effects import Deliver, NodeId, Topic
from trellis.simulate.engine import Engine
from trellis.simulate.system import System, Watcher, World

GRACE_MS = 10_000
# The application of a node: its name; from the second incarnation that we see on, its name and the incarnation's
# number.
Application = NodeId | tuple[NodeId, int]


class Publication:
    """One event, and the nodes that it has reached."""

    __slots__ = (
        "delivered",
        "duplicates",
        "expected",
        "form",
        "missing",
        "origin",
        "reached",
        "repeated",
        "sends",
        "time_ms",
        "topic",
        "unwanted_sends",
    )

    def __init__(self, topic: Topic, origin: NodeId, time_ms: int, expected: set[NodeId]) -> None:
        self.topic, self.origin, self.time_ms = topic, origin, time_ms
        self.expected = len(expected)
        self.missing = expected  # the expected subscribers to which it was not delivered so far
        # node -> 2 * hops + (1 if it subscribes to the topic); without the publisher
        self.reached: dict[NodeId, int] = {}
        self.delivered: dict[Application, int] = {}  # application -> hops
        self.form: type | None = None  # type of the first message that carried or announced it
        self.sends = self.unwanted_sends = self.duplicates = self.repeated = 0


class Dissemination(Watcher):
    """A watcher that follows every publication of a run. The module's docstring defines the measures."""

    def __init__(self, system: System, world: World, *, grace_ms: int = GRACE_MS) -> None:
        self.world, self.grace_ms = world, grace_ms
        self.publications: list[Publication] = []
        self.unbound = 0  # messages and deliveries of events that were not announced as published
        # Messages that carry or announce an event, by type, by receiver and by sender.
        self.messages: Counter[type] = Counter()
        self.received: Counter[NodeId] = Counter()
        self.sent: Counter[NodeId] = Counter()
        self._carried = system.carried
        types: Iterable[type] | None = getattr(system, "publication_types", None)
        self._types = None if types is None else frozenset(types)
        self._wanted: dict[Topic, dict[NodeId, int]] = {}  # topic -> subscriber -> when it subscribed, in ms
        self._topics: dict[NodeId, tuple[Topic, ...]] = {}
        # when a node unsubscribed from a topic, left or crashed, in ms
        self._ended: dict[tuple[NodeId, Topic], list[int]] = {}
        # incarnations of each node that were seen, with the one that ran when we began
        self._lives: Counter[NodeId] = Counter()
        # published events that no message has carried so far, oldest first
        self._announced: dict[tuple[NodeId, Topic], deque[Publication]] = {}
        self._known: dict[tuple[Topic, NodeId, int], Publication] = {}
        for name in world.living:
            self._lives[name] = 1
            self._since(name, world.topics_of(name), world.born_ms(name))

    @classmethod
    def attach(cls, engine: Engine, *, grace_ms: int = GRACE_MS) -> Dissemination:
        """Watch the run of `engine` from now on."""
        made = cls(engine.system, engine.world, grace_ms=grace_ms)
        engine.watchers.append(made)
        return made

    # Events that the engine reports

    def on_node_up(self, node: NodeId, topics: tuple[Topic, ...]) -> None:
        self._since(node, topics, self.world.now_ms)
        self._lives[node] += 1

    def on_node_down(self, node: NodeId, how: str) -> None:
        self._until(node, self._topics.pop(node, ()))

    def on_topics(self, node: NodeId, topics: tuple[Topic, ...]) -> None:
        before = self._topics.get(node, ())
        self._until(node, set(before).difference(topics))
        self._since(node, topics, self.world.now_ms)

    def on_publish(self, node: NodeId, topic: Topic, payload: bytes) -> None:
        now = self.world.now_ms
        old = now - self.grace_ms
        expected = {name for name, since in self._wanted.get(topic, {}).items() if since <= old and name != node}
        publication = Publication(topic, node, now, expected)
        self.publications.append(publication)
        self._announced.setdefault((node, topic), deque()).append(publication)

    def on_message(self, sender: NodeId, receiver: NodeId, message: msgspec.Struct) -> None:
        kind = type(message)
        if self._types is not None and kind not in self._types:
            return
        carried = self._carried(message)
        if carried is None:
            return
        topic, origin, sequence, hops = carried
        publication = self._known.get((topic, origin, sequence)) or self._bind(topic, origin, sequence)
        if publication is None:
            self.unbound += 1
            return
        self.messages[kind] += 1
        self.received[receiver] += 1
        self.sent[sender] += 1
        publication.sends += 1
        if publication.form is None:
            publication.form = kind
        known = publication.reached.get(receiver)
        if known is None and receiver != origin:
            known = publication.reached[receiver] = 2 * hops + (receiver in self._wanted.get(topic, ()))
        elif kind is publication.form:
            publication.duplicates += 1
        if known is not None and not known & 1:
            publication.unwanted_sends += 1

    def on_deliver(self, node: NodeId, delivery: Deliver) -> None:
        topic, origin, sequence = delivery.topic, delivery.origin, delivery.sequence
        publication = self._known.get((topic, origin, sequence)) or self._bind(topic, origin, sequence)
        if publication is None:
            self.unbound += 1
            return
        life = self._lives[node]  # A new incarnation has a new application, which has received nothing.
        application: Application = node if life <= 1 else (node, life)
        if application in publication.delivered:
            publication.repeated += 1
        else:
            publication.delivered[application] = publication.reached.get(node, 0) >> 1
            publication.missing.discard(node)

    # Results

    def measure(
        self, *, since_ms: int = 0, until_ms: int | None = None, topics: Collection[Topic] | None = None
    ) -> Measured:
        """Sum up the events that were published from `since_ms` to before `until_ms`, on these topics or on all."""
        chosen = [
            publication
            for publication in self.publications
            if since_ms <= publication.time_ms
            and (until_ms is None or publication.time_ms < until_ms)
            and (topics is None or publication.topic in topics)
        ]
        return self._sum_up(chosen)

    def missed(self) -> list[tuple[Publication, NodeId]]:
        """Return each expected delivery that is missing, as (publication, subscriber)."""
        return [(one, node) for one in self.publications for node in sorted(self._missed(one))]

    # Helpers, in the order of their calls

    def _since(self, node: NodeId, topics: tuple[Topic, ...], time_ms: int) -> None:
        self._topics[node] = topics
        for topic in topics:
            self._wanted.setdefault(topic, {}).setdefault(node, time_ms)

    def _until(self, node: NodeId, topics: Iterable[Topic]) -> None:
        for topic in topics:
            if self._wanted.get(topic, {}).pop(node, None) is not None:
                self._ended.setdefault((node, topic), []).append(self.world.now_ms)

    def _bind(self, topic: Topic, origin: NodeId, sequence: int) -> Publication | None:
        """Assign a new event to the oldest publication of its publisher and topic that was not seen before."""
        waiting = self._announced.get((origin, topic))
        if not waiting:
            return None
        found = self._known[topic, origin, sequence] = waiting.popleft()
        return found

    def _missed(self, publication: Publication) -> set[NodeId]:
        """Return the expected subscribers that got nothing and stayed subscribed for `grace_ms`."""
        if not publication.missing:
            return publication.missing
        first, topic = publication.time_ms, publication.topic
        last = first + self.grace_ms
        return {
            node
            for node in publication.missing
            if not any(first <= ended <= last for ended in self._ended.get((node, topic), ()))
        }

    def _sum_up(self, chosen: list[Publication]) -> Measured:
        found = Measured(publications=len(chosen))
        hops: Counter[int] = Counter()
        wanted: Counter[NodeId] = Counter()
        unwanted: Counter[NodeId] = Counter()
        for one in chosen:
            own = one.origin in one.delivered
            found.missed += len(self._missed(one))
            found.hits += one.expected - len(one.missing)
            found.deliveries += len(one.delivered) - own
            found.messages += one.sends
            found.unwanted_messages += one.unwanted_sends
            found.duplicates += one.duplicates
            found.repeated += one.repeated
            hops.update(one.delivered.values())
            hops[0] -= own
            wanted.update(node for node, value in one.reached.items() if value & 1)
            unwanted.update(node for node, value in one.reached.items() if not value & 1)
        found.hops = {value: count for value, count in sorted(hops.items()) if count}
        found.wanted, found.unwanted = wanted.total(), unwanted.total()
        found.shares = {node: unwanted[node] / (wanted[node] + unwanted[node]) for node in sorted({*wanted, *unwanted})}
        found.loads = {node: wanted[node] + unwanted[node] for node in found.shares}
        return found


@dataclass
class Measured:
    """The measures of some events."""

    publications: int = 0
    # Expected (event, subscriber) pairs that were delivered, and those that were not.
    hits: int = 0
    missed: int = 0
    deliveries: int = 0  # deliveries to nodes other than the publisher, expected or not
    # Messages that carried or announced an event, and those of them that came to nodes that do not subscribe to its
    # topic.
    messages: int = 0
    unwanted_messages: int = 0
    duplicates: int = 0
    repeated: int = 0
    wanted: int = 0  # First receptions of an event by subscribers of its topic, and by other nodes.
    unwanted: int = 0
    hops: dict[int, int] = field(default_factory=dict)  # deliveries by the number of links that they crossed
    shares: dict[NodeId, float] = field(default_factory=dict)  # traffic overhead of each node that was reached
    loads: dict[NodeId, int] = field(default_factory=dict)  # number of events that reached each node

    @property
    def hit_ratio(self) -> float:
        """Return the share of expected deliveries that happened, or 1 if none was expected."""
        return self.hits / (self.hits + self.missed) if self.missed else 1.0

    @property
    def overhead(self) -> float:
        """Return the share of receptions at nodes that do not subscribe to the event's topic."""
        return self.unwanted / max(1, self.wanted + self.unwanted)

    @property
    def overhead_per_node(self) -> float:
        """Return the mean of the nodes' own overheads."""
        return sum(self.shares.values()) / max(1, len(self.shares))

    @property
    def message_overhead(self) -> float:
        """Return the overhead over all messages, duplicates included (the alternative of E-16)."""
        return self.unwanted_messages / max(1, self.messages)

    @property
    def delay(self) -> float:
        """Return the mean number of links that a delivered event has crossed."""
        return sum(value * count for value, count in self.hops.items()) / max(1, self.deliveries)

    @property
    def messages_per_delivery(self) -> float:
        return self.messages / max(1, self.deliveries)

    @property
    def duplicates_per_delivery(self) -> float:
        return self.duplicates / max(1, self.deliveries)

    @property
    def load(self) -> Distribution:
        return Distribution.of(list(self.loads.values()))

    def share_of_nodes(self, *, above: float) -> float:
        """Return the share of reached nodes whose overhead is above `above`.  [VI Fig. 5]"""
        return sum(1 for share in self.shares.values() if share > above) / max(1, len(self.shares))

    def overhead_histogram(self, bins: int = 10) -> list[int]:
        """Return how many nodes have which overhead, in equal bins from 0 to 1. The last bin includes 1."""
        counts = [0] * bins
        for share in self.shares.values():
            counts[min(bins - 1, int(share * bins))] += 1
        return counts

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Return the measures by name, for a series or a table of results."""
        return {
            f"{prefix}hit_ratio": self.hit_ratio,
            f"{prefix}traffic_overhead": self.overhead,
            f"{prefix}delay_hops": self.delay,
            f"{prefix}publications": float(self.publications),
            f"{prefix}messages_per_delivery": self.messages_per_delivery,
            f"{prefix}duplicates_per_delivery": self.duplicates_per_delivery,
            f"{prefix}repeated_deliveries": float(self.repeated),
        }

    def to_json(self) -> dict[str, Any]:
        load = self.load
        return {
            **self.metrics(),
            "hits": self.hits,
            "missed": self.missed,
            "deliveries": self.deliveries,
            "overhead_per_node": self.overhead_per_node,
            "message_overhead": self.message_overhead,
            "overhead_histogram": self.overhead_histogram(),
            "hops": {str(value): count for value, count in self.hops.items()},
            "load_mean": load.mean,
            "load_max": load.maximum,
        }
