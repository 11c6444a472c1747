"""A small HTTP/1.1 server for the admin port and the dashboard. No client can block it.

    request   a head of at most 16 KiB that is complete in time; no body
    answer    a whole one (`Answer`), or an endless stream of server-sent events (`Events`)

These rules protect the node, which runs in the same thread, and other clients:

- A connection is served one request at a time, in order, and only while its client reads the answers.
- A client that is slow, silent or does not send HTTP is cut off, after one line of text where that is possible.
- When there are too many connections, the source address with the most of them loses one: the one that made its last
  request longest ago.
- All answers together take at most `SHARE` of the time. Requests wait for their turn, and connections with the fewest
  requests so far come first.

A handler that raises an error is our bug: it is logged, and the client gets status 500.

A server on loopback answers only requests for an address or for localhost, in the header `Host`. Otherwise a foreign
web page could let its own host name resolve to this machine, and read the answers. [DNS rebinding]
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from trellis.live.http_messages import (
    HEAD_BYTES_MAX,
    READING,
    Answer,
    BadRequest,
    Request,
    pack_answer,
    pack_head,
    parse_request,
)
from trellis.live.listen import Listener, source_of
from trellis.live.machine import machine
from trellis.live.tls import SPEAKS_TLS, Credentials

log = logging.getLogger("trellis.live")

STREAM_BYTES_MAX = 4 << 20  # most bytes that wait for a reader of events; beyond it the reader is cut off

SHARE = 0.25  # part of the process's computing time that answers may take
NEEDS_TLS = f"{SPEAKS_TLS}: use https, and show a certificate of the cluster (--ca, --cert, --key)"


@dataclass(frozen=True)
class Limits:
    """Limits of a server. Times are in seconds. A client that exceeds one is cut off."""

    connections_max: int = 64
    head_s: float = 5.0  # from the first byte of a request, or the start of a connection, to the end of the head
    idle_s: float = 30.0  # between two requests
    stall_s: float = 10.0  # without reading anything of an answer
    requests_max: int = 1_000  # Requests on one connection. It is closed in order after the last one.
    streams_max: int = 16  # Connections that read events. Further ones get status 503.

    @property
    def half_open_max(self) -> int:
        """Return the most connections without a request. The rest is for connections with one."""
        return max(1, self.connections_max // 2)


class Events:
    """A stream of server-sent events for any number of readers. A reader that does not read is cut off."""

    def __init__(self, greet: Callable[[], bytes] = lambda: b"") -> None:
        """`greet` returns the first bytes for a new reader."""
        self.greet = greet
        self.listeners: dict[Connection, None] = {}

    def say(self, chunk: bytes) -> None:
        """Send bytes to all readers, without waiting for them."""
        for listener in list(self.listeners):
            listener.write_event(chunk)


def event(name: str, data: bytes) -> bytes:
    """Return one event as bytes. `data` is JSON, so it contains no line ends."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


Handler = Callable[[Request], Answer | Events | None]  # None: there is no such path


