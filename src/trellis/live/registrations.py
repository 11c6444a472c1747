"""Whether this node, as home of topics, has no room for registrations of subscribers.  [docs/runbook.md, Health]"""

from __future__ import annotations

from collections.abc import Callable

from trellis.protocols.delivery.homes import Homes

_TOLD_S = 30.0  # A registration that was turned away is a complaint for so long. Subscribers repeat them more often.


class Registrations:
    """Looks at the registrations that were turned away: `look` is called every half second."""

    def __init__(self, homes: Homes, now: Callable[[], float]) -> None:
        self._homes, self._now = homes, now
        self._seen = 0  # counted at the last look
        self._first = 0  # counted before this complaint began
        self._last_s: float | None = None  # when the count last grew; None: there is nothing to complain about

    def look(self) -> None:
        now, count = self._now(), self._homes.table.turned_away
        if count > self._seen:
            self._first = self._seen if self._last_s is None else self._first
            self._seen, self._last_s = count, now
        elif self._last_s is not None and now - self._last_s >= _TOLD_S:
            self._last_s = None

    def complaints(self) -> list[str]:
        if self._last_s is None:
            return []
        count = self._seen - self._first
        return [f"{count} registrations of subscribers were turned away: this node is home of too many topics."]
