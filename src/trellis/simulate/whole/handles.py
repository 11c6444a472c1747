"""Define handles of the simulated event loop, and the error for features that it does not support.

They have the methods of `asyncio.Handle` and `asyncio.TimerHandle`. A handle is created for every callback, and these
take a third of the time to create.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any

import msgspec

from trellis.errors import TrellisError


class NotSimulated(TrellisError):
    """A simulated process asked for something that the simulator does not support."""


class Handle(msgspec.Struct, eq=False):
    """A callback that runs soon, or at a time. One type serves both, because CPython then finds the fields faster."""

    callback: Callable[..., object] | None
    args: tuple[Any, ...]
    context: Context
    at_s: float = 0.0  # due time of a timer, by the clock of the loop
    on_cancel: Callable[[], None] | None = None  # set while the handle is a timer of the loop
    is_cancelled: bool = False

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.callback, self.args = None, ()  # They may hold much memory.
            if self.on_cancel is not None:
                self.on_cancel()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.at_s
