"""A socket that accepts streams, with TLS where it is configured. A handshake that fails is counted, and hurts nobody.

Connections are accepted here and not by the loop's own server, which does not tell that a TLS handshake has failed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from trellis.errors import InputError
from trellis.live.addresses import parse_address, show_address

log = logging.getLogger("trellis.live")

_BACKLOG = 128
_LISTEN_BACKLOG = 1_024  # connections that the kernel keeps for us: many clients may come at once
_PAUSE_S = 0.2  # after an accept has failed, as it does where no more files may be open


class Listener:
    def __init__(
        self,
        address: str,
        make: Callable[[], asyncio.Protocol | None],
        tls: ssl.SSLContext | None,
        counters: Counter[str],
        handshake_s: float,
        handshakes_max: int,
    ) -> None:
        """Bound at once; nothing is accepted before `serve`. `make` gives None where there are too many streams."""
        host, port = parse_address(address)
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            self._socket = socket.create_server(found[4][:2], family=found[0], backlog=_LISTEN_BACKLOG)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(show_address(host, port), f"cannot listen: {reason}", "choose another address") from None
        self._socket.setblocking(False)
        self.port = int(self._socket.getsockname()[1])
        self._make, self._tls, self._counters = make, tls, counters
        self._handshake_s, self._handshakes_max = handshake_s, handshakes_max
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._opening: set[asyncio.Task[None]] = set()
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

    def _accept(self) -> None:
        """A callback and no task that waits: a stream that comes while such a task is cancelled would stay open."""
        for _ in range(_BACKLOG):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept: %s", error)
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(_PAUSE_S, self._resume)
                return
            accepted.setblocking(False)
            stream = self._make() if len(self._opening) < self._handshakes_max else None
            if stream is None:
                self._counters["cut full"] += 1
                accepted.close()
                continue
            self._waiting.add(accepted)
            task = self._loop.create_task(self._open(accepted, stream))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _resume(self) -> None:
        if not self._is_closed:
            self.serve()

    async def _open(self, accepted: socket.socket, stream: asyncio.Protocol) -> None:
        self._waiting.discard(accepted)  # from here on the loop closes it, also when we are cancelled
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(self._handshake_s):
                await self._loop.connect_accepted_socket(lambda: stream, accepted, ssl=self._tls)
        except (OSError, TimeoutError, EOFError):
            self._counters["cut tls" if self._tls is not None else "cut handshake"] += 1
            accepted.close()
