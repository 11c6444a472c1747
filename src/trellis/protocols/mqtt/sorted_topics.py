"""A sorted list of topics: those that match a filter are found without looking at all others.

Topics with a common beginning stand side by side, so the list serves as a tree of levels. It takes no memory for
levels, of which a topic may have many.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

_AFTER = chr(ord("/") + 1)  # everything that begins with "a/" stands before "a" + _AFTER
_GARBAGE_MIN = 64  # removed topics that may stay in the list


class SortedTopics:
    """A set of topics, in order."""

    def __init__(self) -> None:
        self._topics: set[str] = set()
        self._sorted: list[str] = []  # the topics of `_topics`, and some that were removed

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def add(self, topic: str) -> None:
        if topic in self._topics:
            return
        self._topics.add(topic)
        index = bisect_left(self._sorted, topic)
        if index == len(self._sorted) or self._sorted[index] != topic:
            self._sorted.insert(index, topic)

    def discard(self, topic: str) -> None:
        self._topics.discard(topic)
        if len(self._sorted) > 2 * len(self._topics) + _GARBAGE_MIN:
            self._sorted = [topic for topic in self._sorted if topic in self._topics]

    def walk(self, filter_: str) -> Iterator[str | None]:
        """Yield the topics that match a filter, and None for each other entry of the list that is looked at.

        So the caller can limit the work. It may add and discard topics in the meantime.  [MQTT-4.7.1-2, 4.7.2-1]
        """
        is_any = filter_[:1] in ("+", "#")
        for topic in self._below("", filter_.split("/")):
            yield None if is_any and topic is not None and topic[:1] == "$" else topic

    def _below(self, start: str, levels: list[str]) -> Iterator[str | None]:
        """Yield the topics that begin with `start`, and match `levels` after that.

        `start` is empty, or ends with a slash.
        """
        plain = next((index for index, level in enumerate(levels) if level in ("+", "#")), len(levels))
        start += "".join(level + "/" for level in levels[:plain])
        levels = levels[plain:]
        if plain and levels in ([], ["#"]):
            yield self._if_there(start[:-1])  # `a/#` matches `a`
        if not levels:
            return
        bound = start
        while (topic := self._from(bound)) is not None and topic.startswith(start):
            end = topic.find("/", len(start))
            if levels[0] == "#":
                yield self._if_there(topic)
                bound = topic + "\0"
            elif end < 0:  # its last level
                yield self._if_there(topic) if levels[1:] in ([], ["#"]) else None
                bound = topic + "\0"
            else:
                yield None
                if len(levels) > 1:
                    yield from self._below(topic[: end + 1], levels[1:])
                bound = topic[:end] + _AFTER  # past all that begin with the same level

    def _if_there(self, topic: str) -> str | None:
        """Return the topic, or None if it was removed."""
        return topic if topic in self._topics else None

    def _from(self, bound: str) -> str | None:
        """Return the first topic that does not stand before `bound`."""
        index = bisect_left(self._sorted, bound)
        return self._sorted[index] if index < len(self._sorted) else None
