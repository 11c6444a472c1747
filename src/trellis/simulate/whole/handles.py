"""Handles of the simulated event loop, and the error for what it does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from trellis.errors import TrellisError


class NotSimulated(TrellisError):
    """A simulated process asked for something that the simulator does not have."""


class Soon(asyncio.Handle):
    """A handle that is quicker to make than asyncio's: there is no debug mode to ask for."""

    __slots__ = ()
    _repr = _source_traceback = None  # only debug mode sets them

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context: Context = copy_context() if context is None else context
        self._loop: Any = loop
        self._callback: Any = callback
        self._args: Any = args
        self._cancelled = False


class Later(asyncio.TimerHandle):
    __slots__ = ()
    _repr = _source_traceback = None

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context: Context = copy_context() if context is None else context
        self._loop: Any = loop
        self._callback: Any = callback
        self._args: Any = args
        self._cancelled = False
        self._when = when
        self._scheduled = True
