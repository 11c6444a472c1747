"""Small asyncio programs for simulated hosts: servers that collect, clients that send."""

from __future__ import annotations

import asyncio
from typing import Any

from trellis.simulate.whole.network import NetworkConfig
from trellis.simulate.whole.world import World

PORT = 80
STEADY = NetworkConfig(latency_us_low=1_000, latency_us_high=1_000, jitter_us=0, split=0.0)


class Log(asyncio.Protocol):
    """Keeps what the loop says, and when, by the clock of its loop."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []
        self.received = bytearray()
        self.transport: Any = None
        self.lost_at: float | None = None
        self.keeps_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.said.append(("made", None))

    def data_received(self, data: bytes) -> None:
        self.received += data
        if self.said[-1][0] != "data":
            self.said.append(("data", None))

    def eof_received(self) -> bool:
        self.said.append(("eof", None))
        return self.keeps_open

    def pause_writing(self) -> None:
        self.said.append(("pause", None))

    def resume_writing(self) -> None:
        self.said.append(("resume", None))

    def connection_lost(self, error: Exception | None) -> None:
        self.said.append(("lost", type(error)))
        self.lost_at = asyncio.get_running_loop().time()

    @property
    def error(self) -> type | None:
        """The kind of error with which the connection was lost; `NoneType` if there was none."""
        found = [value for what, value in self.said if what == "lost"]
        return found[0] if found else None


class Pair:
    """A connection between the hosts "server" and "client", with a `Log` at each end."""

    def __init__(self, world: World) -> None:
        self.world, self.server, self.client = world, Log(), Log()
        self.accepted: list[Log] = []
        world.host("server").start(self._serve())
        world.run_for(0.1)
        self.began = world.host("client").start(self._dial())
        world.run_until(lambda: self.client.transport is not None and self.server.transport is not None, 10)

    async def _serve(self) -> None:
        server = await asyncio.get_running_loop().create_server(self._accept, "0.0.0.0", PORT)
        await server.serve_forever()

    def _accept(self) -> Log:
        log = self.server if not self.accepted else Log()
        self.accepted.append(log)
        return log

    async def _dial(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self.client, "server", PORT)
        await asyncio.Event().wait()


async def serve_nothing(backlog: int = 100) -> None:
    """Listen, and never accept."""
    import socket

    listening = socket.create_server(("0.0.0.0", PORT), backlog=backlog)
    await asyncio.Event().wait()
    listening.close()


async def dial(name: str = "server", port: int = PORT) -> float:
    """Return how long it took to connect."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    transport, _ = await loop.create_connection(asyncio.Protocol, name, port)
    took = loop.time() - begun
    transport.abort()
    return took


async def for_ever() -> None:
    await asyncio.Event().wait()
