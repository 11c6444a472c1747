"""The HTTP server: whatever a client sends, it answers in order or cuts it off, and goes on for the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live.lives import run, until
from trellis.live.http import Events, HttpServer, Limits, event
from trellis.live.http_client import HttpClient, get
from trellis.live.http_messages import HEAD_BYTES_MAX, Answer, BadRequest, Request, is_local_host, parse_request

HELLO = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LAST = b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


class Site:
    def __init__(self) -> None:
        self.events = Events(lambda: event("first", b"{}"))
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Answer | Events | None:
        self.asked.append(request.path)
        match request.path:
            case "/hello":
                return Answer(b"hello\n")
            case "/large":
                return Answer(b"x" * (8 << 20))
            case "/broken":
                raise RuntimeError("secret")
            case "/events":
                return self.events
        return None


@asynccontextmanager
async def serving(site: Site, limits: Limits | None = None, *, is_local: bool = True) -> AsyncIterator[HttpServer]:
    server = HttpServer(site, limits, is_local=is_local)
    server.bind("127.0.0.1:0")
    server.serve()
    try:
        yield server
        assert not server.counters["bugs"] or "/broken" in site.asked
    finally:
        await server.close()


async def say(server: HttpServer, *parts: bytes, ends: bool = False) -> bytes:
    """What comes until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if ends:
            writer.write_eof()
        return await reader.read()
    except (ConnectionError, RuntimeError):  # uvloop raises the latter where the other end has closed
        return b""
    finally:
        writer.close()


