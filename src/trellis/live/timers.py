"""The timers of a node, by tag, on the clock of the event loop.

A timer whose handler raises an exception is run again after a pause. If it fails too many times in a row, the node
ends, and the other nodes repair the overlay around it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

log = logging.getLogger("trellis.live")

# Pauses after the first, second, ... failure in a row. One more failure ends the node.
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0)


class Timers:
    """The pending timers of one node."""

    def __init__(
        self, name: str, run: Callable[[str], None], end: Callable[[Exception], None], counters: Counter[str]
    ) -> None:
        """`run` is called with the tag of a timer that is due, and `end` with the error of one that keeps failing.

        `name` is the node's name, for logs. Failures are counted in `counters` as "bugs".
        """
        self.name, self._run, self._end, self._counters = name, run, end, counters
        self.loop: asyncio.AbstractEventLoop | None = None  # the running loop, looked up when the first timer is set
        self.pending: dict[str, asyncio.TimerHandle] = {}
        self.failed: Counter[str] = Counter()  # tag -> failures in a row

    def set(self, tag: str, delay_s: float) -> None:
        """Run the timer `tag` once after `delay_s`. If it is already pending, the new delay replaces the old one."""
        pending = self.pending.get(tag)
        if pending is not None:
            pending.cancel()
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        self.pending[tag] = self.loop.call_later(delay_s, self._fire, tag)

    def cancel(self, tag: str) -> None:
        """Cancel a timer, if it is pending, and forget its failures."""
        self.failed.pop(tag, None)
        pending = self.pending.pop(tag, None)
        if pending is not None:
            pending.cancel()

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self.pending.values():
            timer.cancel()

    def _fire(self, tag: str) -> None:
        del self.pending[tag]
        try:
            self._run(tag)
        except Exception as error:
            self._retry(tag, error)
        else:
            self.failed.pop(tag, None)

    def _retry(self, tag: str, error: Exception) -> None:
        """Run a timer that failed again after a pause, or end the node if it has failed too often.

        The cause may be data that a peer sent, so a single failure must not end the node.
        """
        failed = self.failed[tag]
        self.failed[tag] += 1
        self._counters["bugs"] += 1
        if failed >= len(PAUSES_S):
            log.critical("%s: timer %s failed %d times in a row; the node ends", self.name, tag, failed + 1)
            self._end(error)
            return
        pause_s = PAUSES_S[failed]
        log.error("%s: timer %s failed; tried again in %.1f s", self.name, tag, pause_s, exc_info=error)
        self.set(tag, pause_s)
