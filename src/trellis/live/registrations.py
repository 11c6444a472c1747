"""Complain when this node, as home of topics, turns registrations of subscribers away.  [docs/runbook.md, Health]

A home keeps a bounded number of registrations. When there are too many, it turns some away and counts them.
"""

from __future__ import annotations

from collections.abc import Callable

from trellis.protocols.delivery.homes import Homes

_TOLD_S = 30.0  # The complaint ends this long after the last one was turned away. Subscribers repeat them sooner.


class Registrations:
    """Watches the number of registrations that were turned away. `Health` calls `look` every half second."""

    def __init__(self, homes: Homes, now: Callable[[], float]) -> None:
        self._homes, self._now = homes, now
        self._seen = 0  # the count at the last look
        self._first = 0  # the count before the present complaint began
        self._last_s: float | None = None  # when the count last grew. None: there is no complaint.

    def look(self) -> None:
        """Read the count, and begin or end the complaint."""
        now, count = self._now(), self._homes.table.turned_away
        if count > self._seen:
            self._first = self._seen if self._last_s is None else self._first
            self._seen, self._last_s = count, now
        elif self._last_s is not None and now - self._last_s >= _TOLD_S:
            self._last_s = None

    def complaints(self) -> list[str]:
        """Return the complaint as one sentence, or nothing."""
        if self._last_s is None:
            return []
        count = self._seen - self._first
        return [f"{count} registrations of subscribers were turned away: this node is home of too many topics."]