def statuses(answer: bytes) -> list[int]:
    return [int(one) for one in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def test_get_and_head_are_answered_alike_but_for_the_body():
    async def work() -> None:
        async with serving(Site()) as server:
            got = await say(server, LAST)
            head = await say(server, LAST.replace(b"GET", b"HEAD"))
            assert got == head + b"hello\n"
            assert b"Content-Length: 6\r\n" in head

    run(work())


def test_pipelined_requests_are_answered_in_their_order():
    async def work() -> None:
        site = Site()
        async with serving(site) as server:
            asked = [b"GET /%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % number for number in range(50)]
            answer = await say(server, b"".join(asked) + LAST)
            assert statuses(answer) == [404] * 50 + [200]
            assert site.asked == [*(f"/{number}" for number in range(50)), "/hello"]

    run(work())


def test_a_connection_is_kept_and_used_again():
    async def work() -> None:
        async with serving(Site()) as server:
            client = HttpClient(f"127.0.0.1:{server.port}")
            assert [await client.get("/hello") for _ in range(3)] == [(200, b"hello\n")] * 3
            assert len(server.connections) == 1
            client.close()

    run(work())


def test_a_client_whose_connection_was_closed_as_idle_asks_on_a_new_one():
    async def work() -> None:
        async with serving(Site(), Limits(idle_s=0.05)) as server:
            client = HttpClient(f"127.0.0.1:{server.port}")
            await client.get("/hello")
            await until(lambda: not server.connections)
            assert await client.get("/hello") == (200, b"hello\n")
            client.close()

    run(work())


def test_a_handler_that_fails_tells_the_client_nothing(caplog):
    async def work() -> None:
        async with serving(Site()) as server:
            answer = await say(server, b"GET /broken HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert statuses(answer) == [500]
            assert b"secret" not in answer
            assert b"Traceback" not in answer
            assert server.counters["bugs"] == 1

    with caplog.at_level(logging.CRITICAL):
        run(work())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /hello HTTP/1.1\r\nHost: 127.0.0.1", 405),
        (b"GET /hello HTTP/2.0\r\nHost: 127.0.0.1", 505),
        (b"GET /hello HTTP/1.1", 400),
        (b"GET http://127.0.0.1/hello HTTP/1.1\r\nHost: 127.0.0.1", 400),
        (b"GET  /hello HTTP/1.1\r\nHost: 127.0.0.1", 400),
        (b"GET /hello HTTP/1.1\r\nHost : 127.0.0.1", 400),
        (b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\n folded", 400),
        (b"GET /hello HTTP/1.1\nHost: 127.0.0.1", 400),
        (b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.2", 400),
        (b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4", 413),
        (b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked", 413),
        (b"GET /" + b"a" * 4_000 + b" HTTP/1.1\r\nHost: 127.0.0.1", 414),
        (b"GET /hello HTTP/1.1\r\nHost: evil.example", 421),
        (b"GET /hello HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80", 421),
    ],
    ids=str,
)
def test_a_bad_request_is_told_why_and_cut_off(head, status):
    async def work() -> None:
        site = Site()
        async with serving(site) as server:
            answer = await say(server, head + b"\r\n\r\n" + HELLO)
            assert statuses(answer) == [status], "what follows a bad request is not believed"
            assert not site.asked

    run(work())


def test_hosts_are_addresses_or_localhost_on_a_loopback_socket_only():
    assert all(is_local_host(one) for one in ("127.0.0.1", "127.0.0.1:80", "[::1]:80", "[::1]", "localhost:8080"))
    assert not any(is_local_host(one) for one in ("", "a", "a:80", "localhost.evil", "127.0.0.1@evil", "[::1].evil"))
    head = b"GET / HTTP/1.1\r\nHost: dashboard.example"
    with pytest.raises(BadRequest):
        parse_request(head)
    assert parse_request(head, is_local=False).path == "/"


def test_a_head_that_does_not_end_is_refused_before_it_grows():
    async def work() -> None:
        async with serving(Site()) as server:
            answer = await say(server, b"GET / HTTP/1.1\r\n", b"X: " + b"a" * (2 * HEAD_BYTES_MAX))
            assert statuses(answer) in ([431], [])  # a client that goes on writing may find the stream reset
            assert server.counters["refused 431"] == 1
            assert await get(f"127.0.0.1:{server.port}", "/hello") == (200, b"hello\n")

    run(work())


def test_who_is_slow_to_ask_is_cut_off_however_it_trickles():
    async def work() -> None:
        async with serving(Site(), Limits(head_s=0.2)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            try:
                for letter in HELLO * 1_000:
                    if reader.at_eof() or writer.is_closing():
                        break
                    writer.write(bytes([letter]))
                    await asyncio.sleep(0.02)
            except (ConnectionError, RuntimeError):
                pass
            finally:
                writer.close()
            assert server.counters["cut slow"] == 1
            assert not server.counters["requests"]

    run(work())


def test_who_does_not_read_is_cut_off_and_nobody_waits_for_it():
    async def work() -> None:
        async with serving(Site(), Limits(stall_s=0.3)) as server:
            lazy_reader, lazy = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
            lazy.write(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100)
            await until(lambda: server.counters["requests"] >= 1)
            assert await get(f"127.0.0.1:{server.port}", "/hello") == (200, b"hello\n")
            await until(lambda: server.counters["cut slow"] == 1)
            assert server.counters["requests"] == 2, "it was asked for no more while it did not read"
            lazy.close()
            del lazy_reader

    run(work())


def test_there_are_no_more_connections_than_allowed_and_the_one_that_asked_longest_ago_gives_way():
    async def work() -> None:
        async with serving(Site(), Limits(connections_max=3)) as server:
            opened = []
            for _ in range(3):
                opened.append(await asyncio.open_connection("127.0.0.1", server.port))
                opened[-1][1].write(HELLO)
                await opened[-1][0].readuntil(b"hello\n")
            opened[0][1].write(HELLO)
            await opened[0][0].readuntil(b"hello\n")
            assert statuses(await say(server, LAST)) == [200]
            assert len(server.connections) <= 3
            assert server.counters["cut full"] == 1
            with contextlib.suppress(ConnectionResetError):
                assert await opened[1][0].read() == b""
            for reader, writer in (opened[0], opened[2]):
                writer.write(HELLO)
                await reader.readuntil(b"hello\n")
            for _, writer in opened:
                writer.close()

    run(work())


def test_events_reach_everybody_who_listens_and_no_more_may_listen_than_allowed():
    async def work() -> None:
        site = Site()
        async with serving(site, Limits(streams_max=2)) as server:
            asked = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            listening = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
            for reader, writer in listening:
                writer.write(asked)
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readuntil(b"\n\n") == b"event: first\ndata: {}\n\n"
            assert statuses(await say(server, asked)) == [503]
            site.events.say(event("news", b"[1]"))
            for reader, writer in listening:
                assert await reader.readuntil(b"\n\n") == b"event: news\ndata: [1]\n\n"
                writer.close()
            await until(lambda: not site.events.listeners)
            assert server.streaming == 0

    run(work())


def test_a_listener_that_does_not_read_events_is_cut_off():
    async def work() -> None:
        site = Site()
        async with serving(site, Limits(stall_s=60)) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
            writer.write(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await until(lambda: bool(site.events.listeners))
            for _ in range(64):
                site.events.say(event("news", b"1" * (1 << 20)))
                await asyncio.sleep(0)
            await until(lambda: not site.events.listeners)
            assert server.counters["cut slow"] == 1
            writer.close()
            del reader

    run(work())


LINES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [b"GET /hello HTTP/1.1", b"Host: 127.0.0.1", b"Host: x", b"", b"Connection: close", b"\xff: \x00"]
        ),
        st.sampled_from([b"HEAD / HTTP/1.0", b"Content-Length: 5", b"GET /hello?q HTTP/1.1", b"POST / HTTP/1.1"]),
    ),
    max_size=12,
).map(b"\r\n".join)


@settings(max_examples=150, deadline=None)
@given(sent=st.lists(st.one_of(st.binary(max_size=200), LINES, st.just(HELLO), st.just(b"\r\n\r\n")), max_size=6))
def test_whatever_is_sent_the_answers_are_ours_and_the_server_goes_on(sent):
    async def work() -> None:
        async with serving(Site()) as server:
            answer = await say(server, *sent, ends=True)
            rest = answer
            while rest:  # nothing but whole answers
                head, _, rest = rest.partition(b"\r\n\r\n")
                length = re.search(rb"\r\nContent-Length: (\d+)\r\n", head)
                assert head.startswith(b"HTTP/1.1 ")
                assert length is not None
                body = rest[: int(length[1])]
                rest = rest[len(body) :] if not rest.startswith(b"HTTP/1.1 ") else rest  # that of HEAD has none
            assert b"Traceback" not in answer
            assert await get(f"127.0.0.1:{server.port}", "/hello") == (200, b"hello\n")

    run(work())


@settings(max_examples=300, deadline=None)
@given(head=st.one_of(st.binary(max_size=300), LINES))
def test_a_head_is_a_request_or_a_bad_one(head):
    try:
        request = parse_request(head)
    except BadRequest:
        return
    assert request.method in ("GET", "HEAD")
    assert request.path.startswith("/")
    assert "?" not in request.path
    assert is_local_host(request.headers.get("host", "localhost"))


def test_events_are_said_on_when_a_listener_has_just_gone():
    async def work() -> None:
        site = Site()
        async with serving(site) as server:
            for _ in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                await reader.readuntil(b"\n\n")
                writer.transport.abort()
                while site.events.listeners:
                    site.events.say(event("news", b"[1]"))
                    await asyncio.sleep(0)

    run(work())
