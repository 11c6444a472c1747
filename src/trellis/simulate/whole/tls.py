"""Simulate TLS between hosts: OpenSSL really decides, but the bytes are the same in every run.

Real TLS draws keys and nonces that no seed controls, so two runs would never send the same bytes. Here, when the first
message of the client reaches the server, the two contexts perform a real handshake in memory. So OpenSSL checks
certificates, names and versions. The records on the wire have TLS headers, and their contents are not encrypted.

    client  -> hello     the number under which the world keeps the client's context
    server  -> hello     the handshake was performed
    client  -> finished  or an alert, if it does not accept the server
    server  -> alert     if it does not accept the client, which believes by then that the connection stands
    both    -> data
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.simulate.whole.handles import Handle
    from trellis.simulate.whole.loop import HostLoop

_HANDSHAKE, _ALERT, _DATA = 0x16, 0x15, 0x17
_RECORD_BYTES_MAX = 16 << 10
_HEAD = 5
_ROUNDS = 10  # rounds of a handshake in memory; two are enough


@dataclass(eq=False)
class Handshake:
    """The offer of a client, and the result at each end."""

    context: ssl.SSLContext
    server_name: str | None
    is_held: bool = False
    # information about the connection at the client, if it has accepted the server
    client: dict[str, Any] | None = None
    server: dict[str, Any] | None = None
    client_error: ssl.SSLError | None = None  # The client does not accept the server.
    # The server does not accept the client, or was told that the client does not accept it.
    server_error: ssl.SSLError | None = None
    alert: ssl.SSLError | None = None  # the error that the client sees if the server does not accept it

    def hold(self, context: ssl.SSLContext) -> None:
        """Perform the handshake between the contexts of both ends."""
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.is_held = True
        client = self.context.wrap_bio(down, up, server_hostname=self.server_name)
        server = context.wrap_bio(up, down, server_side=True)
        for _ in range(_ROUNDS):
            self.client_error = self.client_error or _step(client)
            self.server_error = self.server_error or _step(server)
            if self.client is None and self.client_error is None:
                self.client = _shown(client, self.context)
        if self.server_error is None:
            self.server = _shown(server, context)
        elif self.client_error is None:
            try:
                client.read(1)
            except ssl.SSLError as error:
                self.alert = error


def _step(one: ssl.SSLObject) -> ssl.SSLError | None:
    try:
        one.do_handshake()
    except ssl.SSLWantReadError:
        return None
    except ssl.SSLError as error:
        return error
    return None


def _shown(one: ssl.SSLObject, context: ssl.SSLContext) -> dict[str, Any] | None:
    """Return the values for `get_extra_info`, or None if the handshake is not complete."""
    try:
        certificate = one.getpeercert()
    except ValueError:
        return None
    return {"peercert": certificate, "cipher": one.cipher(), "ssl_object": one, "sslcontext": context}


def ssl_error(reason: str) -> ssl.SSLError:
    """Return an error with the text of OpenSSL."""
    error = ssl.SSLError(1, f"[SSL: {reason}] {reason.replace('_', ' ').lower()}")
    error.library, error.reason = "SSL", reason
    return error


class Records(asyncio.Protocol):
    """One end: a protocol for the TCP transport below, and a transport for the protocol above."""

    def __init__(
        self,
        loop: HostLoop,
        above: Any,
        context: ssl.SSLContext,
        waiter: asyncio.Future[None] | None,
        server_name: str | None,
        timeout_s: float,
        *,
        is_server: bool,
    ) -> None:
        self.loop, self.above, self.context, self.is_server = loop, above, context, is_server
        self.server_name, self.timeout_s = server_name, timeout_s
        self.transport = TlsTransport(self)
        self.below: Any = None
        self._waiter = waiter
        self._buffer = bytearray()
        self._number = 0
        self._is_made = self._is_over = False
        self._timer: Handle | None = None

    # Called by the transport below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.below = transport
        self._timer = self.loop.call_later(self.timeout_s, self._is_late)
        if not self.is_server:
            self._number = self.loop.world.offer_tls(Handshake(self.context, self.server_name))
            self._send(_HANDSHAKE, self._number.to_bytes(8, "big"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        found = []
        while len(self._buffer) >= _HEAD and not self._is_over:
            kind, size = self._buffer[0], int.from_bytes(self._buffer[3:5], "big")
            if kind not in (_HANDSHAKE, _ALERT, _DATA) or self._buffer[1] != 3:
                self._fail(ssl_error("WRONG_VERSION_NUMBER"))
                return
            if len(self._buffer) < _HEAD + size:
                break
            body = bytes(self._buffer[_HEAD : _HEAD + size])
            del self._buffer[: _HEAD + size]
            if kind == _DATA and self._is_made:
                found.append(body)
            else:
                self._take(kind, body)
        if found and not self._is_over:
            self.above.data_received(b"".join(found))

    def eof_received(self) -> bool:
        if self._is_made:
            self.above.eof_received()
        else:
            self._fail(ConnectionResetError("the other end has closed the connection during the handshake"))
        return False  # TLS connections cannot be half closed.

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)

    def pause_writing(self) -> None:
        if self._is_made:
            self.above.pause_writing()

    def resume_writing(self) -> None:
        if self._is_made:
            self.above.resume_writing()

    # The handshake

    def _take(self, kind: int, body: bytes) -> None:
        """Handle a record of the handshake, or an alert."""
        number = self._number or int.from_bytes(body[:8], "big")
        found = self.loop.world.tls_offers.get(number)
        if found is None or (kind == _DATA and not self._is_made):
            self._fail(ssl_error("BAD_RECORD_TYPE"))
        elif kind == _ALERT:
            told = found.server_error if self.is_server else found.alert
            self._fail(told or ssl_error("SSLV3_ALERT_HANDSHAKE_FAILURE"))
        elif self.is_server and not self._number:
            self._number = number
            if not found.is_held:
                found.hold(self.context)
            self._send(_HANDSHAKE, body)
        elif self.is_server:
            if found.server_error is not None:
                self._send(_ALERT, b"")
                self._fail(found.server_error)
            else:
                self._made(found.server)
        elif found.client_error is not None:
            self._send(_ALERT, b"")
            self._fail(found.client_error)
        else:
            self._send(_HANDSHAKE, b"finished")
            self._made(found.client)

    def _made(self, shown: dict[str, Any] | None) -> None:
        self._is_made = True
        self._stop_timer()
        self.transport.extra = shown or {}
        self.above.connection_made(self.transport)
        self._wake(None)

    def _is_late(self) -> None:
        self._fail(ConnectionAbortedError(f"SSL handshake is taking longer than {self.timeout_s} seconds"))

    def _fail(self, error: Exception) -> None:
        if self.below is not None:
            self.below.close() if not self._is_made else self.below.abort()
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        self._stop_timer()
        self._wake(error or ConnectionResetError("the connection was lost during the handshake"))
        if not self._is_over:
            self._is_over = True
            if self._is_made:
                self.loop.call_soon(self.above.connection_lost, error)

    def _wake(self, error: Exception | None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, kind: int, body: bytes) -> None:
        self.below.write(bytes([kind, 3, 3]) + len(body).to_bytes(2, "big") + body)

    def write(self, data: bytes) -> None:
        for first in range(0, len(data), _RECORD_BYTES_MAX):
            self._send(_DATA, bytes(data[first : first + _RECORD_BYTES_MAX]))


class TlsTransport(asyncio.Transport):
    """The transport that the protocol above sees."""

    def __init__(self, records: Records) -> None:
        super().__init__()
        self._records = records
        self.extra: dict[str, Any] = {}

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name in self.extra:
            return self.extra[name]
        return self._records.below.get_extra_info(name, default) if self._records.below is not None else default

    def write(self, data: Any) -> None:
        self._records.write(data)

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise NotImplementedError("TLS has no half-close: asyncio's own TLS transports raise the same error")

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._records.above = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        found: asyncio.BaseProtocol = self._records.above
        return found

    def close(self) -> None:
        if self._records.below is not None:
            self._records.below.close()

    def abort(self) -> None:
        if self._records.below is not None:
            self._records.below.abort()

    def is_closing(self) -> bool:
        return self._records.below is None or bool(self._records.below.is_closing())

    def pause_reading(self) -> None:
        self._records.below.pause_reading()

    def resume_reading(self) -> None:
        self._records.below.resume_reading()

    def is_reading(self) -> bool:
        return bool(self._records.below.is_reading())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._records.below.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        found: tuple[int, int] = self._records.below.get_write_buffer_limits()
        return found

    def get_write_buffer_size(self) -> int:
        return int(self._records.below.get_write_buffer_size())
