"""Interests as Python-int bitsets over the topics that somebody has named: `&`, `|` and `.bit_count()` are cheap.

Bits are handed out as topics are first seen, so they mean nothing outside the table; names travel, bits do not.
In a simulation all nodes of a process may share one table.

Names come from the network, so a table must not keep them for ever. A live node has a table of its own and forgets the
names that no bitset of its own has any more (`forgetting.py`). Their places are used again, the lowest first.

T1  a name has at most one place, and a place at most one name; a place without a name is in `_free`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trellis.protocols.effects import Topic

NAMES_MAX = 262_144  # that others can make a node keep; what it takes part in itself is always named


class TopicTable:
    """Topic <-> bit. `bits(topics)` is cached: the same interest arrives in message after message."""

    def __init__(self) -> None:
        self.names: list[Topic] = []  # by place; empty: no topic has the place now
        self.is_shared = True  # False: one node alone uses it, and may forget
        self.due = _DUE_LEAST  # names, until it is worth looking for those that are not used any more
        self._place: dict[Topic, int] = {}
        self._free: list[int] = []  # descending
        self._cache: dict[tuple[Topic, ...], int] = {}
        self._cached = 0  # topics in its keys

    def __len__(self) -> int:
        return len(self._place)

    def bit(self, topic: Topic) -> int:
        """The bitset of one topic."""
        place = self._place.get(topic)
        if place is None:
            if self._free:
                place = self._free.pop()
                self.names[place] = topic
            else:
                place = len(self.names)
                self.names.append(topic)
            self._place[topic] = place
        return 1 << place

    def known(self, topic: Topic) -> int:
        """The same; 0 where nobody has named the topic yet, and it stays unnamed.

        For what arrives about topics that matter only if they are ours: whoever asks about names that it has made up
        shall not fill the table.
        """
        place = self._place.get(topic)
        return 0 if place is None else 1 << place

    def bits(self, topics: tuple[Topic, ...]) -> int:
        """The bitset of what another node says that it wants. Where the table is full, new names are left out."""
        known = self._cache.get(topics)
        if known is None:
            if len(self._place) + len(topics) > NAMES_MAX:
                return self._of_known(topics)
            known = self.own_bits(topics)
            self._cached += len(topics)
            if len(self._cache) >= _CACHE_MAX or self._cached > _CACHED_TOPICS_MAX:
                self._cache.clear()
                self._cached = len(topics)
            self._cache[topics] = known
        return known

    def own_bits(self, topics: Iterable[Topic]) -> int:
        """The bitset of topics that the owner takes part in: they are named even where the table is full."""
        found = 0
        for topic in topics:
            found |= self.bit(topic)
        return found

    def topics(self, bits: int) -> tuple[Topic, ...]:
        """The names of a bitset, sorted: the form in which interests travel."""
        return tuple(sorted(self.names[place] for place in places(bits)))

    def keep_only(self, held: int) -> None:
        """Forget the names whose bits are not in `held`. No bitset that has one of them may be used afterwards."""
        kept = held.to_bytes(max(held.bit_length(), len(self.names)) // 8 + 1, "little")
        for place, name in enumerate(self.names):
            if name and not kept[place >> 3] >> (place & 7) & 1:
                del self._place[name]
                self.names[place] = ""
        while self.names and not self.names[-1]:
            self.names.pop()
        self._free = [place for place in range(len(self.names) - 1, -1, -1) if not self.names[place]]
        self._cache.clear()
        self._cached = 0
        self.due = max(_DUE_LEAST, 2 * len(self._place))

    def check(self) -> None:
        named = {name: place for place, name in enumerate(self.names) if name}
        assert named == self._place, "T1: names and places differ"
        assert sorted(self._free) == [place for place, name in enumerate(self.names) if not name], "T1: free places"

    @staticmethod
    def normal(topics: Iterable[Topic]) -> tuple[Topic, ...]:
        return tuple(sorted(set(topics)))

    def _of_known(self, topics: tuple[Topic, ...]) -> int:
        """Not cached: a name may be known later."""
        found = 0
        for topic in topics:
            found |= self.known(topic)
        return found


_WORD_BITS = 1_024
_WORD = (1 << _WORD_BITS) - 1
_CACHE_MAX = 100_000
_CACHED_TOPICS_MAX = 4_000_000  # interests may be long: a hundred thousand of them would fill any memory
_DUE_LEAST = 4_096


def places(bits: int) -> Iterator[int]:
    """Return the places of the bits that are set, ascending.

    Taking bits off a long number copies it each time, so it is cut into words first.
    """
    for start in range(0, bits.bit_length(), _WORD_BITS):
        word = bits >> start & _WORD if start or bits > _WORD else bits
        while word:
            lowest = word & -word
            yield start + lowest.bit_length() - 1
            word ^= lowest
