"""On a crowded machine a node looks at its sockets less often, and does more at each look.

Where more processes want to run than there are cores, every turn of the loop begins with cold caches, and one that
takes in a single message costs several times as much as one of ten. The more the machine is behind, the more such turns
there are. So a node that often has to wait for a core rests after a turn, for at most 20 ms: what comes meanwhile is
taken in together. A node that gets a core when it wants one never rests.  [docs/mqtt.md, How fast]
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

REST_S_MAX = 0.020
_LONGER_S, _SHORTER_S = 0.005, 0.002
_CROWDED, _FREE = 0.25, 0.10  # share of the time that was spent waiting for a core
_LOOK_S = 0.5
_TURNS = 3  # from an input to the write of what follows from it: the node, the door, the stream


def waited_s() -> float | None:
    """How long this process has waited for a core in all; None where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/schedstat").read_text("ascii").split()[1]) / 1e9
    return None


class Rest:
    """For a process that runs one node: while it rests, nothing else in it runs, either."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        waited: Callable[[], float | None] = waited_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rest_s = 0.0
        self._loop, self._waited, self._sleep = loop, waited, sleep
        self._is_due = False
        self._before = waited()
        self._at_s = loop.time()
        if self._before is not None:
            loop.call_later(_LOOK_S, self._look)

    def worked(self) -> None:
        """The node has taken something in."""
        if self.rest_s and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._after_turn, _TURNS - 1)

    def _after_turn(self, turns: int) -> None:
        if turns:
            self._loop.call_soon(self._after_turn, turns - 1)
        else:
            self._is_due = False
            self._sleep(self.rest_s)

    def _look(self) -> None:
        waited, now_s = self._waited(), self._loop.time()
        if waited is not None and self._before is not None:
            share = (waited - self._before) / max(now_s - self._at_s, _LOOK_S)
            self.rest_s = rest_after(self.rest_s, share)
            self._before = waited
        self._at_s = now_s
        self._loop.call_later(_LOOK_S, self._look)


def rest_after(rest_s: float, share: float) -> float:
    """The next rest, if for this share of the time a core was waited for."""
    if share > _CROWDED:
        return min(rest_s + _LONGER_S, REST_S_MAX)
    if share < _FREE:
        return max(rest_s - _SHORTER_S, 0.0)
    return rest_s
