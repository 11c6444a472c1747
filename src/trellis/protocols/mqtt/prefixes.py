"""An index of overlay topics by their levels: those that fit a pattern are found without looking at all others.

P1  Every overlay topic is listed once for each of its first LEVELS_INDEXED levels, and once for its number of levels.
"""

from __future__ import annotations

from collections.abc import Iterator

from trellis.protocols.effects import Topic
from trellis.protocols.mqtt.topics import as_topic, matches

LEVELS_INDEXED = 4  # Each indexed level takes memory. Overlay topics have 2 levels by default.

_Key = tuple[int, str | int]  # (index, name) of a level, or (-1, number of levels)


class Prefixes:
    """A set of overlay topics with its index."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._all: dict[Topic, None] = {}
        self._listed: dict[_Key, dict[Topic, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._all)

    def __contains__(self, prefix: Topic) -> bool:
        return prefix in self._all

    def add(self, prefix: Topic) -> None:
        if prefix not in self._all:
            self._all[prefix] = None
            for key in self._keys(prefix):
                self._listed.setdefault(key, {})[prefix] = None

    def discard(self, prefix: Topic) -> None:
        if prefix in self._all:
            del self._all[prefix]
            for key in self._keys(prefix):
                del self._listed[key][prefix]
                if not self._listed[key]:
                    del self._listed[key]

    def _keys(self, prefix: Topic) -> list[_Key]:
        levels = as_topic(prefix, self.depth).split("/")
        return [(-1, len(levels)), *enumerate(levels[:LEVELS_INDEXED])]

    def fitting(self, pattern: str) -> Iterator[Topic]:
        """Yield the overlay topics that a pattern covers."""
        return (prefix for prefix in self.walk(pattern) if prefix is not None)

    def walk(self, pattern: str) -> Iterator[Topic | None]:
        """Yield the overlay topics that a pattern covers, and None for each other one that is looked at.

        So the caller can limit the work. It may add and discard overlay topics in the meantime.
        """
        for prefix in list(self._candidates(pattern)):
            if prefix in self._all:
                yield prefix if matches(pattern, as_topic(prefix, self.depth)) else None

    def _candidates(self, pattern: str) -> dict[Topic, None]:
        """Return the shortest list that contains everything that fits. With at most two levels, all of it fits."""
        levels = pattern.split("/")
        keys: list[_Key] = [
            (index, level) for index, level in enumerate(levels[:LEVELS_INDEXED]) if level not in ("+", "#")
        ]
        if levels[-1] != "#":
            keys.append((-1, len(levels)))
        return min([self._listed.get(key, {}) for key in keys], key=len, default=self._all)

    def check(self) -> None:
        listed = {(key, prefix) for key, prefixes in self._listed.items() for prefix in prefixes}
        assert listed == {(key, prefix) for prefix in self._all for key in self._keys(prefix)}, "P1"
        assert all(self._listed.values()), "P1"
