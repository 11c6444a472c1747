"""Subscriptions from the request to the confirmation, and periodic work: registrations, forgetting.

A new subscription passes through these steps. Each follows from the answer to the previous one, and the tick repeats
whatever was not answered.

1. `begin`: the topic's home is told (Register). It answers when its heir knows the registration as well (Registered).
2. `registered`: without neighbors on the topic, the home is asked who else subscribes (AskHome).
3. A baseline: nobody else subscribes, or a neighbor has compared.
4. `confirm`: it is registered and has a baseline.

Step 2 follows step 1, so that of two nodes that subscribe at the same moment, at least one learns of the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from trellis.protocols.delivery.homes import Homes
from trellis.protocols.delivery.order import Order
from trellis.protocols.delivery.outcome import Confirmed, Overflowed
from trellis.protocols.delivery.state import State
from trellis.protocols.delivery.streams import TopicState
from trellis.protocols.effects import Incarnation, NodeId, Topic

_FORGET_TICKS = 16  # ticks between two rounds of forgetting
_QUESTIONS_MAX = 2_048  # Most questions to homes in one tick, about topics that have neither a baseline nor a neighbor.
_AT_ONCE_MAX = 256  # Most new subscriptions that are registered at once. The tick registers the others.


class Upkeep:
    """Moves subscriptions toward their confirmation, and forgets old streams and topics."""

    def __init__(self, state: State, order: Order, homes: Homes) -> None:
        self.state, self.order, self.homes = state, order, homes
        self.unregistered: dict[Topic, None] = {}  # subscriptions that no home has confirmed yet
        self._alone: list[Topic] = []  # topics whose homes are asked in this tick whether anybody else subscribes
        self._ticks = self._overflows = 0

    def tick(self, *, registers: bool) -> None:
        """Do the periodic work. `registers`: subscriptions are to be registered with homes."""
        self._ticks += 1
        self._settle_topics()
        overflows = self.state.store.overflows
        if overflows > self._overflows:
            self.state.out.append(Overflowed(overflows - self._overflows))
            self._overflows = overflows
        if self.state.overlay.has_homes:
            self.homes.tick()
        if registers:
            self._register()
        if self._ticks % _FORGET_TICKS == 0:
            self._forget()

    def begin(self, topics: list[Topic]) -> None:
        """Register new subscriptions: the overlay takes part in their topics now."""
        if self.state.overlay.has_homes:
            self.homes.register([topic for topic in topics if topic in self.unregistered][:_AT_ONCE_MAX])

    def registered(self, topics: Iterable[Topic]) -> None:
        """Take in that a home has confirmed these subscriptions."""
        for name in topics:
            if name in self.unregistered:
                del self.unregistered[name]
                topic = self.state.topics.get(name)
                if topic is not None and topic.is_registered and self._is_alone(topic):
                    self.homes.ask(name)

    def confirm(self) -> None:
        """Confirm subscriptions that were registered or got a baseline since the last call."""
        changed, self.state.changed = self.state.changed, {}
        for name in changed:
            topic = self.state.topics.get(name)
            if topic is None or not topic.is_confirmed or topic.was_confirmed:
                continue
            if self.homes.has_moved(name):
                topic.is_registered, self.unregistered[name] = False, None
                continue
            topic.was_confirmed = True
            if not topic.resumes or topic.confirmed_ms is None:
                topic.confirmed_ms = self.state.time_ms
            if self.state.durable is not None:
                self.state.durable.confirmed(topic)
            self.state.out.append(Confirmed(name))

    def _is_alone(self, topic: TopicState) -> bool:
        """Return whether a subscription has neither a baseline nor a neighbor that could give one."""
        return topic.takes_part and topic.is_wanted and not topic.is_settled and not self.state.open_links(topic)

    def _settle_topics(self) -> None:
        """Look for baselines of all topics that have none."""
        self._alone = []
        for topic in self.state.topics.values():
            if topic.takes_part and not topic.is_settled:
                self._wait_for_baseline(topic)
        # Questions about thousands of topics take turns, because one link to a node that subscribes to them settles
        # many.
        first = self._ticks * _QUESTIONS_MAX % max(1, len(self._alone))
        for name in [*self._alone[first:], *self._alone[:first]][:_QUESTIONS_MAX]:
            self.homes.ask(name)

    def _wait_for_baseline(self, topic: TopicState) -> None:
        """Settle a topic without a baseline if no neighbor can give one, or note that its home must be asked.

        If no neighbor has a baseline either, nobody was there before us. Without neighbors, the home knows who
        subscribes.
        """
        now_ms, config = self.state.now_ms, self.state.config
        if not self.state.overlay.has_homes and self.state.why_unjoined():
            return  # there is no home that would have to know of it
        if now_ms - topic.since_ms >= config.alone_ms:
            self.order.settle(topic, {})
        elif self.state.open_links(topic):
            if now_ms - max(topic.changed_ms, topic.since_ms) >= config.confirm_ms:
                self.order.settle(topic, {})
        elif not topic.is_wanted:
            pass  # nobody to relay for: nobody asks for our baseline
        elif self.state.overlay.has_homes:
            if topic.is_registered:
                self._alone.append(topic.topic)
        elif not self.state.overlay.subscribers(topic.topic):
            self.order.settle(topic, {})

    def _register(self) -> None:
        """Repeat all registrations once per `register_ms`, and unconfirmed ones at every tick."""
        every = max(1, self.state.config.register_ms // self.state.config.tick_ms)
        if self._ticks % every == 0:
            due = [name for name, topic in self.state.topics.items() if topic.is_wanted]
            self.unregistered.update(dict.fromkeys(due))  # they are repeated at every tick until their homes answer
        else:
            due = list(self.unregistered)
        if due:
            self.homes.register(due)

    def _forget(self) -> None:
        """Forget streams of incarnations that have ended, and streams that were silent for very long.

        Only a neighbor that itself speaks in a later incarnation proves that an earlier one has ended. Anybody else
        could say so in its name. Then the stream is forgotten after a very long silence.
        """
        state, config = self.state, self.state.config
        tombstone_ms = config.tombstone_ms if state.durable is None else max(config.tombstone_ms, 3 * state.keep_ms)
        quiet, silent = state.now_ms - 3 * state.keep_ms, state.now_ms - tombstone_ms
        # Our sequences on a topic that we have left may start from 1 again only when all others have forgotten them.
        # Others touch a stream at most two windows after its last publication.
        own = silent - tombstone_ms
        for topic in state.topics.values():
            newest: dict[
                NodeId, Incarnation
            ] = {}  # incarnations that have begun so long ago that nothing of an earlier one is about
            for (origin, incarnation), stream in topic.streams.items():
                if stream.since_ms < quiet:
                    newest[origin] = max(incarnation, newest.get(origin, Incarnation(0)))
            for (origin, incarnation), stream in list(topic.streams.items()):
                if stream.entries or stream.waiting:
                    continue
                if (origin, incarnation) == (state.id, state.overlay.incarnation):
                    if stream.touched_ms < own and not topic.takes_part:
                        del topic.streams[origin, incarnation]
                    continue
                present = self.order.claims.incarnation_of(origin) or Incarnation(0)
                if stream.touched_ms < quiet and incarnation < min(present, newest.get(origin, Incarnation(0))):
                    state.ended[origin] = (
                        max(incarnation, state.ended.get(origin, (Incarnation(0), 0))[0]),
                        state.now_ms,
                    )
                    del topic.streams[origin, incarnation]
                elif stream.touched_ms < silent:
                    del topic.streams[origin, incarnation]
        for name in [name for name, topic in state.topics.items() if _is_over(topic)]:
            del state.topics[name]
        state.streams = sum(len(topic.streams) for topic in state.topics.values())
        for origin in [origin for origin, (_, noted) in state.ended.items() if noted < silent]:
            del state.ended[origin]


def _is_over(topic: TopicState) -> bool:
    return not (topic.takes_part or topic.is_wanted or topic.streams or topic.links)
