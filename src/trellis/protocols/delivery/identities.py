"""Identities of messages: (origin, life, topic, sequence), and compact sets of sequences.

Sequences count up from 1 per origin, life and topic. A set of them is a few ranges: for nearly every stream one range,
"all up to here". A node that joined late has not seen the beginning, so a watermark alone would claim too much: the
ranges say exactly what was seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trellis.protocols.effects import NodeId, Topic


class StreamId(NamedTuple):
    """What one life of a node publishes on one topic."""

    topic: Topic
    origin: NodeId
    life: int


class Ranges:
    """A set of positive integers as disjoint ranges, ascending, with at least one missing number between two."""

    __slots__ = ("firsts", "lasts")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        for first, last in pairs:
            self.add(first, last)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.firsts, number) - 1
        return place >= 0 and number <= self.lasts[place]

    def __bool__(self) -> bool:
        return bool(self.firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.firsts == other.firsts and self.lasts == other.lasts

    def __repr__(self) -> str:
        return f"Ranges({self.pairs()})"

    def __iter__(self) -> Iterator[int]:
        for first, last in self.pairs():
            yield from range(first, last + 1)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.pairs())

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.firsts, self.lasts, strict=True))

    @property
    def last(self) -> int:
        """The greatest number, 0 where there is none."""
        return self.lasts[-1] if self.lasts else 0

    def add(self, first: int, last: int | None = None) -> None:
        last = first if last is None else last
        firsts, lasts = self.firsts, self.lasts
        if lasts and first == lasts[-1] + 1:  # nearly always: the next one
            lasts[-1] = last
            return
        start = bisect_right(lasts, first - 2)  # the first range that touches or follows
        end = bisect_right(firsts, last + 1)
        if start < end:
            first, last = min(first, firsts[start]), max(last, lasts[end - 1])
        firsts[start:end], lasts[start:end] = [first], [last]

    def remove(self, number: int) -> None:
        place = bisect_right(self.firsts, number) - 1
        if place < 0 or number > self.lasts[place]:
            return
        first, last = self.firsts[place], self.lasts[place]
        left = [(first, number - 1)] if first < number else []
        right = [(number + 1, last)] if number < last else []
        self.firsts[place : place + 1] = [pair[0] for pair in left + right]
        self.lasts[place : place + 1] = [pair[1] for pair in left + right]

    def end_from(self, number: int) -> int:
        """The end of the unbroken run that begins at `number`; `number - 1` where it is missing."""
        place = bisect_right(self.firsts, number) - 1
        return self.lasts[place] if place >= 0 and number <= self.lasts[place] else number - 1

    def flat(self) -> tuple[int, ...]:
        """first, last, first, last, ...: how ranges travel."""
        return tuple(number for pair in self.pairs() for number in pair)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Ranges:
        found = cls()
        for number in sorted(numbers):
            found.add(number)
        return found


def pairs_of(flat: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return ranges as they travel. They ascend and do not overlap; what does otherwise is left out.

    So nobody can make us walk the same numbers again and again.
    """
    found: list[tuple[int, int]] = []
    end = 0
    for place in range(0, len(flat) - 1, 2):
        first, last = flat[place], flat[place + 1]
        if end < first <= last:
            found.append((first, last))
            end = last
    return found
