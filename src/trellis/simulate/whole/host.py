"""Simulate a host: an address, a kernel with sockets and clocks, and at most one process.

A process is an event loop (`loop.py`) and its tasks. It ends in one of four ways. It finishes. It crashes, and the
kernel closes its sockets. The machine crashes, and the others are not told. Or the world ends.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from trellis.errors import TrellisError
from trellis.simulate.whole.loop import HostLoop

if TYPE_CHECKING:
    from trellis.simulate.whole.sockets import HostSocket
    from trellis.simulate.whole.tcp import End
    from trellis.simulate.whole.world import World

WALL_START_S = 1_767_225_600  # 2026-01-01: wall clocks start here, apart from their offsets
_FIRST_FD = 3  # after standard input, output and error
_PORT_MIN, _PORT_MAX = 32_768, 60_999  # local ports of outgoing connections, as on Linux


class Host:
    """One machine of a world. `start` runs a process on it."""

    def __init__(self, world: World, name: str, address: str) -> None:
        self.world, self.name, self.address = world, name, address
        self.starts = 0  # number of processes so far
        # random numbers that the process gets from the operating system
        self.random: Random = world.random("host", name, 0)
        self.loop: HostLoop | None = None
        # Each clock of the host shows the world's time plus one of these offsets.
        clock, skew_us = world.random("clock", name), world.network.config.skew_us
        self.monotonic_us = clock.randrange(1_000_000_000, 100_000_000_000)
        self.wall_us = clock.randint(-skew_us, skew_us)
        self.boot_us = self.monotonic_us
        self._computed_us = 0
        self.is_up = True  # False: the machine has crashed.
        self.is_frozen = False  # True: the machine has stopped, and its kernel as well.
        self.answers = True  # True: the kernel answers packets, because it is up and not frozen. The process may hang.
        self.files_max = 1 << 20
        self.is_disk_full = False
        self.sockets: dict[int, HostSocket] = {}  # by file descriptor
        self.listeners: dict[int, HostSocket] = {}  # by port
        self.ends: dict[End, None] = {}  # connections that the kernel knows, also those without a process
        self._port = _PORT_MIN + world.random("ports", name).randrange(_PORT_MAX - _PORT_MIN)

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.address}>"

    def be(self, *, up: bool, frozen: bool = False) -> None:
        """Set whether the machine runs, and whether it is frozen."""
        self.is_up, self.is_frozen, self.answers = up, frozen, up and not frozen

    # Its process

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine. The first one becomes the process of this host, which ends when the coroutine is done."""
        if self.loop is not None:
            return self.loop.create_task(work)
        if not self.is_up:
            self.be(up=True)
            self.monotonic_us = self.boot_us = 10_000_000 - self.world.now_us  # Its clocks start again.
        self.starts += 1
        self.random = self.world.random("host", self.name, self.starts)
        self.loop = HostLoop(self.world, self)
        main = self.loop.create_task(work)
        main.add_done_callback(self._exit)
        return main

    def _exit(self, main: asyncio.Task[Any]) -> None:
        error = None if main.cancelled() else main.exception()
        self.world.exited(self.name, error)
        self.end_process()

    def end_process(self) -> None:
        """End the process at once: none of its code runs any more, and its kernel closes its sockets."""
        loop, self.loop = self.loop, None
        if loop is None:
            return
        self.world.graveyard += loop.die()
        self.be(up=self.is_up)
        for one in list(self.sockets.values()):
            one.close()

    def crash_machine(self) -> None:
        """Stop the machine without telling the others. Packets that it has sent still arrive."""
        self.be(up=False)
        for end in list(self.ends):
            end.vanish()
        self.sockets.clear()
        self.listeners.clear()
        self.end_process()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function as the process would, and return its result.

        It sees the clocks and random numbers of this host.

        Objects of a process that are called from outside see the real clocks.
        """
        if self.loop is None:
            raise TrellisError(f"{self.name} has no process; start one first")
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            return function(*args)
        finally:
            asyncio._set_running_loop(before)

    def signal(self, number: int) -> bool:
        """Send a signal to the process. Return False if it has no handler for it."""
        return self.loop is not None and self.loop.signal(number)

    # Resources that a kernel gives out

    def open_fd(self, socket: HostSocket) -> int:
        """Return a new file descriptor. Raise OSError if there are too many."""
        if len(self.sockets) >= self.files_max:
            self.world.counters["no file descriptor"] += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        fd = _FIRST_FD
        while fd in self.sockets:
            fd += 1
        self.sockets[fd] = socket
        return fd

    def free_port(self) -> int:
        """Return a free local port for an outgoing connection."""
        used = {end.local[1] for end in self.ends}
        for _ in range(_PORT_MAX - _PORT_MIN):
            self._port = self._port + 1 if self._port < _PORT_MAX else _PORT_MIN
            if self._port not in used and self._port not in self.listeners:
                return self._port
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))

    def wall_s(self) -> float:
        """Return the time of its wall clock."""
        return WALL_START_S + (self.world.now_us + self.wall_us) / 1_000_000

    def computed_s(self) -> float:
        """Return how much processor time its process has used. Every call adds a random amount."""
        self._computed_us += 50 + int(self.random.random() * 2_000)
        return self._computed_us / 1_000_000
