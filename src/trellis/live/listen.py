"""A socket that accepts streams, with TLS where it is configured. A handshake that fails is counted, and hurts nobody.

Connections are accepted here and not by the loop's own server, which does not tell that a TLS handshake has failed.

A connection is *half-open* until its other end has said who it is. When more than `handshakes_max` are half-open, the
source address with the most of them loses its oldest one, and the newcomer is accepted. So connections that say
nothing, however many, cost other source addresses nothing. A connection younger than `_YOUNG_S` is spared, because many
clients may come at once and what they say is still to be read; but never more than `burst_max` are half-open.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trellis.errors import InputError
from trellis.live.addresses import parse_address, show_address

log = logging.getLogger("trellis.live")

_BACKLOG = 128
_LISTEN_BACKLOG = 1_024  # connections that the kernel keeps for us: many clients may come at once
_YOUNG_S = 1.0
_BURST = 8  # times `handshakes_max`
_PAUSE_S = 0.2  # after an accept has failed, as it does where no more files may be open


@dataclass(eq=False)
class _HalfOpen:
    """A connection whose other end has not said yet who it is, or had not when we last looked."""

    source: str
    since: float
    protocol: asyncio.Protocol
    task: asyncio.Task[None] | None = None  # the TLS handshake
    transport: asyncio.BaseTransport | None = None  # set when the TLS handshake is over


class Listener:
    def __init__(
        self,
        address: str,
        make: Callable[[], asyncio.Protocol | None],
        tls: ssl.SSLContext | None,
        counters: Counter[str],
        handshake_s: float,
        handshakes_max: int,
        is_known: Callable[[Any], bool] = lambda protocol: False,
        burst_max: int | None = None,
    ) -> None:
        """Bind the address at once. Nothing is accepted before `serve`.

        `make` returns None where there are too many streams. `is_known` tells whether the other end of a stream that
        `make` has returned has said who it is. `burst_max` is `_BURST` times `handshakes_max` unless given.
        """
        host, port = parse_address(address)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            self._socket = socket.create_server(found[4][:2], family=found[0], backlog=_LISTEN_BACKLOG)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(show_address(host, port), f"cannot listen: {reason}", "choose another address") from None
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._make, self._is_known, self._tls, self._counters = make, is_known, tls, counters
        self._handshake_s, self._handshakes_max = handshake_s, handshakes_max
        self._burst_max = burst_max or _BURST * handshakes_max
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._opening: set[asyncio.Task[None]] = set()
        self._half_open: dict[_HalfOpen, None] = {}  # oldest first; at most `burst_max`
        self._waiting: set[socket.socket] = (
            set()
        )  # accepted, and their task has not begun: nobody else would close them

    def serve(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        for task in self._opening:
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        for accepted in self._waiting:
            accepted.close()
        self._half_open.clear()

    def _accept(self) -> None:
        """A callback and no task that waits: a stream that comes while such a task is cancelled would stay open."""
        for _ in range(_BACKLOG):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept: %s", error)
                self._loop.remove_reader(self._socket.fileno())
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
            task.add_done_callback(self._opening.discard)

    def _resume(self) -> None:
        if not self._is_closed:
            self.serve()

    def _make_room(self) -> None:
        """Forget connections that are known or have ended. If that is not enough, cut one of the heaviest source."""
        for one in [one for one in self._half_open if self._is_over(one)]:
            del self._half_open[one]
        if len(self._half_open) < self._handshakes_max:
            return
        counts = Counter(one.source for one in self._half_open)
        most = max(counts.values())
        oldest = next(one for one in self._half_open if counts[one.source] == most)
        is_young = self._loop.time() - oldest.since < _YOUNG_S
        if is_young and len(self._half_open) < self._burst_max:
            return
        del self._half_open[oldest]
        self._counters["cut full"] += 1
        if oldest.transport is not None:
            oldest.transport.abort()  # type: ignore[attr-defined]
        elif oldest.task is not None:
            oldest.task.cancel()

    def _is_over(self, one: _HalfOpen) -> bool:
        if one.transport is None:
            return one.task is not None and one.task.done()
        return one.transport.is_closing() or self._is_known(one.protocol)

    async def _open(self, accepted: socket.socket, half_open: _HalfOpen) -> None:
        self._waiting.discard(accepted)  # from here on the loop closes it, also when we are cancelled
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._handshake_s):
                half_open.transport, _ = await self._loop.connect_accepted_socket(
                    lambda: half_open.protocol, accepted, ssl=self._tls
                )
        except (OSError, TimeoutError, EOFError):
            self._counters["cut tls" if self._tls is not None else "cut handshake"] += 1
            accepted.close()


def source_of(host: str) -> str:
    """Return what counts as one source: an IPv4 address, or the 64 leading bits of an IPv6 address.

    A single machine usually has all addresses of its IPv6 prefix at its disposal.
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
