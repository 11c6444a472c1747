"""Connections that never say who they are: they cost no other source address its place, on any port of a node."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import trellis
from live.lives import client_address, mesh, peer_address, run, until
from live.signing import CLIENT, node_of
from trellis.live.config import LimitsConfig
from trellis.live.frames import PROTOCOL, VERSION, Address, Hello, pack_control
from trellis.live.http import HttpServer
from trellis.live.http_client import get
from trellis.live.http_messages import Answer
from trellis.live.listen import source_of
from trellis.live.mqtt.client import MqttClient
from trellis.live.shell import LiveNode
from trellis.live.tls import make_context
from trellis.protocols.mqtt.config import MqttConfig

IDLE = 300
STRANGER = "127.0.0.2"
LIMITS = LimitsConfig(handshakes_max=8, handshake_s=50, leave_s=20)


def needs_a_second_address() -> None:
    with socket.socket() as one:
        try:
            one.bind((STRANGER, 0))
        except OSError:
            pytest.skip(f"{STRANGER} is no address of this machine")


@asynccontextmanager
async def idle(port: int) -> AsyncIterator[list[socket.socket]]:
    """Connections of a stranger that are open and say nothing."""
    loop, made = asyncio.get_running_loop(), []
    try:
        for _ in range(IDLE):
            one = socket.socket()
            one.setblocking(False)
            one.bind((STRANGER, 0))
            made.append(one)
            await loop.sock_connect(one, ("127.0.0.1", port))
        yield made
    finally:
        for one in made:
            one.close()


async def ask_as_peer(node: LiveNode) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.transport.port)
    writer.write(pack_control(Hello(PROTOCOL, VERSION, "test", "omen", Address("b", 1, "127.0.0.1", 9))))
    assert await reader.readexactly(4)
    writer.close()


async def ask_as_client(node: LiveNode) -> None:
    async with trellis.connect(client_address(node), timeout_s=30) as client:
        await client.subscribe("t")


async def ask_by_mqtt(node: LiveNode) -> None:
    assert node.mqtt is not None
    async with MqttClient(f"127.0.0.1:{node.mqtt.port}", "good") as client:
        await client.subscribe("t")


async def ask_admin(node: LiveNode) -> None:
    assert node.admin is not None
    status, _ = await get(f"127.0.0.1:{node.admin.port}", "/metrics", timeout_s=30)
    assert status == 200


PORTS: dict[str, tuple[Callable[[LiveNode], int], Callable[..., object]]] = {
    "peers": (lambda node: node.transport.port, ask_as_peer),
    "clients": (lambda node: node.client_port.port, ask_as_client),
    "mqtt": (lambda node: node.mqtt.port, ask_by_mqtt),  # type: ignore[union-attr]
    "admin": (lambda node: node.admin.port, ask_admin),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("port", PORTS)
def test_idle_connections_of_one_address_keep_nobody_else_out(port):
    needs_a_second_address()
    port_of, ask = PORTS[port]

    async def work() -> None:
        settings = {"limits": LIMITS, "admin_listen": "127.0.0.1:0", "mqtt": MqttConfig(listen="127.0.0.1:0")}
        async with mesh("a", **settings) as (node,), idle(port_of(node)):
            for _ in range(6):
                await ask(node)

    run(work())


def test_idle_connections_of_one_address_that_never_begin_with_tls_keep_nobody_else_out(sign):
    needs_a_second_address()
    context = make_context(sign("ann", *CLIENT), server=False)

    async def work() -> None:
        async with mesh("a", limits=LIMITS, tls=sign("a", *node_of("a"))) as (node,), idle(node.client_port.port):
            for _ in range(6):
                async with trellis.connect(client_address(node), tls=context, timeout_s=30) as client:
                    await client.subscribe("t")

    run(work())


def test_a_burst_of_clients_from_one_address_is_served_to_the_last():
    """They come faster than they are read. None of them is idle, so none may be taken for a stranger."""

    async def work() -> None:
        async with mesh("a", limits=LIMITS) as (node,):
            clients = [trellis.connect(client_address(node), timeout_s=30) for _ in range(60)]
            async with contextlib.AsyncExitStack() as stack:
                await asyncio.gather(*(stack.enter_async_context(one) for one in clients))
                await until(lambda: len(node.client_port.clients) == 60)
                assert node.client_port.counters["cut full"] == 0

    run(work())


def test_a_peer_that_was_accepted_is_not_cut_when_the_pool_is_full():
    needs_a_second_address()

    async def work() -> None:
        async with mesh("a", "b", limits=LIMITS, topics=("t",)) as nodes:
            await until(lambda: all(len(node.transport.peers) == 1 for node in nodes))
            before = [node.transport.peers.copy() for node in nodes]
            async with idle(nodes[0].transport.port):
                await ask_as_peer_elsewhere(peer_address(nodes[0]))
            assert all(node.transport.peers.items() >= kept.items() for node, kept in zip(nodes, before, strict=True))
            assert not any(node.transport.counters["broken"] for node in nodes)

    run(work())


async def ask_as_peer_elsewhere(address: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
    writer.write(pack_control(Hello(PROTOCOL, VERSION, "another", "omen", Address("c", 1, "127.0.0.1", 9))))
    assert await reader.read()
    writer.close()


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
    ],
)
def test_a_source_is_an_address_or_a_prefix_of_ipv6(host, source):
    assert source_of(host) == source


def _has_ended(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_burst_of_connections_that_go_away_leaves_nothing_open():
    """More than the port holds come in one moment, say nothing and go; then it answers as before."""

    async def work() -> None:
        server = HttpServer(lambda request: Answer(b"ok\n"))
        server.bind("127.0.0.1:0", None)
        server.serve()
        address = ("127.0.0.1", server.port)
        before = open_files()
        for _ in range(2):
            burst = [socket.socket() for _ in range(400)]
            for one in burst:
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    one.connect(address)
            await asyncio.sleep(0.2)
            for one in burst:
                one.close()
            assert (await get(f"127.0.0.1:{server.port}", "/", 30))[0] == 200
        await until(lambda: open_files() <= before + 2)
        await server.close()

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("open files are counted in /proc")
    run(work())
