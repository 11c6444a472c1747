"""Make a node on an overloaded machine poll its sockets less often, and take in more messages each time.

If more processes want to run than there are cores, every turn of the event loop begins with cold caches. A message that
is handled alone then costs several times as much CPU time as one of ten that are handled together. So an overloaded
machine would fall even further behind.

Twice a second `Pauses` reads for how long this process has waited for a core. If that was a large share of the time,
the process sleeps for a few milliseconds, at most `PAUSE_S_MAX`, after it has handled messages. Messages that arrive
meanwhile are then handled together. A node that does not wait for cores never sleeps.  [docs/mqtt.md, How fast]
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PAUSE_S_MAX = 0.020
_LONGER_S, _SHORTER_S = 0.005, 0.002  # by how much a pause grows or shrinks at a time
# Share of the time that was spent waiting for a core. Above the first, pauses grow; below the second, they shrink.
_CROWDED, _FREE = 0.25, 0.10
_LOOK_S = 0.5  # between two measurements
_TURNS = 3  # turns of the loop from an input until its results are written: the node, the client port, the stream


def waited_s() -> float | None:
    """Return the total seconds for which this process has waited for a core; None if the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/schedstat").read_text("ascii").split()[1]) / 1e9
    return None


class Pauses:
    """Pauses of a process that runs nothing but one node. While it sleeps, the whole event loop stands still."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        waited: Callable[[], float | None] = waited_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`waited` and `sleep` are replaced in tests."""
        self.pause_s = 0.0  # length of a pause; 0: the machine is not overloaded
        self._loop, self._waited, self._sleep = loop, waited, sleep
        self._is_due = False  # A pause is scheduled.
        self._before = waited()  # at the last measurement; None: there is nothing to measure
        self._at_s = loop.time()  # time of the last measurement
        if self._before is not None:
            loop.call_later(_LOOK_S, self._look)

    def worked(self) -> None:
        """Schedule a pause, because the node has taken a message in. Called for each message."""
        if self.pause_s and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._after_turn, _TURNS - 1)

    def _after_turn(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._after_turn, turns - 1)
        else:
            self._is_due = False
            self._sleep(self.pause_s)

    def _look(self) -> None:
        waited, now_s = self._waited(), self._loop.time()
        if waited is not None and self._before is not None:
            share = (waited - self._before) / max(now_s - self._at_s, _LOOK_S)
            self.pause_s = pause_after(self.pause_s, share)
            self._before = waited
        self._at_s = now_s
        self._loop.call_later(_LOOK_S, self._look)


def pause_after(pause_s: float, share: float) -> float:
    """Return the next length of a pause. `share`: the share of the time for which the process waited for a core."""
    if share > _CROWDED:
        return min(pause_s + _LONGER_S, PAUSE_S_MAX)
    if share < _FREE:
        return max(pause_s - _SHORTER_S, 0.0)
    return pause_s
