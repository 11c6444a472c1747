"""The same program sees the same on the simulated network and on real loopback, whatever the simulated one does."""

from __future__ import annotations

import asyncio
import socket
from itertools import groupby
from types import NoneType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.simulate.whole.network import NetworkConfig
from trellis.simulate.whole.world import World
from whole.programs import Log

SIZES = st.one_of(st.integers(0, 40), st.integers(1_000, 20_000), st.just(70_000))
STEPS = st.one_of(
    st.tuples(st.just("write"), SIZES),
    st.tuples(st.just("writelines"), st.lists(SIZES, max_size=4)),
    st.sampled_from([("turn", 0), ("pause_reading", 0), ("resume_reading", 0), ("limits", 0), ("limits", 100)]),
)
PROGRAMS = st.lists(STEPS, max_size=8)
NETWORKS = st.builds(
    NetworkConfig,
    latency_us_high=st.sampled_from([100, 50_000]),
    jitter_us=st.sampled_from([0, 20_000]),
    bytes_per_s=st.sampled_from([1_000_000, 125_000_000]),
    loss=st.sampled_from([0.0, 0.02]),
    split=st.sampled_from([0.0, 0.5, 1.0]),
    send_buffer=st.integers(2_000, 100_000),
    receive_buffer=st.integers(2_000, 100_000),
)


class Player(Log):
    """Carries out a program, and closes when both ends have said all."""

    def __init__(self, name: int, steps: list[Any]) -> None:
        super().__init__()
        self.name, self.steps, self.keeps_open = name, steps, True
        self.made, self.ended, self.lost = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.made.set()

    def eof_received(self) -> bool:
        self.ended.set()
        return super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.lost.set()

    async def play(self) -> None:
        await self.made.wait()
        for number, (what, how) in enumerate(self.steps):
            match what:
                case "write":
                    self.transport.write(bytes([self.name + number]) * how)
                case "writelines":
                    self.transport.writelines([bytes([self.name + number]) * one for one in how])
                case "turn":
                    await asyncio.sleep(0)
                case "limits":
                    self.transport.set_write_buffer_limits(high=how)
                case _:
                    getattr(self.transport, what)()
        self.transport.resume_reading()
        self.transport.write_eof()
        await self.ended.wait()
        self.transport.close()
        await self.lost.wait()

    def outcome(self) -> Any:
        """What does not depend on time: the bytes, and the order of what the loop said apart from flow control."""
        pauses = sum((what == "pause") - (what == "resume") for what, _ in self.said)
        assert pauses == 0, "each pause of writing was followed by a resumption"
        said = [one for one in self.said if one[0] not in ("pause", "resume")]
        return bytes(self.received), [one for one, _ in groupby(said)]


async def real(server: list[Any], client: list[Any]) -> Any:
    loop = asyncio.get_running_loop()
    first, second = Player(0, server), Player(100, client)
    listening = await loop.create_server(lambda: first, "127.0.0.1", 0)
    await loop.create_connection(lambda: second, *listening.sockets[0].getsockname())
    await asyncio.gather(first.play(), second.play())
    listening.close()
    return first.outcome(), second.outcome()


def simulated(server: list[Any], client: list[Any], network: NetworkConfig) -> Any:
    async def serve() -> None:
        await asyncio.get_running_loop().create_server(lambda: first, "0.0.0.0", 80)
        await first.play()

    async def dial() -> None:
        await asyncio.get_running_loop().create_connection(lambda: second, "server", 80)
        await second.play()

    first, second = Player(0, server), Player(100, client)
    with World(1, network) as world:
        serving = world.host("server").start(serve())
        world.run_for(0.001)
        world.run(world.host("client").start(dial()), 1_000_000)
        world.run(serving, 1_000_000)
        assert not world.failures
    return first.outcome(), second.outcome()


@settings(max_examples=40)
@given(PROGRAMS, PROGRAMS, NETWORKS)
def test_a_program_of_protocols_receives_the_same_bytes_as_on_loopback(server, client, network):
    found = simulated(server, client, network)
    assert found == asyncio.run(asyncio.wait_for(real(server, client), 60))
    for received, said in found:
        kinds = [one for one in said if one[0] != "data"]
        assert kinds == [("made", None), ("eof", None), ("lost", NoneType)]
        assert bool(received) == (("data", None) in said)


