"""Simulate TCP as two kernels see it: one `End` of a connection at each host.

    process -> send buffer -> bursts on the path -> receive buffer -> process

The model has bursts of any size, in order; a send buffer and a receive window that fill up; lost acknowledgements;
retransmission with the back-off of Linux until it gives up; probes of a closed window; keep-alive; `TCP_USER_TIMEOUT`;
FIN, half-closed and half-open connections; and RST from a kernel that does not know the connection. It has no
congestion windows, no sequence numbers and no headers.

    I1  Bytes arrive in the order in which they were sent, each exactly once, until an error ends the stream.
    I2  A process sees an error, or the end, only after it has read all bytes that arrived before.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING
from zlib import crc32

from trellis.simulate.whole import kernel
from trellis.simulate.whole.keepalive import KeepAlive
from trellis.simulate.whole.kernel import Place
from trellis.simulate.whole.network import Path

if TYPE_CHECKING:
    from trellis.simulate.whole.host import Host
    from trellis.simulate.whole.sockets import HostSocket

BURST_BYTES_MAX = 64 << 10  # most bytes in one event
_SPLIT_US = 2_000  # longest delay of the second part of a split burst
_PEEK = int(socket.MSG_PEEK)
_FIN = None  # marks the end of the stream in a queue of bytes; it takes one byte of the send buffer


class End:
    """One end of a connection. `peer` is the other end, which its kernel may have forgotten (`is_gone`)."""

    # Beyond 30 attributes CPython looks up each one by name. Slots stay fast.
    __slots__ = (
        "_arrival_us", "_arrived", "_flight", "_is_armed", "_is_blocked", "_lost", "_number", "_out", "_out_bytes",
        "_rto_us", "_shown", "_since_us", "_unheard", "_was_full", "_world", "back", "error", "fin_sent", "heard_us",
        "host", "in_bytes", "inbox", "is_dark", "is_deaf", "is_ended", "is_failed", "is_gone", "is_orphan",
        "is_outgoing", "keep_alive", "listener", "local", "path", "peer", "receive_buffer", "remote", "send_buffer",
        "socket", "user_us",
    )  # fmt: skip

    def __init__(self, host: Host, local: Place, remote: Place, path: Path, back: Path) -> None:
        world = self._world = host.world
        self.host, self.local, self.remote, self.path, self.back = host, local, remote, path, back
        self._shown = f"{local[0]}:{local[1]}>{remote[0]}:{remote[1]}"
        self.peer: End = self
        self.socket: HostSocket | None = None  # socket of the process; None before `accept` and after `close`
        # listener that does not know it yet, because the handshake is not complete
        self.listener: HostSocket | None = None
        self.send_buffer, self.receive_buffer = world.network.config.send_buffer, world.network.config.receive_buffer
        self.inbox: deque[bytes] = deque()
        self.in_bytes = 0
        self.is_ended = False  # A FIN has arrived.
        self.fin_sent = False
        self.error = 0  # number of the error that ended it, until the process has been told
        self.is_failed = False  # An error has ended it.
        self.is_deaf = False  # The process wants no more bytes (`SHUT_RD`).
        self.is_outgoing = False  # This host opened the connection.
        self.is_gone = False  # The kernel has forgotten it. A packet to it is answered by a RST.
        self.is_dark = False  # Something between the two ends silently drops all that this end sends.
        self.is_orphan = False  # The process has closed it. The kernel sends what is left.
        self.heard_us = world.now_us  # when something last came from the other kernel, including acknowledgements
        self.user_us = 0  # TCP_USER_TIMEOUT
        self.keep_alive = KeepAlive(self)
        self._out: deque[bytes | None] = deque()  # in the send buffer and not sent yet
        self._lost: list[tuple[int, bytes | None]] = []  # bursts that were sent and did not arrive, with their numbers
        self._number = self._arrived = 0  # number of the last burst that was sent, and of the last one that arrived
        # bytes not sent, under way, and arrived whose acknowledgement was lost
        self._out_bytes = self._flight = self._unheard = 0
        self._arrival_us = 0  # arrival of the last burst, because none overtakes another
        self._is_armed = False  # The timer for retransmissions and probes runs.
        self._is_blocked = False  # The window of the other end is closed.
        self._since_us = self._rto_us = 0  # when the timer was first set, and its present interval
        self._was_full = False  # The process waits for space in the send buffer.
        host.ends[self] = None

    # Called by the process

    @property
    def is_writable(self) -> bool:
        return 3 * self._used() <= 2 * self.send_buffer or self.is_failed

    def _used(self) -> int:
        """Return how many bytes the send buffer holds."""
        return self._out_bytes + self._flight + self._unheard

    def send(self, data: bytes, flags: int = 0) -> int:
        """Take as many bytes as fit into the send buffer. Raise BlockingIOError if it is full."""
        if self.is_failed or self.fin_sent:
            raise _os_error(self.take_error() or errno.EPIPE)
        size, room = len(data), self.send_buffer - self._out_bytes - self._flight - self._unheard
        if size > room:
            self._was_full = True
            if room <= 0:
                raise _os_error(errno.EAGAIN)
            data, size = data[:room], room
        if size:
            self._out.append(data if type(data) is bytes else bytes(data))
            self._out_bytes += size
            self._pump()
        return size

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Return bytes that have arrived, or nothing at the end of the stream.

        Raise BlockingIOError if nothing has arrived.
        """
        if not self.in_bytes:
            if not self.is_ended and self.error:  # After a FIN, `recv` reports no error.
                raise _os_error(self.take_error())
            if self.is_ended or self.is_failed or self.is_deaf:
                return b""
            raise _os_error(errno.EAGAIN)
        if flags & _PEEK:
            return b"".join(self.inbox)[:size]
        if self.in_bytes <= size:
            found = self.inbox[0] if len(self.inbox) == 1 else b"".join(self.inbox)
            self.inbox.clear()
        else:
            every = b"".join(self.inbox)
            found = every[:size]
            self.inbox.clear()
            self.inbox.append(every[size:])
        self.in_bytes -= len(found)
        peer = self.peer
        if peer._is_blocked and 2 * self.in_bytes <= self.receive_buffer and not self.is_gone:
            if self.is_lost():
                return found  # The other kernel probes again.
            self._world.at(self._arrives_us(0), peer._window_opened)
        return found

    def take_error(self) -> int:
        """Return the number of the error that ended it, or 0. As on Linux, the process is told once."""
        number, self.error = self.error, 0
        return number

    def shut(self) -> None:
        """Send a FIN after all other bytes."""
        if not self.fin_sent and not self.is_gone:
            self.fin_sent = True
            self._out.append(_FIN)
            self._pump()

    def close(self) -> None:
        """Close this end, because the process has closed it or has ended."""
        self.socket = None
        if self.is_gone:
            return
        if self.in_bytes:  # Bytes that were not read make the kernel send a RST.
            self.reset()
            return
        self.is_orphan = True
        self.shut()
        self._world.at(self._world.now_us + kernel.ORPHAN_US, self._forget_orphan)
        self._look_over()

    def reset(self) -> None:
        """Forget the connection, and send a RST to the other kernel."""
        if not self.is_gone:
            self._forget()
            if not self.is_lost():
                self._world.at(self._arrives_us(0), self.peer.was_reset)

    def was_reset(self) -> None:
        """Handle a RST."""
        if self.host.answers:
            self.fail(errno.EPIPE if self.is_ended else errno.ECONNRESET)  # as on Linux after a FIN

    def fail(self, number: int) -> None:
        """End the connection with an error, and tell the process."""
        if not self.is_gone:
            self._world.say(f"{self.local[0]}:{self.local[1]} {errno.errorcode[number]}")
            self._world.network.counters[errno.errorcode[number]] += 1
            self.error, self.is_failed = number, True
            self._forget()
            self._tell()

    def _forget(self) -> None:
        self.is_gone = True
        self._out.clear()
        self._lost.clear()
        self.host.ends.pop(self, None)

    def _forget_orphan(self) -> None:
        """Forget the connection if all is sent and the other end does not close.

        Otherwise the retransmissions decide.
        """
        if self._out or self._flight:
            self._world.at(self._world.now_us + kernel.ORPHAN_US, self._forget_orphan)
        else:
            self._forget()

    def forget_half(self) -> None:
        """Forget a handshake that the client has not completed."""
        if self.peer is self:
            self._forget()

    def vanish(self) -> None:
        """Forget the connection without telling the other end, because the machine has crashed."""
        self._forget()
        self.socket = None

    def _tell(self) -> None:
        """Make the process look at its socket."""
        loop = self.host.loop
        if self.socket is not None and loop is not None:
            loop.notify(self.socket.fd)

    # Sending

    def _arrives_us(self, size: int) -> int:
        """Return when a burst that is sent now arrives, which is never before an earlier one."""
        arrival_us = self._world.now_us + self._world.network.latency_us(self.path, size)
        if arrival_us > self._arrival_us:
            self._arrival_us = arrival_us
        return self._arrival_us

    def is_lost(self) -> bool:
        """Return whether a packet that is sent now is lost."""
        return self.is_dark or self._world.network.is_lost(self.path)

    def _pump(self) -> None:
        """Send what fits into the window of the other end. Lost bursts must be retransmitted first."""
        world, peer, out = self._world, self.peer, self._out
        network = world.network
        while out and not self._lost and self._unheard <= kernel.FLYING_BYTES:
            window = peer.receive_buffer - peer.in_bytes - self._flight
            burst = out[0]
            if burst is not _FIN and window <= 0:
                self._is_blocked = True
                network.counters["window closed"] += 1
                self._arm()
                return
            out.popleft()
            is_split = network.draw() < network.split
            if burst is _FIN:
                size = 1
            else:
                size = len(burst)
                if is_split or size > window or size > BURST_BYTES_MAX:
                    burst = self._first_part(burst, min(window, BURST_BYTES_MAX), is_split)
                    size = len(burst)
                self._out_bytes -= size
            self._flight += size
            self._number += 1
            if (self.is_dark or self.path.cuts or self.path.loss) and self.is_lost():
                self._lose(self._number, burst)
            else:
                world.kernel_at(self._arrives_us(size), self._arrive, self._number, burst)
            if is_split:
                self._arrival_us += 1 + int(network.draw() * _SPLIT_US)

    def _first_part(self, burst: bytes, most: int, is_split: bool) -> bytes:
        """Cut a burst, and put the rest back into the queue."""
        if is_split and len(burst) > 1:
            most = min(most, 1 + int(self._world.network.draw() * (len(burst) - 1)))
        if len(burst) > most:
            self._out.appendleft(burst[most:])
        return burst[:most]

    def _lose(self, number: int, burst: bytes | None) -> None:
        """Keep a lost burst in the send buffer, counted as under way, until a retransmission succeeds."""
        self._lost.append((number, burst))
        self._arm()

    # Arrival. `self` is the end that has sent the burst.

    def _arrive(self, number: int, burst: bytes | None) -> None:
        """Handle the arrival of a burst at the other end, and of its acknowledgement here."""
        peer, now_us = self.peer, self._world.now_us
        is_next = number == self._arrived + 1  # Otherwise an earlier one was lost.
        if not is_next or not peer.host.answers or (peer.listener is not None and not peer.enter_queue()):
            self._lose(number, burst)
            return
        self._arrived = number
        size = len(burst) if burst is not None else 1
        self._flight -= size
        if peer.is_gone:
            self.bounce()
            return
        if peer.is_orphan and burst is not _FIN:  # No process will ever read it.
            peer.reset()
            return
        world = self._world
        if burst is not None:
            world.history.add(f"{now_us} {self._shown} {size} {crc32(burst):08x}")
        else:
            world.history.add(f"{now_us} {self._shown} fin")
        peer.heard_us = now_us
        if burst is _FIN:
            peer.is_ended = True
            peer._look_over()
        else:
            peer.inbox.append(burst)
            peer.in_bytes += size
        peer._tell()
        if self.back.cuts or peer.is_dark:
            self._unheard += size
            self._arm()
            return
        self.heard_us = now_us
        if self._was_full and self.is_writable:
            self._has_room()
        if self.is_orphan:
            self._look_over()

    def bounce(self) -> None:
        """Let the other kernel answer with a RST, because it does not know the connection."""
        if not self.peer.is_lost():
            latency_us = self._world.network.latency_us(self.back, 0)
            self._world.at(self._world.now_us + latency_us, self.was_reset)

    def _has_room(self) -> None:
        self._was_full = False
        if self.socket is not None:
            latency_us = self._world.network.latency_us(self.back, 0)
            self._world.at(self._world.now_us + latency_us, self._tell)

    def enter_queue(self) -> bool:
        """Offer the connection to `accept`, because the handshake is complete. Return False if the queue is full."""
        listener = self.listener
        if listener is None or self.is_gone:
            return True
        if not listener.has_room:
            self._world.network.counters["accept queue full"] += 1
            return False
        self.listener = None
        listener.arrived(self)
        return True

    def answer_syn(self, attempt: int) -> None:
        """Complete the handshake. If the queue is full, try again later, and give up in the end."""
        if self.enter_queue():
            return
        if attempt == len(kernel.SYN_ACK_PAUSES_S):
            self._forget()  # The other end believes in the connection until it sends something.
        else:
            self._world.at(
                self._world.now_us + kernel.SYN_ACK_PAUSES_S[attempt] * kernel.SECOND, self.answer_syn, attempt + 1
            )

    def _look_over(self) -> None:
        """Forget a connection that both ends have closed in order."""
        if self.is_orphan and self.is_ended and not self._out and not self._lost and not self._flight:
            self._forget()

    # The timer: retransmissions, and probes of a closed window

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._rto_us, self._since_us = kernel.RTO_US_MIN, self._world.now_us
            self._world.at(self._world.now_us + self._rto_us, self._on_timer)

    @property
    def is_retransmitting(self) -> bool:
        """Return whether something was sent that has not been acknowledged for a while."""
        return bool(self._lost or self._unheard)

    def _window_opened(self) -> None:
        self._is_blocked = False
        self.heard_us = self._world.now_us
        self._pump()

    def _on_timer(self) -> None:
        """Retransmit or probe. Fail with ETIMEDOUT if the other kernel was silent for too long."""
        if not self.host.answers and not self.is_gone:  # A machine that has stopped sends nothing.
            self._world.at(self._world.now_us + kernel.RTO_US_MIN, self._on_timer)
            return
        if self.is_gone or not (self._lost or self._unheard or self._is_blocked):
            self._is_armed = False
            self._pump()
            return
        world = self._world
        world.network.counters["retransmitted"] += 1
        if self._is_answered():
            self._is_armed = False
            self._unheard = 0
            self._pump()
            if self._was_full and self.is_writable:
                self._has_room()
            return
        limit_us = self.user_us or kernel.GIVE_UP_US
        until_us = self._since_us + (min(limit_us, kernel.ORPHAN_US) if self.is_orphan else limit_us)
        if world.now_us >= until_us:
            self.fail(errno.ETIMEDOUT)
            return
        self._rto_us = min(2 * self._rto_us, kernel.RTO_US_MAX)
        world.at(min(world.now_us + self._rto_us, until_us), self._on_timer)

    def _is_answered(self) -> bool:
        """Retransmit what was lost, or probe the window. Return whether the other kernel has answered."""
        peer = self.peer
        if self.is_lost() or not peer.host.answers:
            return False
        if peer.is_gone:
            self.bounce()
            return False
        lost, self._lost = sorted(self._lost, key=itemgetter(0)), []
        for number, burst in lost:
            size = len(burst) if burst is not None else 1
            self._world.at(self._arrives_us(size), self._arrive, number, burst)
        if peer.is_lost():
            return False
        self.heard_us = self._world.now_us
        window = peer.receive_buffer - peer.in_bytes - self._flight
        if self._is_blocked and window <= 0:
            self._since_us = self._world.now_us  # The other kernel works, but its process does not read.
            return False
        self._is_blocked = False
        return True


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
