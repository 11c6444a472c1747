"""Complain when publications wait or are refused because the window of this node is full.  [docs/runbook.md, Health]

Canaries (`health.Canary`) cannot detect this. They are only questions, so they need no space in the window.
"""

from __future__ import annotations

from collections.abc import Callable

from trellis.protocols.delivery.part import Delivery

_LATE_S = 5.0  # A window that has been full of waiting publications for this long is a complaint.
_TOLD_S = 10.0  # A publication that was refused is a complaint for this long.
_FULL = 0.9  # The window counts as full when publications that wait for copies take this share of it.


class Window:
    """Watches the publications that wait for their copies. `Health` calls `look` every half second."""

    def __init__(self, delivery: Delivery, now: Callable[[], float]) -> None:
        self._delivery, self._now = delivery, now
        self._full_since: float | None = None  # None: the window is not full
        self._refused: list[tuple[float, int]] = []  # refusals of the last `_TOLD_S` seconds: when, and how many
        self._seen = 0  # total number of refusals at the last look

    def look(self) -> None:
        """Note how many publications were refused, and whether the window is full."""
        now, count = self._now(), self._delivery.state.counters.window_full
        if count > self._seen:
            self._refused.append((now, count - self._seen))
            self._seen = count
        self._refused = [refusal for refusal in self._refused if now - refusal[0] < _TOLD_S]
        if not self._is_full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now

    def complaints(self) -> list[str]:
        """Return the complaint as one sentence, or nothing."""
        waiting = len(self._delivery.copies.pending)
        if self._refused:
            count = sum(number for _, number in self._refused)
            what = f"{count} publications were refused in the last {_TOLD_S:.0f} s, and {waiting} wait for their copies"
            return [f"The window of this node is full: {what}."]
        if self._full_since is not None and self._now() - self._full_since >= _LATE_S:
            seconds = int(self._now() - self._full_since)
            return [f"The window of this node has been full for {seconds} s: {waiting} publications wait for copies."]
        return []

    @property
    def _is_full(self) -> bool:
        copies, config = self._delivery.copies, self._delivery.config
        return copies.bytes >= _FULL * config.window_bytes or len(copies.pending) >= _FULL * config.pending_max
