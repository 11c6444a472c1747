"""Handles of the simulated event loop, and the error for what it does not have.

They offer what `asyncio.Handle` and `asyncio.TimerHandle` offer. A handle is made for every callback, and these take a
third of the time to make.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any

import msgspec

from trellis.errors import TrellisError


class NotSimulated(TrellisError):
    """A simulated process asked for something that the simulator does not have."""


class Handle(msgspec.Struct, eq=False):
    """A callback that runs soon, or at a time. One type for both: so CPython finds their fields faster."""

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context
    at_s: float = 0.0  # of a timer: when it is due, by the clock of the loop
    on_cancel: Callable[[], None] | None = None  # of a timer, as long as it is among the timers of the loop
    is_cancelled: bool = False

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.callback, self.args = None, ()  # they may hold much
            if self.on_cancel is not None:
                self.on_cancel()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.at_s
