"""What a process is told of the end of a connection: the same socket calls on a real kernel and on a simulated one."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

import pytest

from trellis.simulate.whole.world import World

RESET = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
Told = dict[str, list[Any]]


def told(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


async def readable(one: socket.socket) -> None:
    loop, found = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(one, found.set)
    async with asyncio.timeout(10):
        await found.wait()
    loop.remove_reader(one)


async def until(call: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not call():
            await asyncio.sleep(0.001)


class Pairs:
    def __init__(self) -> None:
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setblocking(False)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(5)

    async def make(self) -> tuple[socket.socket, socket.socket]:
        loop = asyncio.get_running_loop()
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        client.setblocking(False)
        accepting = asyncio.ensure_future(loop.sock_accept(self.listener))
        await loop.sock_connect(client, self.listener.getsockname())
        return client, (await accepting)[0]


def cut(server: socket.socket) -> None:
    server.setsockopt(*RESET)
    server.close()


async def story() -> Told:
    pairs, found = Pairs(), Told()

    client, server = await pairs.make()
    server.send(b"data")
    await readable(client)
    cut(server)
    first = told(lambda: client.recv(9))
    await readable(client)
    found["data, RST"] = [first, *(told(lambda: client.recv(9)) for _ in range(2)), told(lambda: client.send(b"x"))]
    client.close()

    client, server = await pairs.make()
    cut(server)
    await readable(client)
    found["RST, send"] = [*(told(lambda: client.send(b"x")) for _ in range(2)), told(lambda: client.recv(9))]
    client.close()

    client, server = await pairs.make()
    cut(server)
    await readable(client)
    errors = [client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for _ in range(2)]
    found["RST, SO_ERROR"] = [*errors, told(lambda: client.recv(9))]
    client.close()

    client, server = await pairs.make()
    server.send(b"bye")
    server.close()
    await until(lambda: told(lambda: client.recv(9, socket.MSG_PEEK)) == b"bye")
    await asyncio.sleep(0.1)  # a FIN behind unread bytes cannot be seen
    sent = told(lambda: client.send(b"x"))
    await until(lambda: told(client.getpeername) == "ENOTCONN")  # the RST has come
    found["data, FIN, send, RST"] = [sent, *(told(lambda: client.recv(9)) for _ in range(3))]
    found["data, FIN, send, RST"].append(told(lambda: client.send(b"x")))
    client.close()

    client, server = await pairs.make()
    client.shutdown(socket.SHUT_RD)
    found["SHUT_RD"] = [told(lambda: client.recv(9)), told(lambda: client.send(b"x"))]
    other = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found["bind to the port of a connection"] = [told(lambda: other.bind(("127.0.0.1", client.getsockname()[1])))]
    for one in (client, server, other, pairs.listener):
        one.close()
    return found


LINUX: Told = {
    "data, RST": [b"data", "ECONNRESET", b"", "EPIPE"],
    "RST, send": ["ECONNRESET", "EPIPE", b""],
    "RST, SO_ERROR": [errno.ECONNRESET, 0, b""],
    "data, FIN, send, RST": [1, b"bye", b"", b"", "EPIPE"],
    "SHUT_RD": [b"", 1],
    "bind to the port of a connection": ["EADDRINUSE"],
}


def test_a_simulated_process_is_told_of_the_end_of_a_connection_as_on_linux() -> None:
    with World(3) as world:
        assert world.run(world.host("a").start(story()), 60) == LINUX
        assert not world.failures


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels tell it in other ways")
def test_linux_tells_of_the_end_of_a_connection_as_written_here() -> None:
    assert asyncio.run(story()) == LINUX
