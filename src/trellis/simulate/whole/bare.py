"""What an event loop of a simulated process does not have: subprocesses, threads, and everything but TCP."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
from typing import Any

from trellis.simulate.whole.handles import NotSimulated


class BareLoop(asyncio.selector_events.BaseSelectorEventLoop):
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
        """Nothing to do: the world ends a process."""

    def __del__(self) -> None:
        """The base class would complain about a loop that nobody has closed."""

    def _make_self_pipe(self) -> None:
        """There are no threads to be woken by."""

    def _write_to_self(self) -> None:
        """There are no threads to be woken by."""