async def _asks(host: str, port: int, lines: list[bytes]) -> list[bytes]:
    reader, writer = await asyncio.open_connection(host, port)
    answers = []
    for line in lines:
        writer.write(line + b"\n")
        await writer.drain()
        answers.append(await reader.readuntil(b"\n"))
    writer.close()
    await writer.wait_closed()
    return answers


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()
    await writer.wait_closed()


LINES = st.lists(st.binary(max_size=200).map(lambda one: one.replace(b"\n", b".")), max_size=6)


@settings(max_examples=25)
@given(LINES, NETWORKS)
def test_a_program_of_streams_gets_the_same_answers_as_on_loopback(lines, network):
    async def on_loopback() -> list[bytes]:
        async with await asyncio.start_server(_answers, "127.0.0.1", 0) as server:
            return await _asks(*server.sockets[0].getsockname(), lines)

    async def serve() -> None:
        async with await asyncio.start_server(_answers, "0.0.0.0", 80) as server:
            await server.serve_forever()

    with World(1, network) as world:
        world.host("server").start(serve())
        world.run_for(0.001)
        found = world.run(world.host("client").start(_asks("server", 80, lines)), 1_000_000)
        assert not world.failures
    assert found == asyncio.run(asyncio.wait_for(on_loopback(), 60))


@pytest.mark.parametrize("how", ["close", "abort"])
def test_a_program_that_ends_early_is_seen_as_on_loopback(how):
    """The one end closes at once, the other writes on: it hears the end, then that its bytes are not wanted."""

    class Writes(Log):
        async def write_on(self) -> None:
            self.keeps_open = True
            for _ in range(4):
                await asyncio.sleep(0.05)
                self.transport.write(b"x")

    async def on_loopback() -> list[Any]:
        loop, log = asyncio.get_running_loop(), Writes()
        async with await loop.create_server(lambda: Closes(how), "127.0.0.1", 0) as server:
            await loop.create_connection(lambda: log, *server.sockets[0].getsockname())
            await log.write_on()
        return log.said

    async def serve() -> None:
        async with await asyncio.get_running_loop().create_server(lambda: Closes(how), "0.0.0.0", 80) as server:
            await server.serve_forever()

    async def talk() -> list[Any]:
        log = Writes()
        await asyncio.get_running_loop().create_connection(lambda: log, "server", 80)
        await log.write_on()
        return log.said

    with World(1) as world:
        world.host("server").start(serve())
        world.run_for(0.001)
        found = world.run(world.host("client").start(talk()))
    assert found == asyncio.run(on_loopback())
    assert [what for what, _ in found] == ["made", "eof", "lost"]


def test_a_process_that_closes_with_unread_bytes_is_seen_as_on_loopback():
    """The server does not read, and closes when the client's bytes have arrived."""

    class Deaf(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.pause_reading()
            asyncio.get_running_loop().call_later(0.1, transport.close)

    async def talk(host: str, port: int) -> list[Any]:
        log = Log()
        await asyncio.get_running_loop().create_connection(lambda: log, host, port)
        log.transport.write(b"never read")
        await asyncio.sleep(0.3)
        return log.said

    async def on_loopback() -> list[Any]:
        async with await asyncio.get_running_loop().create_server(Deaf, "127.0.0.1", 0) as server:
            return await talk(*server.sockets[0].getsockname())

    async def serve() -> None:
        async with await asyncio.get_running_loop().create_server(Deaf, "0.0.0.0", 80) as server:
            await server.serve_forever()

    with World(1) as world:
        world.host("server").start(serve())
        world.run_for(0.001)
        found = world.run(world.host("client").start(talk("server", 80)))
    assert found == asyncio.run(on_loopback())
    assert found == [("made", None), ("lost", ConnectionResetError)]


def test_a_connection_that_is_refused_raises_the_same_error_as_on_loopback():
    async def dial(host: str, port: int) -> tuple[type, int | None]:
        with pytest.raises(OSError, match="Connect call failed") as caught:
            await asyncio.open_connection(host, port)
        return type(caught.value), caught.value.errno

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # free when this block is left
    with World(1) as world:
        world.host("server")
        found = world.run(world.host("client").start(dial("server", 80)))
    assert found == asyncio.run(dial("127.0.0.1", port))


class Closes(asyncio.Protocol):
    def __init__(self, how: str) -> None:
        self.how = how

    def connection_made(self, transport: Any) -> None:
        getattr(transport, self.how)()
