"""Attacks on the admin port of a whole node: slow requests, hogs and floods keep nobody from reading its health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import trellis
from live.lives import client_address, mesh, run, until
from trellis.live.http import HttpServer
from trellis.live.http_client import get
from trellis.live.shell import LiveNode

ASK = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def server_of(node: LiveNode) -> HttpServer:
    assert node.admin is not None
    assert node.admin.http is not None
    return node.admin.http


async def assert_served(node: LiveNode) -> None:
    """The admin port answers, and so does the node itself."""
    address = f"127.0.0.1:{server_of(node).port}"
    assert (await get(address, "/livez", timeout_s=30))[0] == 200
    assert len(server_of(node).connections) <= server_of(node).limits.connections_max
    async with trellis.connect(client_address(node)) as client:
        await client.publish("t", b"still here")


@asynccontextmanager
async def opened(node: LiveNode, count: int, first: bytes) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Connections that say something and stay."""
    port = server_of(node).port
    both = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in both:
        writer.write(first)
    try:
        yield [writer for _, writer in both]
    finally:
        for _, writer in both:
            writer.close()


def test_heads_that_come_letter_by_letter_keep_nobody_out():
    async def work() -> None:
        async with mesh("a", admin_listen="127.0.0.1:0") as (node,), opened(node, 200, b"GET /li") as slow:
            for letter in ASK[7:15]:
                for writer in slow:
                    if not writer.is_closing():
                        writer.write(bytes([letter]))
                await assert_served(node)

    run(work())


def test_connections_that_have_asked_once_and_stay_keep_nobody_out():
    """They ask again before they are closed as idle, so they would stay for hours."""

    async def work() -> None:
        async with mesh("a", admin_listen="127.0.0.1:0") as (node,):
            server = server_of(node)
            async with AsyncExitStack() as stack:
                for number in range(1, server.limits.connections_max + 1):
                    await stack.enter_async_context(opened(node, 1, ASK))
                    await until(lambda number=number: server.counters["requests"] >= number)
                assert len(server.connections) == server.limits.connections_max
                for _ in range(5):
                    await assert_served(node)
                assert server.counters["cut full"] >= 1

    run(work())


def test_a_thousand_requests_at_once_hold_up_neither_the_node_nor_others():
    """`HEAD /metrics` is short on the wire and long to answer. One is answered in a turn of the loop."""

    async def work() -> None:
        async with mesh("a", admin_listen="127.0.0.1:0") as (node,):
            server = server_of(node)
            loop, turn, in_turn = asyncio.get_running_loop(), 0, dict[int, int]()
            real = server.handler

            def count(request):
                in_turn[turn] = in_turn.get(turn, 0) + 1
                return real(request)

            def next_turn() -> None:
                nonlocal turn
                turn += 1
                loop.call_soon(next_turn)

            server.handler = count
            next_turn()
            flood = b"HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 900
            async with opened(node, 4, flood):
                await until(lambda: server.counters["requests"] > 4)
                await assert_served(node)
                assert server.counters["requests"] < 3_600, "it was served before all of the flood"
            assert max(in_turn.values()) <= 2

    run(work())
