"""Finds the subscriptions that match a topic: filters in a tree of levels.

A publication looks only at branches that can match it: at each level at most two, `+` and the level's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class _Level(Generic[Owner, Value]):
    __slots__ = ("below", "values")

    def __init__(self) -> None:
        self.below: dict[str, _Level[Owner, Value]] = {}
        self.values: dict[Owner, Value] = {}


class FilterTree(Generic[Owner, Value]):
    """A map from (filter, owner) to a value. Owners of a filter are in the order in which they were added."""

    def __init__(self) -> None:
        self._root: _Level[Owner, Value] = _Level()
        self.count = 0

    def put(self, filter_: str, owner: Owner, value: Value) -> bool:
        """Add or replace a value. Return whether it is new."""
        level = self._root
        for name in filter_.split("/"):
            below = level.below.get(name)
            if below is None:
                below = level.below[name] = _Level()
            level = below
        is_new = owner not in level.values
        level.values[owner] = value
        self.count += is_new
        return is_new

    def remove(self, filter_: str, owner: Owner) -> bool:
        """Remove a value. Return whether it existed."""
        path: list[tuple[_Level[Owner, Value], str]] = []
        level = self._root
        for name in filter_.split("/"):
            below = level.below.get(name)
            if below is None:
                return False
            path.append((level, name))
            level = below
        if owner not in level.values:
            return False
        del level.values[owner]
        self.count -= 1
        for above, name in reversed(path):  # no empty branches stay
            if above.below[name].values or above.below[name].below:
                break
            del above.below[name]
        return True

    def matching(self, topic: str) -> Iterator[tuple[Owner, Value]]:
        """Yield (owner, value) of each filter that matches; an owner may come several times. [MQTT-4.7.1-2, 4.7.2-1]"""
        levels = topic.split("/")
        is_own = topic[:1] == "$"  # a topic of the server: no wildcard in the first level matches it
        # At most two branches per level: `+` and the name. A filter's length bounds the depth of the tree.
        front = [self._root]
        for index, name in enumerate(levels):
            behind: list[_Level[Owner, Value]] = []
            for level in front:
                below = level.below
                if not below:
                    continue
                if index or not is_own:
                    rest = below.get("#")
                    if rest is not None:
                        yield from rest.values.items()
                    any_ = below.get("+")
                    if any_ is not None:
                        behind.append(any_)
                plain = below.get(name)
                if plain is not None and name not in ("+", "#"):
                    behind.append(plain)
            front = behind
            if not front:
                return
        for level in front:
            yield from level.values.items()
            rest = level.below.get("#")  # `a/#` matches `a`
            if rest is not None:
                yield from rest.values.items()
