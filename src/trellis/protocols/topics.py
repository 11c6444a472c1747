"""Interests as bitsets in Python ints, one bit for each topic that was named. `&`, `|` and `.bit_count()` are cheap.

A topic gets a bit when it is first seen. So bits mean nothing outside of their table: messages have names, never bits.
In a simulation all nodes of a process may share one table.

Names come from the network, so a table must not keep them for ever. A live node has its own table, and forgets names
whose bits are in none of its bitsets any more (`forgetting.py`). The index of a forgotten name is used again, the
lowest first.

T1  A name has at most one bit, and a bit at most one name. `_free` has the indexes without a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trellis.protocols.effects import Topic

NAMES_MAX = 262_144  # Most names that other nodes can make a node keep. Its own topics always get a bit.


class TopicTable:
    """Maps topics to bits and back. `bits` is cached, because the same interest arrives in many messages."""

    def __init__(self) -> None:
        self.names: list[Topic] = []  # By index of the bit. An empty name: no topic has this bit now.
        self.is_shared = True  # False: only one node uses the table, and may forget names.
        self.due = _DUE_LEAST  # The number of names from which on it is worth looking for unused ones.
        self._index: dict[Topic, int] = {}
        self._free: list[int] = []  # in descending order
        self._cache: dict[tuple[Topic, ...], int] = {}
        self._cached = 0  # number of topics in the keys of `_cache`

    def __len__(self) -> int:
        return len(self._index)

    def bit(self, topic: Topic) -> int:
        """Return the bitset of one topic. A new topic gets a bit."""
        index = self._index.get(topic)
        if index is None:
            if self._free:
                index = self._free.pop()
                self.names[index] = topic
            else:
                index = len(self.names)
                self.names.append(topic)
            self._index[topic] = index
        return 1 << index

    def known(self, topic: Topic) -> int:
        """Return the bitset of one topic, or 0 if it has no bit. A new topic gets none.

        Used for messages about topics that matter only if this node knows them. So a node that asks about invented
        names cannot fill the table.
        """
        index = self._index.get(topic)
        return 0 if index is None else 1 << index

    def bits(self, topics: tuple[Topic, ...]) -> int:
        """Return the bitset of the topics that another node has named.

        If they might not fit into the table, new names are ignored.
        """
        known = self._cache.get(topics)
        if known is None:
            if len(self._index) + len(topics) > NAMES_MAX:
                return self._of_known(topics)
            known = self.own_bits(topics)
            self._cached += len(topics)
            if len(self._cache) >= _CACHE_MAX or self._cached > _CACHED_TOPICS_MAX:
                self._cache.clear()
                self._cached = len(topics)
            self._cache[topics] = known
        return known

    def own_bits(self, topics: Iterable[Topic]) -> int:
        """Return the bitset of topics that the owner takes part in. They get bits even if the table is full."""
        bits = 0
        for topic in topics:
            bits |= self.bit(topic)
        return bits

    def topics(self, bits: int) -> tuple[Topic, ...]:
        """Return the names of a bitset, sorted, as messages have them."""
        return tuple(sorted(self.names[index] for index in places(bits)))

    def keep_only(self, held: int) -> None:
        """Forget the names whose bits are not in `held`. No bitset that has one of them may be used afterwards."""
        kept = held.to_bytes(max(held.bit_length(), len(self.names)) // 8 + 1, "little")
        for index, name in enumerate(self.names):
            if name and not kept[index >> 3] >> (index & 7) & 1:
                del self._index[name]
                self.names[index] = ""
        while self.names and not self.names[-1]:
            self.names.pop()
        self._free = [index for index in range(len(self.names) - 1, -1, -1) if not self.names[index]]
        self._cache.clear()
        self._cached = 0
        self.due = max(_DUE_LEAST, 2 * len(self._index))

    def check(self) -> None:
        """Assert the invariant T1."""
        named = {name: index for index, name in enumerate(self.names) if name}
        assert named == self._index, "T1: names and indexes differ"
        assert sorted(self._free) == [index for index, name in enumerate(self.names) if not name], "T1: free indexes"

    @staticmethod
    def normal(topics: Iterable[Topic]) -> tuple[Topic, ...]:
        """Return topics as messages have them: sorted, each once."""
        return tuple(sorted(set(topics)))

    def _of_known(self, topics: tuple[Topic, ...]) -> int:
        """Return the bitset of those topics that have a bit. It is not cached, since others may get one later."""
        bits = 0
        for topic in topics:
            bits |= self.known(topic)
        return bits


_WORD_BITS = 1_024
_WORD = (1 << _WORD_BITS) - 1
_CACHE_MAX = 100_000
_CACHED_TOPICS_MAX = 4_000_000  # Interests may be long: a hundred thousand of them would fill the memory.
_DUE_LEAST = 4_096


def places(bits: int) -> Iterator[int]:
    """Yield the indexes of the bits that are set, in ascending order.

    Clearing a bit of a long int copies the int. So the int is first cut into words.
    """
    for start in range(0, bits.bit_length(), _WORD_BITS):
        word = bits >> start & _WORD if start or bits > _WORD else bits
        while word:
            lowest = word & -word
            yield start + lowest.bit_length() - 1
            word ^= lowest
