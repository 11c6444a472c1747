"""A small HTTP/1.1 server without request bodies: what an admin port and a dashboard need. Nothing can hold it up.

    request   a head of at most 16 KiB that is complete in time; no body
    answer    whole (`Answer`), or a stream of events that goes on (`Events`)

One connection is served one request at a time, in order, for as long as its client reads what it is told. Whoever is
slow, silent or says something else is answered with one line where that is possible, and cut off. When there are too
many connections, the source address with the most of them loses the one that has asked nothing for longest. All answers
together take at most `SHARE` of the time: requests wait for their turn, those of connections that have asked least come
first. So a client that sends thousands of requests at once holds up neither the node nor others for long.

A handler that fails is our bug: it is logged, and the client reads 500. By a loopback socket only hosts that no name
server can make up are served (addresses, localhost), or a page of somebody else could read what it should not.
[DNS rebinding]
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

STREAM_BYTES_MAX = 4 << 20  # that wait for a reader of events; then it is cut off, and comes back

SHARE = 0.25  # of the time of the process
NEEDS_TLS = f"{SPEAKS_TLS}: use https, and show a certificate of the cluster (--ca, --cert, --key)"


@dataclass(frozen=True)
class Limits:
    connections_max: int = 64
    head_s: float = 5.0  # from the first moment of a request to the end of its head
    idle_s: float = 30.0  # between requests
    stall_s: float = 10.0  # a client that reads nothing for so long is cut off
    requests_max: int = 1_000  # of one connection
    streams_max: int = 16  # connections that read events


class Events:
    """Server-sent events to everybody who listens: `say` never waits, and who does not read is cut off."""

    def __init__(self, greet: Callable[[], bytes] = lambda: b"") -> None:
        """`greet` is what a new listener is told first."""
        self.greet = greet
        self.listeners: dict[Connection, None] = {}

    def say(self, chunk: bytes) -> None:
        for one in list(self.listeners):
            one.write_event(chunk)


def event(name: str, data: bytes) -> bytes:
    """One event; `data` is JSON, so it has no line ends."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


Handler = Callable[[Request], Answer | Events | None]  # None: there is no such thing


