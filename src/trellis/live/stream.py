"""One TCP stream of frames: it splits what comes in into frames, and sends frames through a bounded queue.

A reader that is too slow can neither block this process nor make it use more and more memory. While the socket accepts
no data, frames wait in a queue (`Outbox`). When the queue is full, droppable frames are dropped, the oldest first. They
are gossip, which the next round repeats. If there are none, the stream is cut. It is also cut if its socket accepts
nothing for `stall_s` seconds.

A stream belongs to a `StreamOwner`: the transport between nodes, the client port, the MQTT listener, or a client. The
owner is told when the stream is opened, when a frame has come, and once when the stream has ended. There are two ways
to end a stream: `close` sends pending frames first, and `cut` ends it at once, with a reason in `why`.
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

_LINGER_S = 1.0  # A closed stream with `lingers` goes on reading for this long.


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one stream."""

    buffer_bytes: int = 256 << 10
    """Bytes that are handed to the socket before frames wait in the queue."""

    queue_bytes: int = 4 << 20
    """Bytes that may wait for one peer or client. Raising it tolerates slower readers, which cost that much memory."""

    stall_s: float = 10.0
    """A peer or client that reads nothing for this long is cut off."""


class Outbox:
    """The queue of frames that wait, in order. When it is full, droppable frames are dropped, the oldest first."""

    def __init__(self, bytes_max: int) -> None:
        # limit of the queue, its present size, number of frames that were dropped
        self.bytes_max, self.bytes, self.dropped = bytes_max, 0, 0
        self._frames: OrderedDict[int, bytes] = OrderedDict()  # by number, the oldest first
        self._droppable: deque[int] = deque()  # numbers of waiting frames that may be dropped, ascending
        self._number = 0  # number of the newest frame

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: bytes, may_drop: bool) -> bool:
        """Add a frame, and drop others if necessary. Return False if the queue is too full without droppable frames."""
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
        """Remove and return the oldest frame."""
        number, frame = self._frames.popitem(last=False)
        self.bytes -= len(frame)
        if self._droppable and self._droppable[0] == number:
            self._droppable.popleft()
        return frame


class StreamOwner(Protocol):
    """The object that a stream reports to."""

    def opened(self, stream: Stream) -> None:
        """Take a stream whose connection stands."""
        ...

    def received(self, stream: Stream, body: bytes) -> None:
        """Take the body of one frame. Raise WireError to have the stream cut."""
        ...

    def ended(self, stream: Stream) -> None:
        """Note, once, that an opened stream has ended. `stream.why` says why we ended it; it is empty if we did not."""
        ...


class Stream(asyncio.Protocol):
    """One connection. asyncio calls the methods of `asyncio.Protocol`, and the owner calls the others."""

    lingers = False
    """Whether a closed stream goes on reading for `_LINGER_S`, and drops what it reads. If bytes come to a closed
    socket, the kernel resets the connection, and the other end may lose the last frames that we sent."""

    def __init__(self, owner: StreamOwner, limits: StreamLimits, body_bytes_max: int) -> None:
        self.owner, self.limits = owner, limits
        self.splitter = Splitter(body_bytes_max)
        self.outbox = Outbox(limits.queue_bytes)
        self.why = ""  # why we ended the stream; empty: we did not
        self.error: Exception | None = None  # with which the loop reported the end of the connection, if any
        self.is_ended = self.is_closing = False
        self.tag: Any = None  # for the owner's own use
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []  # frames of this turn of the loop, which are written together at its end
        # The socket accepts no data now. The queue has overflowed, and the stream is about to be cut.
        self._is_paused = self._is_doomed = False
        self._stall: asyncio.TimerHandle | None = None  # cuts the stream if the socket accepts nothing until then
        self._resumed: asyncio.Event | None = None  # what `drain` waits for

    # Writing

    def send(self, frame: bytes, may_drop: bool = False) -> None:
        """Send a frame, or queue it. Never wait. `may_drop`: it may be dropped if the queue is full."""
        if self.is_ended or self._is_doomed:
            return
        if self._is_paused or self.outbox:
            if not self.outbox.put(frame, may_drop) and not self._is_doomed:
                self._is_doomed = True
                reached("a stream's queue overflows")
                self._loop.call_soon(self.cut, "slow")  # Not now: the owner may be in the middle of its work.
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(frame)

    async def drain(self) -> None:
        """Wait until the socket accepts data again, or the stream has ended."""
        while self._is_paused and not self.is_ended:
            self._resumed = self._resumed or asyncio.Event()
            await self._resumed.wait()

    def pause_writing(self) -> None:
        """Queue frames from now on: asyncio says that the socket's buffer is full."""
        self._is_paused = True
        self._stall = self._loop.call_later(self.limits.stall_s, self.cut, "slow")

    def resume_writing(self) -> None:
        """Send queued frames: asyncio says that the socket's buffer has drained."""
        self._is_paused = False
        self._wake()
        while self.outbox and not self._is_paused and not self.is_ended:
            self._write(self.outbox.take())

    def close(self) -> None:
        """End the stream when all that was sent has gone out. If the socket accepts no data now, cut the stream."""
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
                except OSError:  # The other end has reset the connection, and the loop has not noticed yet.
                    self.cut(self.why)
                    return
                self._transport.resume_reading()
                self._loop.call_later(_LINGER_S, self._transport.close)
            else:
                self._transport.close()
            self._loop.call_later(self.limits.stall_s, self.cut, self.why)

    def cut(self, why: str) -> None:
        """End the stream at once, and drop everything that was not sent yet. If `why` is already set, it stays."""
        if not self.is_ended:
            self.why = self.why or why
            if why == "slow":
                reached("a slow reader is cut off")
            self._out.clear()
            if self._transport is not None:
                self._transport.abort()
            self._end()

    def pause_reading(self) -> None:
        """Stop reading until `resume_reading`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again after `pause_reading`."""
        if self._transport is not None and not self.is_ended:
            self._transport.resume_reading()

    def certificate(self) -> Mapping[str, Any]:
        """Return the certificate of the other end in the form of `SSLSocket.getpeercert`; empty if there is none."""
        certificate = self._transport.get_extra_info("peercert") if self._transport is not None else None
        return certificate or {}

    def notice_death(self, silent_s: float) -> None:
        """Make the kernel end the connection if the other end acknowledges nothing for `silent_s` seconds."""
        if self._transport is not None:
            notice_death(self._transport.get_extra_info("socket"), silent_s)

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the owner that the connection stands."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self.limits.buffer_bytes)
        self.owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Hand each complete frame to the owner. Cut the stream if the data are not valid frames."""
        try:
            for body in self.splitter.feed(data):
                if self.is_ended:
                    return
                self.owner.received(self, body)
        except TlsHello:
            self.why = self.why or "tls"
            self._write(b"this port does not speak TLS\n")  # A TLS client sees that this is no TLS.
            self.close()
        except Oversized:
            self.cut("oversized")
        except WireError:
            self.cut("garbage")

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the connection has ended, and tell the owner."""
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
