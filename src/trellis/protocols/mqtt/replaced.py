"""Retained messages that publications have replaced, until it is known whether the mesh accepts the publications.

T1  A publication that the mesh refuses at once, with all its copies, leaves the retained message as it was. A
    publication that was accepted and not acknowledged in time may have reached other nodes, so it stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.protocols.mqtt.recall import Recaller
from trellis.protocols.mqtt.retained import Before, Retained


@dataclass(eq=False)
class _Replaced:
    """A publication of a client that has replaced what was retained before."""

    by: Retained
    before: Before
    numbers: set[int]  # the publication and its copies, without those that the mesh has refused


class Replaced:
    """Restores what was retained if the mesh refuses a publication."""

    def __init__(self, recaller: Recaller) -> None:
        self.recaller = recaller
        self._by_number: dict[int, _Replaced] = {}

    def put(self, kept: Retained) -> _Replaced | None:
        """Retain a message of a client. Return what `published` needs, or None if there is no space."""
        before = self.recaller.retained.before(kept.message.topic)
        return _Replaced(kept, before, set()) if self.recaller.put(kept.origin, kept) else None

    def published(self, replaced: _Replaced, numbers: list[int]) -> None:
        """The publication and its copies were given to the mesh under these numbers."""
        replaced.numbers.update(numbers)
        self._by_number.update(dict.fromkeys(numbers, replaced))

    def taken(self, number: int) -> None:
        """The mesh has accepted the publication, or a copy of it."""
        replaced = self._by_number.get(number)
        if replaced is not None:
            self._forget(replaced)

    def refused(self, number: int) -> None:
        """The mesh has refused the publication, or a copy of it, at once."""
        replaced = self._by_number.pop(number, None)
        if replaced is None:
            return
        replaced.numbers.discard(number)
        if replaced.numbers:
            return
        for later in self._by_number.values():  # if the mesh refuses them as well, this one must not be restored
            if later.before.message is not None and later.before.message.stamp == replaced.by.stamp:
                later.before = replaced.before
        self.recaller.restore(replaced.by, replaced.before)

    def _forget(self, replaced: _Replaced) -> None:
        for number in replaced.numbers:
            self._by_number.pop(number, None)
