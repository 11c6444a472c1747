"""The relays that cut a live mesh in two: nothing passes a cut, and nothing is lost by it."""

from __future__ import annotations

import asyncio

import pytest

from live.lives import run, within
from trellis.fleet.relay import Relays
from trellis.live.addresses import parse_address
from trellis.live.frames import PROTOCOL, VERSION, Address, Hello, pack_control


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1_000):
        writer.write(data)
    writer.close()


def hello_of(name: str) -> bytes:
    return pack_control(Hello(PROTOCOL, VERSION, "test", "omen", Address(name, 1, "127.0.0.1", 1)))


async def dial(address: str, first: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*parse_address(address))
    writer.write(first)
    return reader, writer


async def hears_nothing(reader: asyncio.StreamReader) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)


def test_nothing_passes_a_cut_and_everything_comes_when_it_is_mended():
    async def work() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        relays = Relays()
        address = await relays.open("b")
        relays.lead("b", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        near, far = hello_of("a"), hello_of("far")
        reader, writer = await dial(address, near)
        assert await within(reader.readexactly(len(near))) == near
        relays.cut(("a", "c"))
        assert relays.is_cut("a", "b")
        assert not relays.is_cut("a", "c")
        assert not relays.is_cut("b", "far")
        writer.write(b"held back")
        second, other = await dial(address, near)  # is taken, and hears nobody
        third, free = await dial(address, far)
        assert await within(third.readexactly(len(far))) == far
        await hears_nothing(reader)
        await hears_nothing(second)
        relays.cut()
        assert await within(reader.readexactly(9)) == b"held back"
        assert await within(second.readexactly(len(near))) == near
        for one in (writer, other, free):
            one.close()
        await relays.close()
        server.close()

    run(work())


def test_who_says_no_hello_is_cut_off():
    async def work() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        relays = Relays()
        address = await relays.open("b")
        relays.lead("b", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for first in (b"\xff" * 8, b"\x00\x00\x00\x02\x01\x01"):
            reader, writer = await dial(address, first)
            assert await within(reader.read()) == b""
            writer.close()
        await relays.close()
        server.close()

    run(work())
