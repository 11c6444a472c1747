"""Refuse what a simulated event loop does not support: subprocesses, threads, and every transport except TCP."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
from typing import Any

from trellis.simulate.whole.handles import NotSimulated


class BareLoop(asyncio.selector_events.BaseSelectorEventLoop):
    """A selector event loop in which unsupported methods raise NotSimulated."""

    async def start_tls(self, *args: Any, **more: Any) -> Any:
        raise NotSimulated("a simulated connection has TLS from its first byte, or none: give ssl= when it is made")

    async def subprocess_exec(self, *args: Any, **more: Any) -> Any:
        raise NotSimulated(f"a simulated process cannot start {args[1:]!r}: start it as a process of its own host")

    async def subprocess_shell(self, *args: Any, **more: Any) -> Any:
        raise NotSimulated(f"a simulated process cannot start {args[1:]!r}: start it as a process of its own host")

    async def create_datagram_endpoint(self, *args: Any, **more: Any) -> Any:
        raise NotSimulated("the simulated network carries TCP only")

    async def create_unix_connection(self, *args: Any, **more: Any) -> Any:
        raise NotSimulated("the simulated network carries TCP only: give a host and a port")

    async def create_unix_server(self, *args: Any, **more: Any) -> Any:
        raise NotSimulated("the simulated network carries TCP only: give a host and a port")

    def run_forever(self) -> None:
        raise NotSimulated("a simulated process runs when its world does: use World.run, run_for or run_until")

    def close(self) -> None:
        """Do nothing: the world ends a process."""

    def __del__(self) -> None:
        """Do nothing: the base class would warn that the loop was not closed."""

    def _make_self_pipe(self) -> None:
        """Do nothing: there are no threads that wake the loop."""

    def _write_to_self(self) -> None:
        """Do nothing: there are no threads that wake the loop."""
