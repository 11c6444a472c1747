"""Identities of messages, and compact sets of sequences.

A message is identified by origin, incarnation, topic and sequence. Sequences count up from 1 for each origin,
incarnation and topic. `Ranges` is a set of sequences. Nearly always it has one range. A single watermark ("all up to
here") would not suffice: a node that joined late has not seen the first messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trellis.protocols.effects import Incarnation, NodeId, Topic


class StreamId(NamedTuple):
    """All messages that one incarnation of a node publishes on one topic."""

    topic: Topic
    origin: NodeId
    incarnation: Incarnation


class Ranges:
    """A set of positive integers as disjoint ascending ranges. At least one number is missing between two ranges."""

    __slots__ = ("firsts", "lasts")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        for first, last in pairs:
            self.add(first, last)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self.firsts, number) - 1
        return index >= 0 and number <= self.lasts[index]

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
        """Return the ranges as (first, last)."""
        return list(zip(self.firsts, self.lasts, strict=True))

    @property
    def last(self) -> int:
        """The greatest number, or 0 if the set is empty."""
        return self.lasts[-1] if self.lasts else 0

    def add(self, first: int, last: int | None = None) -> None:
        """Add the numbers `first` to `last`, or `first` alone."""
        last = first if last is None else last
        firsts, lasts = self.firsts, self.lasts
        if lasts and first == lasts[-1] + 1:  # the usual case: the next sequence
            lasts[-1] = last
            return
        start = bisect_right(lasts, first - 2)  # the first range that touches or follows the new one
        end = bisect_right(firsts, last + 1)
        if start < end:
            first, last = min(first, firsts[start]), max(last, lasts[end - 1])
        firsts[start:end], lasts[start:end] = [first], [last]

    def remove(self, number: int) -> None:
        """Remove one number, if it is in the set."""
        index = bisect_right(self.firsts, number) - 1
        if index < 0 or number > self.lasts[index]:
            return
        first, last = self.firsts[index], self.lasts[index]
        left = [(first, number - 1)] if first < number else []
        right = [(number + 1, last)] if number < last else []
        self.firsts[index : index + 1] = [pair[0] for pair in left + right]
        self.lasts[index : index + 1] = [pair[1] for pair in left + right]

    def end_from(self, number: int) -> int:
        """Return the end of the unbroken run that begins at `number`, or `number - 1` if `number` is missing."""
        index = bisect_right(self.firsts, number) - 1
        return self.lasts[index] if index >= 0 and number <= self.lasts[index] else number - 1

    def flat(self) -> tuple[int, ...]:
        """Return first, last, first, last, ...: the form in which ranges are sent."""
        return tuple(number for pair in self.pairs() for number in pair)

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Ranges:
        """Return the set of these numbers."""
        ranges = cls()
        for number in sorted(numbers):
            ranges.add(number)
        return ranges


def pairs_of(flat: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return received ranges as (first, last). Ranges that do not ascend, or that overlap, are left out.

    So a peer cannot make us walk the same numbers again and again.
    """
    pairs: list[tuple[int, int]] = []
    end = 0
    for index in range(0, len(flat) - 1, 2):
        first, last = flat[index], flat[index + 1]
        if end < first <= last:
            pairs.append((first, last))
            end = last
    return pairs
