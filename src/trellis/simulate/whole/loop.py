"""Implement the event loop of a simulated process: asyncio's selector loop with virtual time and simulated sockets.

Transports, servers, streams and `sock_connect` are CPython's. This class replaces what touches the machine: the clock,
the selector, name resolution, threads and signals. One turn does what `BaseEventLoop._run_once` does. It collects
sockets that are ready, then timers that are due, and then runs the callbacks that are ready. A turn takes some virtual
microseconds. So time advances for a program that polls, and inputs that come close together are handled together.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from trellis.simulate.whole.bare import BareLoop
from trellis.simulate.whole.handles import Handle
from trellis.simulate.whole.machine import HostMachine
from trellis.simulate.whole.tls import Records

if TYPE_CHECKING:
    from trellis.simulate.whole.host import Host
    from trellis.simulate.whole.world import World

log = logging.getLogger("trellis.simulate")

_NEVER = 1 << 62
_ROUNDS = 4  # most rounds of callbacks in one turn
_CANCELLED_MIN = 100  # cancelled timers before the heap is cleaned up
_set_running_loop = asyncio._set_running_loop


def _has_unseen_error(task: asyncio.Task[Any]) -> bool:
    return bool(task._log_traceback)


class HostLoop(BareLoop):
    """The event loop of one process. It registers its turns with the world."""

    # Beyond 30 attributes CPython looks up each one by name. Slots stay fast, and the base class has 25 other
    # attributes.
    __slots__ = (
        "_busy_us", "_cancelled_timers", "_draw", "_fuse", "_is_paused", "_maybe", "_on_fuse", "_planned", "_readers",
        "_served", "_signals", "_tasks", "_tasks_max", "_timer_number", "_timers", "_turn_low", "_turn_span",
        "_wake_us", "_writers", "callbacks", "host", "machine", "spent_us", "turns", "world",
    )  # fmt: skip

    _ready: Any
    _scheduled: Any
    _transports: Any

    def __init__(self, world: World, host: Host) -> None:
        self.world, self.host, self.machine = world, host, HostMachine(host)
        super().__init__(selector=object())  # type: ignore[arg-type]  # the selector is never used
        self._debug = False
        self._timers: list[tuple[int, int, Handle]] = []
        self._timer_number = 0
        self._cancelled_timers = 0
        self._readers: dict[int, Handle] = {}
        self._writers: dict[int, Handle] = {}
        self._maybe: dict[int, None] = {}  # file descriptors that may be ready; the next round checks them
        self._served: list[int] = []  # file descriptors whose readers or writers have run in this turn
        self._wake_us = _NEVER  # when the next turn is due
        self._planned: set[int] = set()  # times of turns that are on the heap of the world
        self._busy_us = 0  # end of the last turn
        self.spent_us = 0.0  # computing time charged to the callbacks of this turn
        self._turn_low, self._turn_span = world.network.config.turn_us_low, world.network.config.turn_us_span
        self._draw = host.random.random
        self._signals: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self._fuse: int | None = None  # callbacks that still run before the process crashes; None: no crash is set
        self._on_fuse: Callable[[], None] | None = None
        self._is_paused = False
        self.turns = self.callbacks = 0
        # in the order of creation; some are done, or failed and nobody has looked
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = 64  # With more tasks than this, finished ones are removed.

    # Time

    def time(self) -> float:
        return (self.world.now_us + self.host.monotonic_us) / 1_000_000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context)
        if not self._closed:
            self._ready.append(handle)
            if self._wake_us > self.world.now_us:
                self._wake(self.world.now_us)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        now_us = self.world.now_us
        when_us = now_us + int(delay * 1_000_000 + 0.999) if delay > 0 else now_us
        at_s = (now_us + self.host.monotonic_us) / 1_000_000 + delay
        return self._add_timer(
            when_us, Handle(callback, args, copy_context() if context is None else context, at_s, self._timer_cancelled)
        )

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        when_us = int(when * 1_000_000 + 0.999) - self.host.monotonic_us
        return self._add_timer(
            when_us, Handle(callback, args, copy_context() if context is None else context, when, self._timer_cancelled)
        )

    def _add_timer(self, when_us: int, handle: Handle) -> Handle:
        if not self._closed:
            self._timer_number += 1
            heappush(self._timers, (when_us, self._timer_number, handle))
            if when_us < self._wake_us:
                self._wake(when_us)
        return handle

    def _timer_cancelled(self) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > _CANCELLED_MIN and 2 * self._cancelled_timers > len(self._timers):
            self._timers = [one for one in self._timers if not one[2].is_cancelled]
            heapify(self._timers)
            self._cancelled_timers = 0

    def shift_timers(self, later_us: int) -> None:
        """Move all timers by `later_us`, because their clock stood still for that time."""
        self._timers = [(when_us + later_us, number, handle) for when_us, number, handle in self._timers]
        self._plan()

    # Turns

    def _wake(self, when_us: int) -> None:
        """Plan a turn at a time, but not before the last one is over."""
        world, now_us = self.world, self.world.now_us
        if when_us < self._busy_us:
            when_us = self._busy_us
        if when_us < now_us:
            when_us = now_us
        if when_us >= self._wake_us:
            return
        self._wake_us = when_us
        if when_us == now_us and world.is_running:
            world.due.append(self)  # This avoids the heap.
        elif when_us not in self._planned:
            self._planned.add(when_us)
            world.kernel_at(when_us, self._planned_turn, when_us)

    def _planned_turn(self, when_us: int) -> None:
        self._planned.discard(when_us)
        if when_us == self._wake_us:  # Otherwise another turn was planned since.
            self.turn()

    def turn(self) -> None:
        """Run the callbacks that are ready, and plan the next turn."""
        world, ready, self._wake_us = self.world, self._ready, _NEVER
        now_us = world.now_us
        if self._closed or self._is_paused or self.host.is_frozen:
            return  # `resume` or the end of the freeze plans a turn.
        self._wake_us = 0  # While callbacks run, nothing plans a turn. That is done below.
        if world.inside is not self:
            world.inside = self
            _set_running_loop(self)
        try:
            for _ in range(_ROUNDS):
                if self._maybe:
                    self._take_in_sockets()
                if self._timers and self._timers[0][0] <= now_us:
                    self._take_in_timers(now_us)
                self.callbacks += len(ready)
                for _ in range(len(ready)):
                    handle = ready.popleft()
                    if handle.is_cancelled:
                        continue
                    if self._fuse is not None and self._burn():
                        return
                    try:
                        handle.context.run(handle.callback, *handle.args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self.call_exception_handler(
                            {"message": f"Exception in {handle.callback!r}", "exception": error}
                        )
                    if self._closed:
                        return
                if not ready:
                    break
        finally:
            self._wake_us = _NEVER
        self.turns += 1
        self._busy_us = now_us + self._turn_low + int(self._draw() * self._turn_span + self.spent_us)
        self.spent_us = 0.0
        self._plan()

    def _take_in_timers(self, now_us: int) -> None:
        """Move timers that are due to the ready callbacks."""
        timers = self._timers
        while timers and timers[0][0] <= now_us:
            handle = heappop(timers)[2]
            if handle.is_cancelled:
                self._cancelled_timers -= 1
            else:
                handle.on_cancel = None
                self._ready.append(handle)

    def _plan(self) -> None:
        """Plan the next turn if there is anything to do."""
        if self._closed or self._is_paused:
            return
        if self._served:
            self._look_again()
        if self._ready or self._maybe:
            self._wake(self._busy_us)
        elif self._timers:
            self._wake(self._timers[0][0])

    def _burn(self) -> bool:
        """Count down to a crash. Return whether the process has ended."""
        assert self._fuse is not None
        self._fuse -= 1
        if self._fuse < 0 and self._on_fuse is not None:
            self._fuse = None
            self._on_fuse()
        return self._closed

    def crash_after(self, callbacks: int, crash: Callable[[], None]) -> None:
        """Call `crash` after `callbacks` more callbacks, before the next one. So a crash may happen at any `await`."""
        self._fuse, self._on_fuse = callbacks, crash

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._plan()

    def die(self) -> list[asyncio.Task[Any]]:
        """Stop the process: none of its code runs any more.

        Return its unfinished tasks, which must be kept (`World.close`).
        """
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        self._readers.clear()
        self._writers.clear()
        for transport in list(self._transports.values()):
            # Otherwise it would warn when it is collected, and act when clean-up code closes it.
            transport._sock, transport._closing, transport._conn_lost = None, True, 1
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.clear()
        return left

    # Sockets are level-triggered, as epoll is for asyncio.

    def notify(self, fd: int) -> None:
        """Note that a socket may have become readable or writable."""
        if fd in self._readers or fd in self._writers:
            self._maybe[fd] = None
            if self._wake_us > self.world.now_us:
                self._wake(self.world.now_us)

    def forget(self, fd: int) -> None:
        """Stop watching a closed socket, as epoll does."""
        for watchers in (self._readers, self._writers):
            watchers.pop(fd, None)

    def _take_in_sockets(self) -> None:
        """Move readers and writers of sockets that are ready to the ready callbacks."""
        sockets, ready = self.host.sockets, self._ready
        for fd in self._maybe:
            found = sockets.get(fd)
            if found is None:
                continue
            reader, writer = self._readers.get(fd), self._writers.get(fd)
            if reader is not None and found.is_readable:
                ready.append(reader)
                self._served.append(fd)
            if writer is not None and found.is_writable:
                ready.append(writer)
                self._served.append(fd)
        self._maybe.clear()

    def _look_again(self) -> None:
        """Check again, in the next turn, sockets that were served in this turn and are still ready."""
        for fd in self._served:
            found = self.host.sockets.get(fd)
            if found is not None and (
                (fd in self._readers and found.is_readable) or (fd in self._writers and found.is_writable)
            ):
                self._maybe[fd] = None
        self._served.clear()

    def _add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> Handle:
        return self._watch(self._readers, fd, callback, args)

    def _add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> Handle:
        return self._watch(self._writers, fd, callback, args)

    def _watch(
        self, watchers: dict[int, Handle], fd: Any, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> Handle:
        fd = fd if isinstance(fd, int) else fd.fileno()
        before = watchers.get(fd)
        if before is not None:
            before.cancel()
        handle = watchers[fd] = Handle(callback, args, copy_context())
        self.notify(fd)
        return handle

    def _remove_reader(self, fd: Any) -> bool:
        return self._unwatch(self._readers, fd)

    def _remove_writer(self, fd: Any) -> bool:
        return self._unwatch(self._writers, fd)

    def _unwatch(self, watchers: dict[int, Handle], fd: Any) -> bool:
        handle = watchers.pop(fd if isinstance(fd, int) else fd.fileno(), None)
        if handle is not None:
            handle.cancel()
        return handle is not None

    # Other methods of an event loop

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **more)
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._tasks = [one for one in self._tasks if not one.done() or _has_unseen_error(one)]
            self._tasks_max = 2 * len(self._tasks) + 64
        return task

    def unseen_errors(self) -> list[BaseException]:
        """Return the errors of tasks that have failed and whose errors nobody has looked at.

        asyncio reports such a task when it is garbage-collected. A task that is referenced is never reported.
        """
        failed = [task for task in self._tasks if _has_unseen_error(task)]
        return [error for task in failed if (error := task.exception()) is not None]

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[Any]:
        """Ask a name server, which takes a while. The answer is the one at the end of that time."""
        await asyncio.sleep(self.world.network.dns_s(host))
        return socket.getaddrinfo(host, port, family, type, proto, flags)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function a little later, in this thread. It does not run if the process crashes before."""
        future = self.create_future()
        self.call_later(0.000_1 + self._draw() * 0.002, self._do_job, future, func, args)
        return future

    def _do_job(self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if future.cancelled():
            return
        try:
            result = func(*args)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        self._signals[sig] = (callback, args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self._signals.pop(sig, None) is not None

    def signal(self, number: int) -> bool:
        found = self._signals.get(number)
        if found is not None:
            self.call_soon(found[0], *found[1])
        return found is not None

    def _make_ssl_transport(
        self,
        rawsock: Any,
        protocol: Any,
        sslcontext: ssl.SSLContext,
        waiter: asyncio.Future[None] | None = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: Any = None,
        server: Any = None,
        ssl_handshake_timeout: float | None = None,
        **_: Any,
    ) -> asyncio.Transport:
        timeout_s = 60.0 if ssl_handshake_timeout is None else ssl_handshake_timeout
        records = Records(self, protocol, sslcontext, waiter, server_hostname, timeout_s, is_server=server_side)
        self._make_socket_transport(rawsock, records, extra=extra, server=server)  # type: ignore[attr-defined]
        return records.transport

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an unhandled error. A check over seeds fails because of it."""
        if self._closed:
            return
        error = context.get("exception")
        message = str(context.get("message", ""))
        self.world.failed(self.host.name, message, error)
        log.error("%s: %s", self.host.name, message, exc_info=error)

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self
