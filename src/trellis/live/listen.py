"""A listening socket, with TLS if it is configured. All ports of a node use it.

Connections are accepted here and not by the event loop's own server, because that does not report failed TLS
handshakes. Here they are logged and counted.

A connection is *half-open* until its other end has said who it is. When `handshakes_max` are half-open, the source
address with the most of them loses its oldest one, and the new connection is accepted. So one source address cannot
keep others out by opening many connections. Connections younger than `_YOUNG_S` are not cut, because many clients may
connect at once and their first bytes are still to be read. But there are never more than `burst_max` half-open ones.

The states of a connection: accepted (`_waiting`), TLS handshake (`_open`), open but half-open (its protocol reads),
known (`is_known`). From then on only its owner knows it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from trellis.errors import InputError
from trellis.live.addresses import parse_address, show_address
from trellis.live.log import Sparing
from trellis.live.machine import machine
from trellis.live.proxy_header import ProxyError, read_proxy_header
from trellis.live.reasons import why_not
from trellis.live.tls import Credentials
from trellis.reached import reached

log = logging.getLogger("trellis.live")

_BACKLOG = 128  # most connections that are accepted in one turn of the loop
ACCEPTED_MAX = 2 * _BACKLOG  # Without TLS, protocols are told of their connections two turns after the accept.
_YOUNG_S = 1.0  # age below which a half-open connection is not cut
BURST = 8  # default of `burst_max`, as a multiple of `handshakes_max`
_LISTEN_BACKLOG = 1_024  # connections that the kernel queues for us: many clients may connect at once
REMEDIES = {  # by error of a listening socket; for other errors another address helps
    errno.EMFILE: "allow this process more open files (ulimit -n, or LimitNOFILE= of its unit), or give it less to do",
    errno.ENFILE: "the whole machine has too many open files: end other programs, or raise fs.file-max",
    errno.ENOBUFS: "the machine has no memory left for sockets: end other programs",
    errno.ENOMEM: "the machine has no memory left for sockets: end other programs",
    errno.EACCES: "choose a port from 1024 on, or let this process use lower ones (CAP_NET_BIND_SERVICE)",
    errno.EADDRNOTAVAIL: "choose an address that this machine has",
}
_PAUSE_S = 0.2  # pause after a failed accept, for example because no more files may be opened


@dataclass(eq=False)
class _HalfOpen:
    """A connection whose other end had not said who it is when `_make_room` last looked."""

    source: str  # source address (`source_of`)
    since: float  # when it was accepted, by the loop's clock
    protocol: asyncio.Protocol
    task: asyncio.Task[None] | None = None  # `_open`, with the TLS handshake
    transport: asyncio.BaseTransport | None = None  # Set when `_open` is over.
    is_made: bool = False  # The loop makes its transport without TLS. The task must not be cancelled meanwhile.
    is_cut: bool = False  # It was cut to make room. If it has no transport yet, `_open` aborts it.


class Listener:
    """Accept connections at one address."""

    def __init__(
        self,
        address: str,
        make: Callable[[], asyncio.Protocol | None],
        tls: Credentials | None,
        counters: Counter[str],
        handshake_s: float,
        handshakes_max: int,
        refusal: bytes = b"",
        *,
        is_known: Callable[[Any], bool] = lambda protocol: False,
        burst_max: int | None = None,
        has_proxy: bool = False,
    ) -> None:
        """Bind the address. Nothing is accepted before `serve`. Raise InputError if the address cannot be bound.

        `make` returns the protocol for a new connection, or None if there are too many. `refusal`: bytes sent to a
        client without TLS if TLS is configured. `is_known` tells whether the other end of a protocol has said who it
        is. `burst_max`: most half-open connections, `BURST` times `handshakes_max` if it is not given. `has_proxy`:
        each connection begins with a header of the PROXY protocol, which names its source.
        """
        host, port = parse_address(address)
        try:
            self._socket = machine().listen(host, port, _LISTEN_BACKLOG)
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno is not None and not isinstance(error, socket.gaierror):
                reason = os.strerror(error.errno).lower()  # without the address, which Python adds
            remedy = REMEDIES.get(error.errno or 0, "choose another address")
            raise InputError(show_address(host, port), f"cannot listen: {reason}", remedy) from None
        self._shown = show_address(host, int(self._socket.getsockname()[1]))
        self.port = int(self._socket.getsockname()[1])
        self._make, self._is_known, self._tls, self._counters = make, is_known, tls, counters
        self._refusal, self._sparing = refusal, Sparing()
        self._handshake_s, self._handshakes_max = handshake_s, handshakes_max
        self._has_proxy = has_proxy
        self._burst_max = burst_max or BURST * handshakes_max
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._opening: set[asyncio.Task[None]] = set()  # tasks of `_open`
        self._half_open: dict[_HalfOpen, None] = {}  # oldest first; at most `burst_max`
        self._waiting: set[socket.socket] = (
            set()
        )  # Accepted sockets that the loop does not own yet. We must close them.

    def serve(self) -> None:
        """Begin to accept connections."""
        self._loop.add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Stop listening, and cancel handshakes that are under way. Connections that are open stay."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._socket)
            self._socket.close()
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for accepted in self._waiting:
            accepted.close()
        self._half_open.clear()

    def _accept(self) -> None:
        """Accept all connections that wait.

        This is a callback of the loop. With a task that waits for connections, one that comes while the task is
        cancelled would stay open.
        """
        for _ in range(_BACKLOG):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept: %s", error)
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_PAUSE_S, self._resume)
                return
            accepted.setblocking(False)
            if len(self._half_open) >= self._handshakes_max:
                self._make_room()
            protocol = self._make()
            if protocol is None:
                self._counters["cut full"] += 1
                accepted.close()
                continue
            self._waiting.add(accepted)
            half_open = _HalfOpen(source_of(address[0]), self._loop.time(), protocol)
            self._half_open[half_open] = None
            task = half_open.task = self._loop.create_task(self._open(accepted, half_open))
            self._opening.add(task)
            task.add_done_callback(partial(self._opened, accepted))

    def _opened(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        """Close a socket whose task ended before the loop owned it: it was cancelled, or the client has no TLS."""
        self._opening.discard(task)
        if accepted in self._waiting:
            self._waiting.discard(accepted)
            accepted.close()

    def _resume(self) -> None:
        """Accept again after a pause."""
        if not self._is_closed:
            self.serve()

    def _make_room(self) -> None:
        """Forget connections that are known or have ended. If too many are left, cut one of the source with most."""
        for half_open in [half_open for half_open in self._half_open if self._is_over(half_open)]:
            del self._half_open[half_open]
        if len(self._half_open) < self._handshakes_max:
            return
        counts = Counter(half_open.source for half_open in self._half_open)
        most = max(counts.values())
        oldest = next(half_open for half_open in self._half_open if counts[half_open.source] == most)
        is_young = self._loop.time() - oldest.since < _YOUNG_S
        if is_young and len(self._half_open) < self._burst_max:
            return
        del self._half_open[oldest]
        self._counters["cut full"] += 1
        reached("a half-open connection makes room for another")
        oldest.is_cut = True
        if oldest.transport is not None:
            oldest.transport.abort()  # type: ignore[attr-defined]
        elif oldest.task is not None and not oldest.is_made:
            oldest.task.cancel()

    def _is_over(self, half_open: _HalfOpen) -> bool:
        """Return whether a connection is no longer half-open: it has ended, or its other end is known."""
        if half_open.transport is None:
            return half_open.task is not None and half_open.task.done()
        return half_open.transport.is_closing() or self._is_known(half_open.protocol)

    async def _open(self, accepted: socket.socket, half_open: _HalfOpen) -> None:
        """Do the TLS handshake, if TLS is configured, and connect the socket with its protocol."""
        tls = self._tls.now.accepting if self._tls is not None else None
        source = _source(accepted)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._handshake_s):
                if self._has_proxy and (declared := await read_proxy_header(self._loop, accepted)) is not None:
                    source, half_open.source = declared, source_of(declared[0])
                if tls is not None and not await self._speaks_tls(accepted):
                    self._refuse_plaintext(accepted, source)
                    return
                self._waiting.discard(accepted)  # from here on the loop closes it, even if we are cancelled
                half_open.is_made = tls is None
                half_open.transport, _ = await self._loop.connect_accepted_socket(
                    lambda: half_open.protocol, accepted, ssl=tls
                )
            if half_open.is_cut:
                half_open.transport.abort()
        except ProxyError as error:
            self._counters["cut proxy header"] += 1
            if self._sparing.may_say(source[0], str(error)):
                log.warning("%s: refused %s: %s", self._shown, show_address(*source), error)
            accepted.close()
        except (OSError, TimeoutError, EOFError) as error:
            self._counters["cut tls" if tls is not None else "cut handshake"] += 1
            if tls is not None and not isinstance(error, EOFError):
                self._log_failure(source, why_not(error))
            accepted.close()

    async def _speaks_tls(self, accepted: socket.socket) -> bool:
        """Wait for the first byte, and return whether it begins a TLS handshake. The byte stays in the socket.

        Raise EOFError if the other end has closed the connection without sending anything.
        """
        there = asyncio.Event()
        self._loop.add_reader(accepted, there.set)
        try:
            await there.wait()
        finally:
            self._loop.remove_reader(accepted)
        first = accepted.recv(2, socket.MSG_PEEK)
        if not first:
            raise EOFError
        return first[0] == 0x16  # a TLS handshake; no client of our protocols begins with this byte

    def _refuse_plaintext(self, accepted: socket.socket, source: tuple[str, int]) -> None:
        """Tell a client without TLS that this port needs it."""
        self._counters["cut tls"] += 1
        self._log_failure(source, "it does not speak TLS, and this port does")
        try:
            accepted.recv(1 << 16)  # Closing a socket with unread bytes resets it, and the answer is lost.
            accepted.send(self._refusal)
            accepted.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the client has gone

    def _log_failure(self, source: tuple[str, int], why: str) -> None:
        """Log a failed TLS handshake, but the same failure of the same host only once a minute."""
        if self._sparing.may_say(source[0], why):
            log.warning("%s: TLS with %s failed: %s", self._shown, show_address(*source), why)


def _source(accepted: socket.socket) -> tuple[str, int]:
    """Return host and port of the other end, for logs."""
    try:
        host, port = accepted.getpeername()[:2]
    except OSError:
        return "somebody who has gone", 0
    return host, port


def source_of(host: str) -> str:
    """Return the source that a host counts for: an IPv4 address, or the first 64 bits of an IPv6 address.

    A single machine can usually use all addresses of its IPv6 prefix.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False).network_address)
