"""The retained messages of this node: published by its clients, or received over the mesh while it took part.

Of two messages on one topic, the later one stays, by the clocks of the nodes that published them.  [MQTT 5, 3.3.1.3]
A node gives a new message a later time than it knows of any earlier one, so that a clock that is set back, or one that
is ahead at another node, does not make the new message the older one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from trellis.protocols.effects import NodeId
from trellis.protocols.mqtt.envelope import Envelope
from trellis.protocols.mqtt.sorted_topics import SortedTopics
from trellis.protocols.wire import counted
from trellis.reached import reached

Stamp = tuple[int, NodeId, int]
_NEVER: Stamp = (-1, "", 0)


class Before(NamedTuple):
    """What was known of a topic before a message on it was put."""

    message: Retained | None
    removed: Stamp | None  # of the removal, if there was one


class Retained(msgspec.Struct, frozen=True):
    """A retained message, with the node that published it."""

    origin: NodeId
    message: Envelope

    @property
    def size(self) -> int:
        """Roughly how many bytes it takes in an answer to other nodes."""
        return 2 * _size(self.message) + 256  # at least as much as it takes in an answer

    @property
    def stamp(self) -> Stamp:
        """The order of messages on a topic: time, then node and number."""
        return self.message.stamp_ms, self.origin, self.message.number


class RetainedMessages:
    """A bounded map from topics to retained messages."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max, self.bytes_max = messages_max, bytes_max
        self.bytes = 0
        self._by_topic: dict[str, Retained] = {}
        self._sorted = SortedTopics()  # the same topics
        # Removed topics, with the stamp of the removal: nothing older is retained again.
        self._gone: OrderedDict[str, Stamp] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_topic)

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def __getitem__(self, topic: str) -> Retained:
        return self._by_topic[topic]

    def get(self, topic: str) -> Retained | None:
        return self._by_topic.get(topic)

    def stamp_of(self, topic: str) -> Stamp:
        """Return the stamp of the retained message of a topic, or of its removal. What is older is not retained."""
        known = self._by_topic.get(topic)
        return known.stamp if known is not None else self._gone.get(topic, _NEVER)

    def put(self, origin: NodeId, message: Envelope) -> bool:
        """Retain a message; an empty payload removes. Return False if there is no space.  [MQTT-3.3.1-5, -6, -7]"""
        new, old = Retained(origin, message), self._by_topic.get(message.topic)
        if new.stamp < self.stamp_of(message.topic):
            return True
        if message.payload:
            is_full = old is None and len(self) >= self.messages_max
            size = self.bytes + _size(message) - (_size(old.message) if old is not None else 0)
            if is_full or size > self.bytes_max:
                reached("there is no room for a retained message")
                return False
        if old is not None:
            if message.payload:
                reached("a retained message is replaced")
            else:
                reached("a retained message is removed")
        self.remove(message.topic)
        if not message.payload:
            self._gone[message.topic] = new.stamp
            self._gone.move_to_end(message.topic)
            if len(self._gone) > self.messages_max:
                self._gone.popitem(last=False)
        else:
            self._gone.pop(message.topic, None)
            self._by_topic[message.topic] = new
            self._sorted.add(message.topic)
            self.bytes += _size(message)
        return True

    def stamp_ms(self, topic: str, wall_ms: int) -> int:
        """Return the time for a new message on `topic`: after all that is known of it, also if the clock went back."""
        return max(wall_ms, counted(self.stamp_of(topic)[0]))

    def before(self, topic: str) -> Before:
        return Before(self._by_topic.get(topic), self._gone.get(topic))

    def restore(self, one: Retained, before: Before) -> None:
        """Undo that `one` was put, unless something later was put since."""
        topic = one.message.topic
        if self.stamp_of(topic) != one.stamp:
            return
        self.remove(topic)
        self._gone.pop(topic, None)
        if before.message is not None:
            self.put(before.message.origin, before.message.message)
        elif before.removed is not None:
            self._gone[topic] = before.removed

    def remove(self, topic: str) -> None:
        """Forget the retained message of a topic."""
        old = self._by_topic.pop(topic, None)
        if old is not None:
            self._sorted.discard(topic)
            self.bytes -= _size(old.message)

    def walk(self, filter_: str) -> Iterator[Retained | None]:
        """Yield the messages that match a filter, and None for each other one that is looked at.

        So the caller can limit the work. Messages may be put and removed in the meantime.
        """
        for topic in self._sorted.walk(filter_):
            yield self._by_topic[topic] if topic is not None else None

    def check(self) -> None:
        assert self.bytes == sum(_size(kept.message) for kept in self._by_topic.values())
        assert len(self) <= self.messages_max
        assert len(self._sorted) == len(self)
        assert all(topic in self._sorted for topic in self._by_topic)
        assert self.bytes <= self.bytes_max


def _size(message: Envelope) -> int:
    """Return roughly how much memory a message takes, its properties included."""
    return len(message.payload) + len(message.topic) + message.content.size
