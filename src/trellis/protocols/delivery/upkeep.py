"""Subscriptions from the wish to the confirmation, and what is done once per tick: registrations, forgetting.

A new subscription goes through these steps. Each follows at once from the answer to the one before, and the tick
repeats whatever was not answered.

1. `begin`      its topic's home is told (Register), and answers when its heir knows it as well (Registered)
2. `registered` without neighbors on the topic, the home is asked who else subscribes (AskHome)
3. a baseline   nobody else subscribes, or a neighbor has compared
4. `confirm`    it is registered and has a baseline

Step 2 comes after step 1: of two nodes that subscribe at the same moment, at least one then hears of the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from trellis.protocols.delivery.homes import Homes
from trellis.protocols.delivery.order import Order
from trellis.protocols.delivery.outcome import Confirmed, Overflowed
from trellis.protocols.delivery.state import State
from trellis.protocols.delivery.streams import TopicState
from trellis.protocols.effects import NodeId, Topic

_FORGET_TICKS = 16
_QUESTIONS_MAX = 2_048  # to homes in one tick, about topics that have no baseline and no neighbor
_AT_ONCE_MAX = 256  # new subscriptions whose homes are told at once; the tick tells those of the others


class Upkeep:
    def __init__(self, state: State, order: Order, homes: Homes) -> None:
        self.state, self.order, self.homes = state, order, homes
        self.unregistered: dict[Topic, None] = {}  # subscriptions that no home has answered yet
        self._alone: list[Topic] = []  # topics whose homes are asked in this tick whether anybody else subscribes
        self._ticks = self._overflows = 0

    def tick(self, *, registers: bool) -> None:
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
        """The overlay takes part in the topics of new subscriptions now. Tell their homes."""
        if self.state.overlay.has_homes:
            self.homes.register([topic for topic in topics if topic in self.unregistered][:_AT_ONCE_MAX])

    def registered(self, topics: Iterable[Topic]) -> None:
        for name in topics:
            if name in self.unregistered:
                del self.unregistered[name]
                topic = self.state.topics.get(name)
                if topic is not None and topic.is_registered and self._is_alone(topic):
                    self.homes.ask(name)

    def confirm(self) -> None:
        """Confirm subscriptions that have been registered or got a baseline since the last look."""
        changed, self.state.changed = self.state.changed, {}
        for name in changed:
            topic = self.state.topics.get(name)
            if topic is None or not topic.is_confirmed or topic.was_confirmed:
                continue
            if self.homes.has_moved(name):
                topic.is_registered, self.unregistered[name] = False, None
                continue
            topic.was_confirmed, topic.confirmed_ms = True, self.state.time_ms
            self.state.out.append(Confirmed(name))

    def _is_alone(self, topic: TopicState) -> bool:
        """Return whether a subscription has neither a baseline nor a neighbor that could give one."""
        return topic.takes_part and topic.is_wanted and not topic.is_settled and not self.state.ways(topic)

    def _settle_topics(self) -> None:
        self._alone = []
        for topic in self.state.topics.values():
            if topic.takes_part and not topic.is_settled:
                self._wait_for_baseline(topic)
        # Questions about thousands of topics take turns: one link to a node that wants them answers many.
        first = self._ticks * _QUESTIONS_MAX % max(1, len(self._alone))
        for name in [*self._alone[first:], *self._alone[:first]][:_QUESTIONS_MAX]:
            self.homes.ask(name)

    def _wait_for_baseline(self, topic: TopicState) -> None:
        """Neighbours that have none either: nobody was there before us. No neighbours: does anybody subscribe?"""
        now_ms, config = self.state.now_ms, self.state.config
        if not self.state.overlay.has_homes and self.state.why_unjoined():
            return  # there is no home that would have to know of it
        if now_ms - topic.since_ms >= config.alone_ms:
            self.order.settle(topic, {})
        elif self.state.ways(topic):
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
        every = max(1, self.state.config.register_ms // self.state.config.tick_ms)
        if self._ticks % every == 0:
            due = [name for name, topic in self.state.topics.items() if topic.is_wanted]
            self.unregistered.update(dict.fromkeys(due))  # until their homes answer, they are asked at every tick
        else:
            due = list(self.unregistered)
        if due:
            self.homes.register(due)

    def _forget(self) -> None:
        """Forget streams of incarnations that are over, and those that were silent for very long.

        Only a neighbor that speaks of its own later incarnation proves that an earlier one is over. Anybody could say
        so in its name: then the stream is forgotten when it was silent for very long.
        """
        state, config = self.state, self.state.config
        quiet, silent = state.now_ms - 3 * config.window_ms, state.now_ms - config.tombstone_ms
        # Our numbers on a topic that we have left begin anew when all others have forgotten them, and not before:
        # others touch a stream at most two windows after its last publication.
        own = silent - config.tombstone_ms
        for topic in state.topics.values():
            newest: dict[NodeId, int] = {}  # lives that have begun so long ago that nothing of an earlier one is about
            for (origin, life), stream in topic.streams.items():
                if stream.since_ms < quiet:
                    newest[origin] = max(life, newest.get(origin, 0))
            for (origin, life), stream in list(topic.streams.items()):
                if stream.entries or stream.waiting:
                    continue
                if (origin, life) == (state.id, state.overlay.life):
                    if stream.touched_ms < own and not topic.takes_part:
                        del topic.streams[origin, life]
                    continue
                present = self.order.claims.incarnation_of(origin) or 0
                if stream.touched_ms < quiet and life < min(present, newest.get(origin, 0)):
                    state.ended[origin] = (max(life, state.ended.get(origin, (0, 0))[0]), state.now_ms)
                    del topic.streams[origin, life]
                elif stream.touched_ms < silent:
                    del topic.streams[origin, life]
        for name in [name for name, topic in state.topics.items() if _is_over(topic)]:
            del state.topics[name]
        state.streams = sum(len(topic.streams) for topic in state.topics.values())
        for origin in [origin for origin, (_, noted) in state.ended.items() if noted < silent]:
            del state.ended[origin]


def _is_over(topic: TopicState) -> bool:
    return not (topic.takes_part or topic.is_wanted or topic.streams or topic.ways)
