"""The network between nodes, which a scenario can cut: a relay in front of every node's mesh port.

A node advertises the address of its relay. A relay reads the first frame of a connection, the hello, which names the
node that has dialed, and passes everything on. While the network between two nodes is cut, nothing passes: no byte, no
end of a stream and no refusal, as in a network that drops packets. Held back bytes pass when the cut ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from trellis.live.addresses import parse_address, show_address
from trellis.live.frames import HELLO_BYTES_MAX, Hello, read_control
from trellis.protocols.wire import WireError

_CHUNK_BYTES = 64 << 10
_HELLO_S = 5.0


class Relays:
    """The relays of all nodes, and the present cut."""

    def __init__(self) -> None:
        self._servers: dict[str, asyncio.Server] = {}
        self._targets: dict[str, tuple[str, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sides: dict[str, int] = {}  # node -> its part of the network; all others are in part 0
        self._changed = asyncio.Event()

    async def open(self, name: str) -> str:
        """Return the address of a node's relay, which is the same for all incarnations of the node."""
        if name not in self._servers:
            self._servers[name] = await asyncio.start_server(
                lambda reader, writer: self._accept(name, reader, writer), "127.0.0.1", 0
            )
        return self.address(name)

    def address(self, name: str) -> str:
        host, port = self._servers[name].sockets[0].getsockname()[:2]
        return show_address(host, port)

    def lead(self, name: str, address: str) -> None:
        """Let the relay of a node pass connections to `address`, where the node listens now."""
        self._targets[name] = parse_address(address)

    def cut(self, *groups: tuple[str, ...]) -> None:
        """Cut the network between the groups, and between them and all other nodes. Without groups, end the cut."""
        self._sides = {name: part for part, names in enumerate(groups, start=1) for name in names}
        self._changed.set()
        self._changed.clear()

    def is_cut(self, u: str, v: str) -> bool:
        return self._sides.get(u, 0) != self._sides.get(v, 0)

    async def close(self) -> None:
        for server in self._servers.values():
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._pass(name, reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, WireError):
            try:
                async with asyncio.timeout(_HELLO_S):
                    first = await reader.readexactly(4)
                    size = int.from_bytes(first, "big")
                    body = await reader.readexactly(size) if 0 < size <= HELLO_BYTES_MAX else b""
                hello = read_control(body)
                if not isinstance(hello, Hello):
                    return
                dialer = hello.address.node
                await self._open_between(dialer, name)
                there, back = await asyncio.open_connection(*self._targets[name])
                try:
                    back.write(first + body)
                    async with asyncio.TaskGroup() as both:
                        both.create_task(self._pump(dialer, name, reader, back))
                        both.create_task(self._pump(dialer, name, there, writer))
                finally:
                    _abort(back)
            finally:
                _abort(writer)

    async def _pump(self, u: str, v: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass the bytes of one direction. When it ends or breaks, end the other side, once the network is not cut."""
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._open_between(u, v)
                writer.write(data)
                await writer.drain()
        await self._open_between(u, v)
        writer.close()

    async def _open_between(self, u: str, v: str) -> None:
        while self.is_cut(u, v):
            await self._changed.wait()


def _abort(writer: asyncio.StreamWriter) -> None:
    """End a connection at once. CPython's transports raise if they have ended, after their last bytes had to wait."""
    with suppress(AttributeError):
        writer.transport.abort()
