"""Make a workload of publications, as faults of a schedule.  [VI §IV, MG §4]

    one_per_topic(interests, start_ms=..., span_ms=..., seed=...)      every topic once
    by_rates(interests, rates, count=..., ...)                         topics drawn by their rates
    together(churn_schedule, publications)                             one schedule of both

The publisher is a random subscriber of the topic (VI; the default), any node, or the node that the caller names for the
topic. If a schedule of churn is given, only nodes that are there at that time publish. An event is left out if its
topic has no subscriber then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Literal

from trellis import ids
from trellis.errors import InputError
from trellis.protocols.effects import NodeId, Topic
from trellis.simulate.schedule import Fault, Schedule

InterestsByNode = Mapping[NodeId, Iterable[Topic]]
Publisher = Literal["subscriber", "anybody"] | Mapping[Topic, NodeId]
_GONE = ("leave", "crash", "crash-uniform", "crash-adjacent", "crash-ring", "crash-hub", "restart")


def one_per_topic(
    interests: InterestsByNode,
    *,
    start_ms: int,
    span_ms: int,
    seed: int,
    publisher: Publisher = "subscriber",
    churn: Schedule | None = None,
    events: int = 1,
) -> tuple[Fault, ...]:
    """Return `events` publications on every topic that has a subscriber, in random order, evenly over the span."""
    topics = sorted({topic for wanted in interests.values() for topic in wanted}) * events
    Random(ids.stream(seed, "publications", "order")).shuffle(topics)
    return _published(interests, topics, start_ms, span_ms, seed, publisher, churn)


def by_rates(
    interests: InterestsByNode,
    rates: Mapping[Topic, float],
    *,
    count: int,
    start_ms: int,
    span_ms: int,
    seed: int,
    publisher: Publisher = "subscriber",
    churn: Schedule | None = None,
) -> tuple[Fault, ...]:
    """Return `count` publications, each on a topic drawn with probability proportional to its rate."""
    topics = sorted(topic for topic, rate in rates.items() if rate > 0)
    if not topics:
        raise InputError("", "no topic has a rate above 0", "give the rates of the topics")
    weights = list(accumulate(rates[topic] for topic in topics))
    drawn = Random(ids.stream(seed, "publications", "rates")).choices(topics, cum_weights=weights, k=count)
    return _published(interests, drawn, start_ms, span_ms, seed, publisher, churn)


def together(*schedules: Schedule | Sequence[Fault]) -> Schedule:
    """Return all faults in time order. Faults of the same instant keep the order in which they are given."""
    faults = [fault for one in schedules for fault in (one.faults if isinstance(one, Schedule) else one)]
    absent = {name for one in schedules if isinstance(one, Schedule) for name in one.absent}
    return Schedule(tuple(sorted(faults, key=lambda fault: fault.time_ms)), tuple(sorted(absent)))


class _Presence:
    """The nodes that are there and their topics, while a schedule with named nodes advances."""

    def __init__(self, interests: InterestsByNode, churn: Schedule) -> None:
        self.interests = {node: tuple(topics) for node, topics in interests.items()}
        self.topics: dict[NodeId, set[Topic]] = {}
        self.subscribers: dict[Topic, dict[NodeId, None]] = {}
        self._coming = sorted(
            [*churn.faults, *_returns(churn)],
            key=lambda fault: fault.time_ms,
        )
        self._place = 0
        absent = set(churn.absent)
        for node in sorted(self.interests):
            if node not in absent:
                self._join(node, self.interests[node])

    def advance(self, time_ms: int) -> None:
        """Apply all events up to and including this time."""
        while self._place < len(self._coming) and self._coming[self._place].time_ms <= time_ms:
            fault = self._coming[self._place]
            self._place += 1
            for node in fault.nodes:
                if fault.kind == "join":
                    self._join(node, fault.topics or self.interests.get(node, ()))
                elif fault.kind in _GONE:
                    self._leave(node)
                elif fault.kind in ("subscribe", "unsubscribe") and node in self.topics:
                    wanted = self.topics[node]
                    changed = wanted | set(fault.topics) if fault.kind == "subscribe" else wanted - set(fault.topics)
                    self._leave(node)
                    self._join(node, changed)

    def _join(self, node: NodeId, topics: Iterable[Topic]) -> None:
        self._leave(node)
        self.topics[node] = set(topics)
        for topic in sorted(self.topics[node]):
            self.subscribers.setdefault(topic, {})[node] = None

    def _leave(self, node: NodeId) -> None:
        for topic in self.topics.pop(node, ()):
            del self.subscribers[topic][node]


def _returns(churn: Schedule) -> list[Fault]:
    """Return the joins that end restarts."""
    return [
        Fault(fault.time_ms + fault.duration_ms, "join", fault.nodes)
        for fault in churn.faults
        if fault.kind == "restart"
    ]


def _published(
    interests: InterestsByNode,
    topics: Sequence[Topic],
    start_ms: int,
    span_ms: int,
    seed: int,
    publisher: Publisher,
    churn: Schedule | None,
) -> tuple[Fault, ...]:
    if start_ms < 0 or span_ms < 0:
        raise InputError("", f"publications from {start_ms} ms for {span_ms} ms", "times are not negative")
    random = Random(ids.stream(seed, "publications", "publishers"))
    there = _Presence(interests, churn or Schedule())
    faults = []
    for place, topic in enumerate(topics):
        time_ms = start_ms + place * span_ms // max(1, len(topics))
        there.advance(time_ms)
        node = _choose(there, topic, publisher, random)
        if node is not None:
            faults.append(Fault(time_ms, "publish", (node,), topics=(topic,)))
    return tuple(faults)


def _choose(there: _Presence, topic: Topic, publisher: Publisher, random: Random) -> NodeId | None:
    subscribers = there.subscribers.get(topic)
    if not subscribers:
        return None
    if isinstance(publisher, Mapping):
        return publisher.get(topic)
    among = list(subscribers) if publisher == "subscriber" else list(there.topics)
    return among[random.randrange(len(among))]
