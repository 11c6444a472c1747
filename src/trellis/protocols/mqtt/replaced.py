"""Retained messages that publications have replaced, until it is known whether the mesh takes the publications.

T1  a publication that the mesh refuses at once, with all its copies, leaves what is retained as it was. A publication
    that was taken and not acknowledged in time may have reached other nodes. It stays.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.protocols.mqtt.recall import Recaller
from trellis.protocols.mqtt.retained import Before, Retained


@dataclass(eq=False)
class _Replaced:
    by: Retained
    before: Before
    numbers: set[int]  # The publication and its copies, as far as the mesh has not refused them.


class Replaced:
    def __init__(self, recaller: Recaller) -> None:
        self.recaller = recaller
        self._by_number: dict[int, _Replaced] = {}

    def put(self, one: Retained) -> _Replaced | None:
        """Retain a message of a client, and return what is to be given to `published`. None: there is no room."""
        before = self.recaller.retained.before(one.message.topic)
        return _Replaced(one, before, set()) if self.recaller.put(one.origin, one) else None

    def published(self, replaced: _Replaced, numbers: list[int]) -> None:
        """The publication and its copies were given to the mesh under these numbers."""
        replaced.numbers.update(numbers)
        self._by_number.update(dict.fromkeys(numbers, replaced))

    def taken(self, number: int) -> None:
        """The mesh has taken the publication, or a copy of it."""
        found = self._by_number.get(number)
        if found is not None:
            self._forget(found)

    def refused(self, number: int) -> None:
        """The mesh has refused the publication, or a copy of it, at once."""
        found = self._by_number.pop(number, None)
        if found is None:
            return
        found.numbers.discard(number)
        if found.numbers:
            return
        for later in self._by_number.values():  # if the mesh refuses them as well, this one must not come back
            if later.before.message is not None and later.before.message.stamp == found.by.stamp:
                later.before = found.before
        self.recaller.restore(found.by, found.before)

    def _forget(self, replaced: _Replaced) -> None:
        for number in replaced.numbers:
            self._by_number.pop(number, None)