class HttpServer:
    def __init__(
        self,
        handler: Handler,
        limits: Limits | None = None,
        *,
        is_local: bool = True,
        methods: tuple[str, ...] = READING,
    ) -> None:
        """`is_local`: only hosts that are addresses or localhost are answered. Other methods are refused."""
        self.methods = methods
        self.handler, self.limits, self.is_local = handler, limits or Limits(), is_local
        self.counters: Counter[str] = Counter()
        self.connections: dict[Connection, None] = {}
        self.streaming = 0
        self.port = 0
        self._listener: Listener | None = None
        self._is_closed = False
        self._loop, self._machine = asyncio.get_running_loop(), machine()
        self.count = 0  # connections opened and requests made: the order in which connections have asked
        self._asking: dict[Connection, None] = {}  # those that have asked something, or may have
        self._turn: asyncio.Handle | None = None  # when the next of them is answered

    def bind(self, address: str, tls: Credentials | None = None) -> None:
        """Nothing is accepted before `serve`."""
        limits = self.limits
        most = max(1, limits.connections_max // 2)  # the others stay free for connections that ask something
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
        self._is_closed = True
        if self._listener is not None:
            await self._listener.close()
        for one in list(self.connections):
            one.cut("closed")

    def _accept(self) -> Connection | None:
        if self._is_closed or (len(self.connections) >= self.limits.connections_max and not self._make_room()):
            return None
        return Connection(self)

    def _make_room(self) -> bool:
        """Cut the connection that has asked nothing for longest, of the source that has most. Events are kept."""
        idle = [one for one in self.connections if one.may_give_way]
        if not idle:
            return False
        counts = Counter(one.source for one in self.connections)
        min(idle, key=lambda one: (-counts[one.source], one.asked)).cut("full")
        return True

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._asking.pop(connection, None)

    def is_asking(self, connection: Connection) -> bool:
        return connection in self._asking

    def wants(self, connection: Connection) -> None:
        """Serve a connection that may have asked something: at once, or when it is its turn."""
        self._asking[connection] = None
        if self._turn is None:
            self._serve_next()

    def _serve_next(self) -> None:
        self._turn = None
        if not self._asking or self._is_closed:
            return
        one = min(self._asking, key=lambda one: one.requests)
        del self._asking[one]
        began = self._machine.computed_s()
        if one.serve():
            self._asking[one] = None
        pause_s = (self._machine.computed_s() - began) * (1 / SHARE - 1)
        self._turn = self._loop.call_later(pause_s, self._serve_next)


@dataclass(eq=False)
class Connection(asyncio.Protocol):
    server: HttpServer
    requests: int = 0
    source: str = ""
    asked: int = 0  # the server's count when it asked last, or was opened
    _buffer: bytearray = field(default_factory=bytearray)
    _events: Events | None = None
    _is_paused: bool = False
    _is_closing: bool = False
    _is_last: bool = False  # it sends nothing more
    _transport: asyncio.Transport | None = None
    _deadline: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    # What the loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.server.connections[self] = None
        self.source = source_of((transport.get_extra_info("peername") or ("",))[0])
        self._note()
        self._must_by(self.server.limits.head_s, "slow")

    def data_received(self, data: bytes) -> None:
        if self._is_closing or self._events is not None:
            return  # nothing more is wanted of it
        if not self._buffer and self.requests:
            self._must_by(self.server.limits.head_s, "slow")
        self._buffer += data
        self.server.wants(self)

    def eof_received(self) -> bool:
        """Keep the connection while requests wait for their turn. With TLS it ends at once."""
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
        if self._transport is not None and self in self.server.connections:
            if why != "closed":
                self.server.counters[f"cut {why}"] += 1
            self._is_closing = True
            self._transport.abort()

    def write_event(self, chunk: bytes) -> None:
        if self._transport is None or self._is_closing or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() + len(chunk) > STREAM_BYTES_MAX:
            self.cut("slow")
        else:
            self._transport.write(chunk)

    # One request after another

    def _note(self) -> None:
        self.server.count += 1
        self.asked = self.server.count

    @property
    def may_give_way(self) -> bool:
        return self._events is None and not self._is_closing

    def serve(self) -> bool:
        """Answer one request, if there is one. Return whether there may be another."""
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
        server = self.server
        server.counters["requests"] += 1
        try:
            found = server.handler(request)
        except Exception:
            log.exception("%s: the handler broke", request.path)
            server.counters["bugs"] += 1
            found = Answer(b"internal error\n", status=500)
        if found is None:
            found = Answer(b"there is no such page\n", status=404)
        if isinstance(found, Events):
            self._stream(request, found)
            return
        keeps = request.keeps_alive and self.requests < server.limits.requests_max
        self._write(pack_answer(found, has_body=request.method != "HEAD", keeps_alive=keeps))
        if not keeps:
            self._close()

    def _stream(self, request: Request, events: Events) -> None:
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
        self.server.counters[f"refused {refusal.status}"] += 1
        headers = (("Allow", ", ".join(self.server.methods)),) if refusal.status == 405 else ()
        self._write(pack_answer(Answer(f"{refusal}\n".encode(), status=refusal.status, headers=headers), True, False))
        self._close()

    def _write(self, data: bytes) -> None:
        # uvloop raises where it was closed under us and we have not been told yet.
        if self._transport is not None and data and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        """When what was written is read, or at the latest after `stall_s`."""
        self._is_closing = True
        self._buffer.clear()
        if self._transport is not None:
            self._transport.close()
        self._must_by(self.server.limits.stall_s, "closed")

    def _must_by(self, seconds: float, why: str) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if self in self.server.connections and self._events is None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self.cut, why)