class HttpServer:
    """Accept connections, and decide which one is served next."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits | None = None,
        *,
        is_local: bool = True,
        methods: tuple[str, ...] = READING,
    ) -> None:
        """`is_local`: refuse requests for hosts other than addresses and localhost. `methods`: refuse all others."""
        self.methods = methods
        self.handler, self.limits, self.is_local = handler, limits or Limits(), is_local
        self.counters: Counter[str] = Counter()
        self.connections: dict[Connection, None] = {}
        self.streaming = 0  # connections that read events
        self.port = 0
        self._listener: Listener | None = None
        self._is_closed = False
        self._loop, self._machine = asyncio.get_running_loop(), machine()
        self.count = 0  # Connections opened and requests made so far. It orders connections by their last request.
        self._asking: dict[Connection, None] = {}  # connections with bytes that may hold a request
        self._turn: asyncio.Handle | None = None  # when the next of them is served

    def bind(self, address: str, tls: Credentials | None = None) -> None:
        """Bind the port. Nothing is accepted before `serve`."""
        limits = self.limits
        most = limits.half_open_max
        refusal = pack_answer(Answer(f"{NEEDS_TLS}\n".encode(), status=400), has_body=True, keeps_alive=False)
        self._listener = Listener(
            address,
            self._accept,
            tls,
            self.counters,
            limits.head_s,
            most,
            refusal,
            is_known=lambda connection: connection.requests > 0,
            burst_max=most,
        )
        self.port = self._listener.port

    def serve(self) -> None:
        assert self._listener is not None
        self._listener.serve()

    async def close(self) -> None:
        """Stop listening, and cut all connections."""
        self._is_closed = True
        if self._listener is not None:
            await self._listener.close()
        for connection in list(self.connections):
            connection.cut("closed")

    def _accept(self) -> Connection | None:
        """Return the protocol for a new connection, or None if there is no room for it."""
        if self._is_closed or (len(self.connections) >= self.limits.connections_max and not self._make_room()):
            return None
        return Connection(self)

    def _make_room(self) -> bool:
        """Cut a connection: of the source with the most of them, the one whose last request is oldest.

        Readers of events are not cut. Return whether there was one to cut.
        """
        idle = [connection for connection in self.connections if connection.may_give_way]
        if not idle:
            return False
        counts = Counter(connection.source for connection in self.connections)
        min(idle, key=lambda connection: (-counts[connection.source], connection.asked)).cut("full")
        return True

    def forget(self, connection: Connection) -> None:
        """Note that a connection has ended."""
        self.connections.pop(connection, None)
        self._asking.pop(connection, None)

    def is_asking(self, connection: Connection) -> bool:
        """Return whether requests of a connection wait for their turn."""
        return connection in self._asking

    def wants(self, connection: Connection) -> None:
        """Serve a connection that may have sent a request: at once, or when it is its turn."""
        self._asking[connection] = None
        if self._turn is None:
            self._serve_next()

    def _serve_next(self) -> None:
        """Serve one request of the connection with the fewest so far. Then pause, so that `SHARE` is kept."""
        self._turn = None
        if not self._asking or self._is_closed:
            return
        connection = min(self._asking, key=lambda connection: connection.requests)
        del self._asking[connection]
        began = self._machine.computed_s()
        if connection.serve():
            self._asking[connection] = None
        pause_s = (self._machine.computed_s() - began) * (1 / SHARE - 1)
        self._turn = self._loop.call_later(pause_s, self._serve_next)


@dataclass(eq=False)
class Connection(asyncio.Protocol):
    """One connection of a client."""

    server: HttpServer
    requests: int = 0  # requests so far
    source: str = ""  # source address (`listen.source_of`)
    asked: int = 0  # The server's `count` at the last request, or when the connection was opened.
    _buffer: bytearray = field(default_factory=bytearray)  # bytes that are not served yet
    _events: Events | None = None  # The events that it reads. It sends no more requests then.
    _is_paused: bool = False  # The client does not read, so nothing is served.
    _is_closing: bool = False
    _is_last: bool = False  # The client has closed its side. Close ours after the last answer.
    _transport: asyncio.Transport | None = None
    _deadline: asyncio.TimerHandle | None = None  # Cuts the connection if the next request, or its end, comes too late.
    _stall: asyncio.TimerHandle | None = None  # Cuts the connection if the client reads nothing for too long.

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.server.connections[self] = None
        self.source = source_of((transport.get_extra_info("peername") or ("",))[0])
        self._note()
        self._must_by(self.server.limits.head_s, "slow")

    def data_received(self, data: bytes) -> None:
        if self._is_closing or self._events is not None:
            return  # further bytes are ignored
        if not self._buffer and self.requests:
            self._must_by(self.server.limits.head_s, "slow")
        self._buffer += data
        self.server.wants(self)

    def eof_received(self) -> bool:
        """Return whether to keep the connection open, because requests wait for their turn. With TLS it cannot stay."""
        assert self._transport is not None
        self._is_last = self.server.is_asking(self) and self._transport.get_extra_info("sslcontext") is None
        return self._is_last

    def pause_writing(self) -> None:
        self._is_paused = True
        loop = asyncio.get_running_loop()
        self._stall = loop.call_later(self.server.limits.stall_s, self.cut, "slow")
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._transport is not None and not self._is_closing and not self._transport.is_closing():
            self._transport.resume_reading()
            self.server.wants(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self.server.forget(self)
        for timer in (self._deadline, self._stall):
            if timer is not None:
                timer.cancel()
        if self._events is not None:
            self._events.listeners.pop(self, None)
            self._events = None
            self.server.streaming -= 1

    def cut(self, why: str) -> None:
        """End the connection at once, and count the reason."""
        if self._transport is not None and self in self.server.connections:
            if why != "closed":
                self.server.counters[f"cut {why}"] += 1
            self._is_closing = True
            self._transport.abort()

    def write_event(self, chunk: bytes) -> None:
        """Send an event. Cut the connection if too many bytes wait already."""
        if self._transport is None or self._is_closing or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() + len(chunk) > STREAM_BYTES_MAX:
            self.cut("slow")
        else:
            self._transport.write(chunk)

    # Requests, one after another

    def _note(self) -> None:
        """Note that the connection has been used now."""
        self.server.count += 1
        self.asked = self.server.count

    @property
    def may_give_way(self) -> bool:
        """Return whether the connection may be cut to make room for another."""
        return self._events is None and not self._is_closing

    def serve(self) -> bool:
        """Answer one request, if a complete one has come. Return whether there may be another."""
        has_more = self._serve()
        if self._is_last and not has_more and not self._is_paused and not self._is_closing:
            self._close()
        return has_more

    def _serve(self) -> bool:
        if self._is_paused or self._is_closing or self._events is not None:
            return False
        end = self._buffer.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
        if self._buffer[:2] == b"\x16\x03":
            self._refuse(BadRequest(400, "this port does not speak TLS"))
            return False
        if end < 0:
            if len(self._buffer) >= HEAD_BYTES_MAX:
                self._refuse(BadRequest(431, "the head of the request is too large"))
            return False
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        self.requests += 1
        self._note()
        try:
            request = parse_request(head, is_local=self.server.is_local, methods=self.server.methods)
        except BadRequest as refusal:
            self._refuse(refusal)
            return False
        self._answer(request)
        self._must_by(self.server.limits.idle_s if not self._buffer else self.server.limits.head_s, "slow")
        return bool(self._buffer)

    def _answer(self, request: Request) -> None:
        """Call the handler, and send its answer."""
        server = self.server
        server.counters["requests"] += 1
        try:
            answer = server.handler(request)
        except Exception:
            log.exception("%s: the handler broke", request.path)
            server.counters["bugs"] += 1
            answer = Answer(b"internal error\n", status=500)
        if answer is None:
            answer = Answer(b"there is no such page\n", status=404)
        if isinstance(answer, Events):
            self._stream(request, answer)
            return
        keeps = request.keeps_alive and self.requests < server.limits.requests_max
        self._write(pack_answer(answer, has_body=request.method != "HEAD", keeps_alive=keeps))
        if not keeps:
            self._close()

    def _stream(self, request: Request, events: Events) -> None:
        """Make the client a reader of events."""
        if self.server.streaming >= self.server.limits.streams_max:
            self._refuse(BadRequest(503, "too many readers of events"))
            return
        head = pack_head(200, [("Content-Type", "text/event-stream"), ("Connection", "close")])
        self._write(head)
        if request.method == "HEAD":
            self._close()
            return
        self._events = events
        self.server.streaming += 1
        self._buffer.clear()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        events.listeners[self] = None
        self._write(events.greet())

    def _refuse(self, refusal: BadRequest) -> None:
        """Answer a bad request with one line, and close the connection."""
        self.server.counters[f"refused {refusal.status}"] += 1
        headers = (("Allow", ", ".join(self.server.methods)),) if refusal.status == 405 else ()
        self._write(pack_answer(Answer(f"{refusal}\n".encode(), status=refusal.status, headers=headers), True, False))
        self._close()

    def _write(self, data: bytes) -> None:
        # If the connection was lost and we were not told yet, a write raises in uvloop.
        if self._transport is not None and data and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        """Close the connection when the client has read everything, or at the latest after `stall_s`."""
        self._is_closing = True
        self._buffer.clear()
        if self._transport is not None:
            self._transport.close()
        self._must_by(self.server.limits.stall_s, "closed")

    def _must_by(self, seconds: float, why: str) -> None:
        """Cut the connection after so many seconds, unless called again before. Readers of events are exempt."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if self in self.server.connections and self._events is None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self.cut, why)
