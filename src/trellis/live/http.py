"""A small HTTP/1.1 server for GET and HEAD: what an admin port and a dashboard need, and nothing that can be held up.

    request   a head of at most 16 KiB that is complete in time; no body
    answer    whole (`Answer`), or a stream of events that goes on (`Events`)

One connection is served one request at a time, in order, for as long as its client reads what it is told. Whoever is
slow, silent or says something else is answered with one line where that is possible, and cut off. A handler that fails
is our bug: it is logged, and the client reads 500. By a loopback socket only hosts that no name server can make up are
served (addresses, localhost), or a page of somebody else could read what it should not.  [DNS rebinding]
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from trellis.live.addresses import parse_address
from trellis.live.listen import Listener
from trellis.live.tls import SPEAKS_TLS, Credentials

log = logging.getLogger("trellis.live")

HEAD_BYTES_MAX = 16 << 10
TARGET_LETTERS_MAX = 2_048
STREAM_BYTES_MAX = 4 << 20  # that wait for a reader of events; then it is cut off, and comes back

_REASONS = {200: "OK", 304: "Not Modified", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}
_REASONS |= {408: "Request Timeout", 413: "Content Too Large", 414: "URI Too Long", 421: "Misdirected Request"}
_REASONS |= {431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable"}
_REASONS |= {505: "HTTP Version Not Supported"}
_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]+) HTTP/(\d)\.(\d)")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_TEXT = "text/plain; charset=utf-8"
NEEDS_TLS = f"{SPEAKS_TLS}: use https, and show a certificate of the cluster (--ca, --cert, --key)"


@dataclass(frozen=True)
class Limits:
    connections_max: int = 64
    head_s: float = 5.0  # from the first moment of a request to the end of its head
    idle_s: float = 30.0  # between requests
    stall_s: float = 10.0  # a client that reads nothing for so long is cut off
    requests_max: int = 1_000  # of one connection
    streams_max: int = 16  # connections that read events


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # as it was sent, without what follows "?"
    headers: dict[str, str]  # names in small letters
    keeps_alive: bool


@dataclass(frozen=True)
class Answer:
    body: bytes
    kind: str = _TEXT
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class BadRequest(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


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
    def __init__(self, handler: Handler, limits: Limits | None = None, *, is_local: bool = True) -> None:
        """`is_local`: only hosts that are addresses or localhost are answered."""
        self.handler, self.limits, self.is_local = handler, limits or Limits(), is_local
        self.counters: Counter[str] = Counter()
        self.connections: dict[Connection, None] = {}
        self.streaming = 0
        self.port = 0
        self._listener: Listener | None = None
        self._is_closed = False

    def bind(self, address: str, tls: Credentials | None = None) -> None:
        """Nothing is accepted before `serve`."""
        limits = self.limits
        most = max(1, limits.connections_max // 2)  # the others stay free for connections that ask something
        refusal = _pack(Answer(f"{NEEDS_TLS}\n".encode(), status=400), has_body=True, keeps_alive=False)
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
        if self._is_closed or len(self.connections) >= self.limits.connections_max:
            return None
        return Connection(self)


@dataclass(eq=False)
class Connection(asyncio.Protocol):
    server: HttpServer
    requests: int = 0
    _buffer: bytearray = field(default_factory=bytearray)
    _events: Events | None = None
    _is_paused: bool = False
    _is_closing: bool = False
    _transport: asyncio.Transport | None = None
    _deadline: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    # What the loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.server.connections[self] = None
        self._must_by(self.server.limits.head_s, "slow")

    def data_received(self, data: bytes) -> None:
        if self._is_closing or self._events is not None:
            return  # nothing more is wanted of it
        if not self._buffer and self.requests:
            self._must_by(self.server.limits.head_s, "slow")
        self._buffer += data
        self._serve()

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
            self._serve()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        self.server.connections.pop(self, None)
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

    def _serve(self) -> None:
        while not (self._is_paused or self._is_closing or self._events is not None):
            end = self._buffer.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
            if self._buffer[:2] == b"\x16\x03":
                self._refuse(BadRequest(400, "this port does not speak TLS"))
                return
            if end < 0:
                if len(self._buffer) >= HEAD_BYTES_MAX:
                    self._refuse(BadRequest(431, "the head of the request is too large"))
                return
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            self.requests += 1
            try:
                request = parse_request(head, is_local=self.server.is_local)
            except BadRequest as refusal:
                self._refuse(refusal)
                return
            self._answer(request)
            self._must_by(self.server.limits.idle_s if not self._buffer else self.server.limits.head_s, "slow")

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
        self._write(_pack(found, has_body=request.method != "HEAD", keeps_alive=keeps))
        if not keeps:
            self._close()

    def _stream(self, request: Request, events: Events) -> None:
        if self.server.streaming >= self.server.limits.streams_max:
            self._refuse(BadRequest(503, "too many readers of events"))
            return
        head = _head(200, [("Content-Type", "text/event-stream"), ("Connection", "close")])
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
        headers = (("Allow", "GET, HEAD"),) if refusal.status == 405 else ()
        self._write(_pack(Answer(f"{refusal}\n".encode(), status=refusal.status, headers=headers), True, False))
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


def parse_request(head: bytes, *, is_local: bool = True) -> Request:
    """A head without its empty line. Raises BadRequest, and nothing else."""
    first, *rest = head.split(b"\r\n")
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise BadRequest(400, "this is no HTTP request")
    method, target, major, minor = found.groups()
    if (major, minor) not in ((b"1", b"1"), (b"1", b"0")):
        raise BadRequest(505, "HTTP/1.1 is spoken here")
    if method not in (b"GET", b"HEAD"):
        raise BadRequest(405, "only GET and HEAD are answered")
    if len(target) > TARGET_LETTERS_MAX:
        raise BadRequest(414, "the address is too long")
    if not target.startswith(b"/"):
        raise BadRequest(400, "the address does not begin with /")
    headers: dict[str, str] = {}
    for line in rest:
        field_found = _FIELD.fullmatch(line)
        if field_found is None:
            raise BadRequest(400, "a header is malformed")
        name = field_found[1].decode().lower()
        if name == "host" and name in headers:
            raise BadRequest(400, "two hosts are named")
        headers[name] = field_found[2].rstrip(b" \t").decode("latin-1")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(413, "a request has no body here")
    if minor == b"1" and "host" not in headers:
        raise BadRequest(400, "no host is named")
    if is_local and "host" in headers and not is_local_host(headers["host"]):
        raise BadRequest(421, "this is not that host: use an address or localhost")
    wishes = {one.strip().lower() for one in headers.get("connection", "").split(",")}
    keeps_alive = "close" not in wishes if minor == b"1" else "keep-alive" in wishes
    return Request(method.decode(), target.decode().partition("?")[0], headers, keeps_alive)


def is_local_host(host: str) -> bool:
    """An address, or localhost: no name that somebody else may point here."""
    name = host if re.search(r":\d+$", host) is None or host.endswith("]") else host.rpartition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True


def _pack(answer: Answer, has_body: bool, keeps_alive: bool) -> bytes:
    head = _head(
        answer.status,
        [
            ("Content-Type", answer.kind),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "keep-alive" if keeps_alive else "close"),
            *answer.headers,
        ],
    )
    return head + answer.body if has_body else head


def _head(status: int, headers: list[tuple[str, str]]) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime())}",
    ]
    lines += [f"{name}: {value}" for name, value in headers]
    lines += ["Cache-Control: no-store", "X-Content-Type-Options: nosniff", "", ""]
    return "\r\n".join(lines).encode("latin-1")


class NoAnswer(ValueError):
    """The server has ended the connection before its answer was complete."""


class HttpClient:
    """Asks a server of ours, over a connection that stays open."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None, bytes_max: int = 16 << 20) -> None:
        self.address, self._tls, self._bytes_max = address, tls, bytes_max
        self._place = parse_address(address)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str, timeout_s: float = 2.0) -> tuple[int, bytes]:
        """Status and body. Raises OSError (TimeoutError is one) or ValueError."""
        async with asyncio.timeout(timeout_s):
            try:
                if self._streams is not None and self._streams[1].is_closing():
                    self.close()
                if self._streams is not None:
                    try:
                        return await self._get(*self._streams, path)
                    except (OSError, ValueError):
                        self.close()  # it may have been closed as idle: once more, on a new one
                self._streams = await asyncio.open_connection(*self._place, ssl=self._tls, limit=HEAD_BYTES_MAX)
                return await self._get(*self._streams, path)
            except BaseException:
                self.close()  # what comes late must not be taken for the next answer
                raise

    async def _get(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> tuple[int, bytes]:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {self.address}\r\n\r\n".encode())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"\r\nContent-Length: (\d{1,9})\r\n", head)
            status = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
            if length is None or status is None or int(length[1]) > self._bytes_max:
                raise ValueError(f"{self.address}{path}: not an answer that we read")
            body = await reader.readexactly(int(length[1]))
        except asyncio.IncompleteReadError:
            raise NoAnswer("it closed the connection without an answer") from None
        except asyncio.LimitOverrunError as error:
            raise ValueError(f"{self.address}{path}: {error}") from None
        if b"\r\nConnection: close\r\n" in head:
            self.close()
        return int(status[1]), body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def get(address: str, path: str, timeout_s: float = 2.0) -> tuple[int, bytes]:
    """One question."""
    client = HttpClient(address)
    try:
        return await client.get(path, timeout_s)
    finally:
        client.close()
