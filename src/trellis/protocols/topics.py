"""Interests as Python-int bitsets over the topics that somebody has named: `&`, `|` and `.bit_count()` are cheap.

Bits are handed out as topics are first seen, so they mean nothing outside the table; names travel, bits do not.
In a simulation all nodes of a process may share one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trellis.protocols.effects import Topic


class TopicTable:
    """Topic <-> bit. `bits(topics)` is cached: the same interest arrives in message after message."""

    def __init__(self) -> None:
        self.names: list[Topic] = []
        self._place: dict[Topic, int] = {}
        self._cache: dict[tuple[Topic, ...], int] = {}
        self._cached = 0  # topics in its keys

    def bit(self, topic: Topic) -> int:
        """The bitset of one topic."""
        place = self._place.get(topic)
        if place is None:
            place = self._place[topic] = len(self.names)
            self.names.append(topic)
        return 1 << place

    def known(self, topic: Topic) -> int:
        """The same; 0 where nobody has named the topic yet, and it stays unnamed.

        For what arrives about topics that matter only if they are ours: whoever asks about names that it has made up
        shall not fill the table.
        """
        place = self._place.get(topic)
        return 0 if place is None else 1 << place

    def bits(self, topics: tuple[Topic, ...]) -> int:
        known = self._cache.get(topics)
        if known is None:
            known = 0
            for topic in topics:
                known |= self.bit(topic)
            self._cached += len(topics)
            if len(self._cache) >= _CACHE_MAX or self._cached > _CACHED_TOPICS_MAX:
                self._cache.clear()
                self._cached = len(topics)
            self._cache[topics] = known
        return known

    def topics(self, bits: int) -> tuple[Topic, ...]:
        """The names of a bitset, sorted: the form in which interests travel."""
        return tuple(sorted(self.names[place] for place in places(bits)))

    @staticmethod
    def normal(topics: Iterable[Topic]) -> tuple[Topic, ...]:
        return tuple(sorted(set(topics)))


_LONG_BITS = 1_024
_CACHE_MAX = 100_000
_CACHED_TOPICS_MAX = 4_000_000  # interests may be long: a hundred thousand of them would fill any memory


def places(bits: int) -> Iterator[int]:
    """The places of the bits that are set, ascending."""
    if bits.bit_length() > _LONG_BITS:  # each step of the loop below would copy all of them
        text = bin(bits)[:1:-1]
        place = text.find("1")
        while place >= 0:
            yield place
            place = text.find("1", place + 1)
        return
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
