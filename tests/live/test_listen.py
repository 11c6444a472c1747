"""A socket that accepts streams: whatever moment it is closed in, no accepted stream stays open."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import sys
import warnings
from collections import Counter
from collections.abc import Callable

import pytest

from trellis.errors import InputError
from trellis.live.listen import Listener

STREAMS = 20


class Told(asyncio.Protocol):
    """Tells of its transport: every owner of streams closes those that it has."""

    def __init__(self, made: list[asyncio.BaseTransport]) -> None:
        self.made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made.append(transport)


def dial(port: int) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", port))
    return one


async def close_after(turns: int) -> None:
    made: list[asyncio.BaseTransport] = []
    listener = Listener("127.0.0.1:0", lambda: Told(made), None, Counter(), 5.0, STREAMS)
    listener.serve()
    dialled = [dial(listener.port) for _ in range(STREAMS)]
    for _ in range(turns):
        await asyncio.sleep(0)
    await listener.close()
    for transport in made:
        transport.close()
    for one in dialled:
        one.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_streams_that_come_while_it_is_closed_are_closed(
    turns: int, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if loop == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    left: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: left.append(str(what.exc_value)))
    with asyncio.Runner(loop_factory=factory) as runner, warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        runner.run(close_after(turns))
        gc.collect()
    gc.collect()
    assert not left


def test_it_can_be_closed_twice() -> None:
    async def work() -> None:
        listener = Listener("127.0.0.1:0", asyncio.Protocol, None, Counter(), 5.0, STREAMS)
        listener.serve()
        await listener.close()
        await listener.close()

    asyncio.run(work())


def test_a_listener_without_files_left_says_that_and_how_to_get_more() -> None:
    async def work() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        next_file = os.dup(0)
        os.close(next_file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_file, hard))
        try:
            with pytest.raises(InputError) as caught:
                Listener("127.0.0.1:0", lambda: None, None, Counter(), 5.0, STREAMS)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert "cannot listen: too many open files" in str(caught.value)
        assert "ulimit -n" in str(caught.value)
        assert "another address" not in str(caught.value)

    asyncio.run(work())


def test_a_listener_whose_address_is_taken_says_so() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(InputError, match="cannot listen: address already in use; choose another address"):
                Listener(address, lambda: None, None, Counter(), 5.0, STREAMS)

    asyncio.run(work())
