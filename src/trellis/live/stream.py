"""One TCP stream of frames: reads them one by one, and writes through a queue that is bounded.

Who does not read cannot make us wait or grow. While its socket takes nothing, frames queue here; when the queue is full
the oldest that may be dropped go first (gossip: the next round says it again), and where there is none the stream is
cut. A stream that takes nothing for `stall_s` is cut as well.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Protocol, cast

import msgspec

from trellis.live.frames import Oversized, Splitter, TlsHello
from trellis.live.proof import notice_death
from trellis.protocols.wire import WireError
from trellis.reached import reached

_LINGER_S = 1.0  # for which a closed stream that lingers goes on reading


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    buffer_bytes: int = 256 << 10
    """Bytes given to the socket before frames wait in the queue."""

    queue_bytes: int = 4 << 20
    """Bytes that wait for one peer or client. Raising it forgives slower readers; each may cost that much memory."""

    stall_s: float = 10.0
    """A peer or client that reads nothing for so long is cut off."""


class Outbox:
    """Frames that wait, in order; the droppable among them give way."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.bytes, self.dropped = bytes_max, 0, 0
        self._frames: OrderedDict[int, bytes] = OrderedDict()
        self._droppable: deque[int] = deque()
        self._number = 0

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: bytes, may_drop: bool) -> bool:
        """False where it is too full even without the droppable ones."""
        self._number += 1
        self._frames[self._number] = frame
        self.bytes += len(frame)
        if may_drop:
            self._droppable.append(self._number)
        while self.bytes > self.bytes_max:
            if not self._droppable:
                return False
            gone = self._frames.pop(self._droppable.popleft(), None)
            if gone is not None:
                self.bytes -= len(gone)
                self.dropped += 1
        return True

    def take(self) -> bytes:
        number, frame = self._frames.popitem(last=False)
        self.bytes -= len(frame)
        if self._droppable and self._droppable[0] == number:
            self._droppable.popleft()
        return frame


class StreamOwner(Protocol):
    def opened(self, stream: Stream) -> None: ...

    def received(self, stream: Stream, body: bytes) -> None:
        """May raise WireError: the stream is cut."""
        ...

    def ended(self, stream: Stream) -> None:
        """Once, if it was opened; `stream.why` says why we cut it, if we did."""
        ...


class Stream(asyncio.Protocol):
    lingers = False
    """Whether a closed stream goes on reading for a moment, and drops what it reads. A kernel resets the connection if
    bytes come to a closed socket, and the other end never sees our last words."""

    def __init__(self, owner: StreamOwner, limits: StreamLimits, body_bytes_max: int) -> None:
        self.owner, self.limits = owner, limits
        self.splitter = Splitter(body_bytes_max)
        self.outbox = Outbox(limits.queue_bytes)
        self.why = ""
        self.error: Exception | None = None  # with which the loop says that the connection was lost
        self.is_ended = self.is_closing = False
        self.tag: Any = None  # the owner's own
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []  # goes out at the end of this turn of the loop, in one write
        self._is_paused = self._is_doomed = False
        self._stall: asyncio.TimerHandle | None = None
        self._resumed: asyncio.Event | None = None

    # Writing

    def send(self, frame: bytes, may_drop: bool = False) -> None:
        if self.is_ended or self._is_doomed:
            return
        if self._is_paused or self.outbox:
            if not self.outbox.put(frame, may_drop) and not self._is_doomed:
                self._is_doomed = True
                reached("a stream's queue overflows")
                self._loop.call_soon(self.cut, "slow")  # not now: the owner is in the midst of something
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    async def drain(self) -> None:
        """Returns when the socket takes more, or the stream has ended."""
        while self._is_paused and not self.is_ended:
            self._resumed = self._resumed or asyncio.Event()
            await self._resumed.wait()

    def pause_writing(self) -> None:
        self._is_paused = True
        self._stall = self._loop.call_later(self.limits.stall_s, self.cut, "slow")

    def resume_writing(self) -> None:
        self._is_paused = False
        self._wake()
        while self.outbox and not self._is_paused and not self.is_ended:
            self._write(self.outbox.take())

    def close(self) -> None:
        """What was sent goes out first, unless the other end does not take it."""
        if self.is_ended:
            return
        self.is_closing = True
        self._flush()
        if self.outbox or self._is_paused:
            self.cut(self.why)
        elif self._transport is not None:
            if self.lingers and self._transport.can_write_eof():
                try:
                    self._transport.write_eof()
                except OSError:  # the other end has reset the connection, and the loop has not looked yet
                    self.cut(self.why)
                    return
                self._transport.resume_reading()
                self._loop.call_later(_LINGER_S, self._transport.close)
            else:
                self._transport.close()
            self._loop.call_later(self.limits.stall_s, self.cut, self.why)

    def cut(self, why: str) -> None:
        """At once, whatever is under way. The first reason stays."""
        if not self.is_ended:
            self.why = self.why or why
            if why == "slow":
                reached("a slow reader is cut off")
            self._out.clear()
            if self._transport is not None:
                self._transport.abort()
            self._end()

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self.is_ended:
            self._transport.resume_reading()

    def certificate(self) -> Mapping[str, Any]:
        """The peer's, as `SSLSocket.getpeercert` tells it; nothing without TLS."""
        found = self._transport.get_extra_info("peercert") if self._transport is not None else None
        return found or {}

    def notice_death(self, silent_s: float) -> None:
        """Have the kernel end the stream when its other end acknowledges nothing for so long."""
        if self._transport is not None:
            notice_death(self._transport.get_extra_info("socket"), silent_s)

    # What the loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self.limits.buffer_bytes)
        self.owner.opened(self)

    def data_received(self, data: bytes) -> None:
        try:
            for body in self.splitter.feed(data):
                if self.is_ended:
                    return
                self.owner.received(self, body)
        except TlsHello:
            self.why = self.why or "tls"
            self._write(b"this port does not speak TLS\n")  # a TLS client recognizes plain text as such
            self.close()
        except Oversized:
            self.cut("oversized")
        except WireError:
            self.cut("garbage")

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        self._end()

    def _flush(self) -> None:
        if self._out and not self.is_ended:
            out, self._out = self._out, []
            self._write(out[0] if len(out) == 1 else b"".join(out))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _wake(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._resumed is not None:
            self._resumed.set()
            self._resumed = None

    def _end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._wake()
            self.owner.ended(self)
