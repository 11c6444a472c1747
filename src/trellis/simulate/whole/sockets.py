"""Implement sockets of simulated hosts with the interface of the `socket` module: non-blocking TCP over IPv4 only."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any

from trellis.simulate.whole.handles import NotSimulated
from trellis.simulate.whole.kernel import HALF_OPEN_US, SECOND, SYN_PAUSES_S, Place
from trellis.simulate.whole.tcp import End

if TYPE_CHECKING:
    from trellis.simulate.whole.host import Host

_KEEPALIVE = (socket.SOL_SOCKET, socket.SO_KEEPALIVE)
_IDLE = (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", 4)))
_INTERVAL = (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", 5))
_PROBES = (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", 6))
_USER = (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 18))
_LINGER = (socket.SOL_SOCKET, socket.SO_LINGER)
_BUFFERS = ((socket.SOL_SOCKET, socket.SO_SNDBUF), (socket.SOL_SOCKET, socket.SO_RCVBUF))


class HostSocket:
    """A file descriptor of a host: new, listening, connecting, or one end of a connection."""

    type = socket.SOCK_STREAM

    def __init__(
        self, host: Host, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, proto: int = 0
    ) -> None:
        if family not in (socket.AF_INET, -1) or kind not in (socket.SOCK_STREAM, -1):
            raise NotSimulated("the simulated network carries TCP over IPv4 only")
        self.host, self.family, self.proto = host, socket.AF_INET, proto or socket.IPPROTO_TCP
        self.end: End | None = None
        self.options: dict[tuple[int, int], Any] = {}
        self._local: Place = ("0.0.0.0", 0)
        self._backlog = 0  # above 0: it listens
        self._queue: deque[End] = deque()  # connections that wait to be accepted
        self._dialled: Place | None = None
        self._half: End | None = None  # the other end of a connection that is being made
        self._error = 0  # why connecting failed
        self.fd = host.open_fd(self)

    def __repr__(self) -> str:
        return f"<HostSocket {self.host.name} fd={self.fd}>"

    def __enter__(self) -> HostSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Properties and options

    def fileno(self) -> int:
        return self.fd

    def getsockname(self) -> Place:
        return self.end.local if self.end is not None else self._local

    def getpeername(self) -> Place:
        if self.end is None or self.end.is_failed:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self.end.remote

    def setblocking(self, flag: bool) -> None:
        if flag:
            raise NotSimulated("a simulated process must not block: use setblocking(False)")

    def settimeout(self, seconds: float | None) -> None:
        if seconds != 0:
            raise NotSimulated("a simulated process must not block: use setblocking(False)")

    def gettimeout(self) -> float:
        return 0.0

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        self._check_open()
        self.options[level, option] = value
        if self.end is not None:
            self._apply(self.end)

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR):
            number, self._error = self._error, 0
            return number or (self.end.take_error() if self.end is not None else 0)
        return self.options.get((level, option), 0)

    def _apply(self, end: End) -> None:
        """Apply the options to the kernel's end of the connection."""
        options = self.options
        end.user_us = options.get(_USER, 0) * 1_000
        end.send_buffer = options.get(_BUFFERS[0], end.send_buffer)
        end.receive_buffer = options.get(_BUFFERS[1], end.receive_buffer)
        if _KEEPALIVE in options:
            probes = options.get(_PROBES, 9) if options[_KEEPALIVE] else 0
            end.keep_alive.set(options.get(_IDLE, 7_200) * SECOND, options.get(_INTERVAL, 75) * SECOND, probes)

    @property
    def is_readable(self) -> bool:
        end = self.end
        if end is not None:
            return bool(end.in_bytes or end.is_ended or end.is_failed or end.is_deaf)
        return bool(self._queue or self._error)

    @property
    def is_writable(self) -> bool:
        return self.end.is_writable if self.end is not None else bool(self._error)

    def notify(self) -> None:
        if self.host.loop is not None:
            self.host.loop.notify(self.fd)

    def _check_open(self) -> None:
        if self.fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    # Bytes

    def _connected(self) -> End:
        if self.end is None or self.fd < 0:
            number = errno.EBADF if self.fd < 0 else errno.ENOTCONN
            raise OSError(number, os.strerror(number))
        return self.end

    def attach(self, end: End) -> None:
        """Become the socket of one end of a connection. `send` and `recv` are those of the end until `close`."""
        self.end, end.socket = end, self
        self.send, self.recv = end.send, end.recv  # type: ignore[method-assign]

    def send(self, data: Any, flags: int = 0) -> int:
        return self._connected().send(data)

    def sendmsg(self, buffers: Any, *_: Any) -> int:
        return self._connected().send(b"".join(buffers))

    def recv(self, size: int, flags: int = 0) -> bytes:
        return self._connected().recv(size, flags)

    def recv_into(self, buffer: Any, size: int = 0, flags: int = 0) -> int:
        found = self._connected().recv(size or len(buffer), flags)
        buffer[: len(found)] = found
        return len(found)

    def shutdown(self, how: int) -> None:
        end = self._connected()
        if end.is_failed:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        if how in (socket.SHUT_RD, socket.SHUT_RDWR):
            end.is_deaf = True
            self.notify()
        if how in (socket.SHUT_WR, socket.SHUT_RDWR):
            end.shut()

    def close(self) -> None:
        """Close the socket. A listener resets connections in its queue; SO_LINGER of 0 resets a connection."""
        if self.fd < 0:
            return
        fd, self.fd = self.fd, -1
        host = self.host
        host.sockets.pop(fd, None)
        if host.loop is not None:
            host.loop.forget(fd)
        if self._backlog:
            if host.listeners.get(self._local[1]) is self:
                del host.listeners[self._local[1]]
            for end in self._queue:
                end.reset()
            self._queue.clear()
        if self.end is not None:
            del self.send, self.recv
            linger = self.options.get(_LINGER)
            if isinstance(linger, bytes) and struct.unpack("ii", linger) == (1, 0):
                self.end.socket = None
                self.end.reset()
            else:
                self.end.close()

    def detach(self) -> int:
        raise NotSimulated("a simulated socket cannot leave its host")

    # Listening

    def bind(self, address: Any) -> None:
        self._check_open()
        name, port = address[:2]
        if not (name in ("", "0.0.0.0", self.host.address) or name.startswith("127.")):
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        is_used = any(one.is_outgoing and one.socket is not None and one.local[1] == port for one in self.host.ends)
        if port in self.host.listeners or is_used:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._local = (name or "0.0.0.0", port or self.host.free_port())

    def listen(self, backlog: int = 128) -> None:
        self._check_open()
        if self.host.listeners.setdefault(self._local[1], self) is not self:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self._backlog = max(1, backlog)

    def accept(self) -> tuple[HostSocket, Place]:
        self._check_open()
        if not self._queue:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = HostSocket(
            self.host
        )  # raises OSError if there are too many files: the connection stays in the queue
        end = self._queue.popleft()
        accepted.attach(end)
        return accepted, end.remote

    def serves(self, address: str) -> bool:
        return self._local[0] in ("0.0.0.0", address) or address.startswith("127.")

    @property
    def has_room(self) -> bool:
        return len(self._queue) <= self._backlog

    def arrived(self, end: End) -> None:
        """Queue a connection for `accept`. Reset it if this socket was closed."""
        if self.fd < 0:
            end.reset()
        else:
            self._queue.append(end)
            self.notify()

    # Connecting: the kernel sends a SYN, and repeats it

    def connect(self, address: Any) -> None:
        """Start to connect. As a non-blocking socket does, raise BlockingIOError."""
        self._check_open()
        if self.end is not None:
            raise OSError(errno.EISCONN, os.strerror(errno.EISCONN))
        if self._dialled is not None:
            raise OSError(errno.EALREADY, os.strerror(errno.EALREADY))
        name, port = address[:2]
        self._dialled = (name, port)
        self._local = (name if name.startswith("127.") else self.host.address, self.host.free_port())
        self._syn(0)
        raise BlockingIOError(errno.EINPROGRESS, os.strerror(errno.EINPROGRESS))

    @property
    def _is_dialling(self) -> bool:
        return self.fd >= 0 and self.end is None and not self._error and self.host.is_up

    def _syn(self, attempt: int) -> None:
        """Send a SYN, and plan to repeat it. Give up after the last attempt."""
        if not self._is_dialling or self._dialled is None:
            return
        world = self.host.world
        network = world.network
        target = network.host_at(self._dialled[0], self.host)
        if attempt == len(SYN_PAUSES_S):
            self._dial_failed(errno.ETIMEDOUT)
            return
        if target is None:
            world.at(world.now_us + 3 * SECOND, self._dial_failed, errno.EHOSTUNREACH)
            return
        path = network.path(self.host, target)
        if not self.host.is_frozen and not network.is_lost(path):
            world.at(world.now_us + network.latency_us(path, 0), self._syn_arrives, target)
        world.at(world.now_us + SYN_PAUSES_S[attempt] * SECOND, self._syn, attempt + 1)

    def _syn_arrives(self, target: Host) -> None:
        """Handle our SYN at the other kernel: refuse it, drop it, or answer with a SYN-ACK."""
        if not self._is_dialling or not target.answers or self._dialled is None:
            return
        world, network = self.host.world, self.host.world.network
        back = network.path(target, self.host)
        listener = target.listeners.get(self._dialled[1])
        if listener is None or not listener.serves(self._dialled[0]):
            if not network.is_lost(back):
                world.at(world.now_us + network.latency_us(back, 0), self._dial_failed, errno.ECONNREFUSED)
            return
        if self._half is None or self._half.is_gone:
            if not listener.has_room:
                network.counters["accept queue full"] += 1
                return  # It is dropped, and the SYN is sent again.
            self._half = End(target, self._dialled, self._local, back, network.path(self.host, target))
            self._half.listener = listener
            world.at(world.now_us + HALF_OPEN_US, self._half.forget_half)
        if not network.is_lost(back):
            world.at(world.now_us + network.latency_us(back, 0), self._syn_answered, target, self._half)

    def _syn_answered(self, target: Host, other: End) -> None:
        """Handle the SYN-ACK. The connection now stands at this end, and at the other when our answer arrives there."""
        if not self._is_dialling or not self.host.answers:
            if self.host.answers and other.listener is not None:
                other.vanish()  # We no longer know the connection, so the other end gets a RST.
            return
        world, network = self.host.world, self.host.world.network
        end = End(self.host, other.remote, other.local, other.back, other.path)
        end.peer, other.peer, self._half, end.is_outgoing = other, end, None, True
        self.attach(end)
        self._apply(end)
        world.say(f"{end.local[0]}:{end.local[1]} connects to {end.remote[0]}:{end.remote[1]}")
        network.counters["connected"] += 1
        if not network.is_lost(end.path):
            world.at(end._arrives_us(0), other.answer_syn, 0)
        self.notify()

    def _dial_failed(self, number: int) -> None:
        if self._is_dialling:
            self._error = number
            self.notify()
