"""Keep virtual time for a set of simulated hosts: one heap of events, one seed, one history.

    with World(seed=7) as world:
        server, client = world.host("server"), world.host("client")
        server.start(serve())                    # a coroutine, as the only process of that host
        world.run(client.start(talk()))          # until it is done; its result, or its exception
        world.run_for(3.0)

Everything runs in one thread. The heap is ordered by (time, sequence), and time is whole microseconds. Its events are
turns of the hosts' event loops (`loop.py`), and arrivals and retransmissions of their kernels (`tcp.py`). Random
numbers come from streams named by (seed, purpose). So a run depends on its seed alone, and not on hash seeds, memory
addresses or real time.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter, deque
from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from types import TracebackType
from typing import Any

import msgspec

from trellis.errors import TrellisError
from trellis.ids import stream
from trellis.simulate.whole.host import Host
from trellis.simulate.whole.loop import HostLoop
from trellis.simulate.whole.network import Network, NetworkConfig
from trellis.simulate.whole.system import install, uninstall
from trellis.simulate.whole.tls import Handshake


class NotOver(TrellisError):
    """A simulated program did not end within its limit of virtual time."""


class Failure(msgspec.Struct, frozen=True):
    """An exception that reached the event loop of a host, or ended its process."""

    at_us: int
    host: str
    message: str
    error: BaseException | None


class History:
    """The events of a run, as a digest and optionally as lines of text."""

    def __init__(self, *, keeps_lines: bool) -> None:
        self.lines: list[str] | None = [] if keeps_lines else None
        self._flushed = 0
        self._hash = blake2b(digest_size=16)
        self._waiting: list[str] = []

    def add(self, line: str) -> None:
        waiting = self._waiting
        waiting.append(line)
        if len(waiting) >= 1_024:
            self._flush()

    @property
    def count(self) -> int:
        """Return the number of events."""
        return self._flushed + len(self._waiting)

    def hexdigest(self) -> str:
        self._flush()
        return self._hash.hexdigest()

    def text(self) -> str:
        self._flush()
        assert self.lines is not None, "this world keeps no lines: make it with keeps_lines=True"
        return "".join(f"{line}\n" for line in self.lines)

    def _flush(self) -> None:
        if self._waiting:
            self._flushed += len(self._waiting)
            self._hash.update("\n".join([*self._waiting, ""]).encode("utf-8", "surrogatepass"))
            if self.lines is not None:
                self.lines += self._waiting
            self._waiting.clear()


class World:
    """Simulated hosts and the network between them, in virtual time."""

    def __init__(self, seed: int | str = 0, network: NetworkConfig | None = None, *, keeps_lines: bool = False) -> None:
        """Create a world. With `keeps_lines` the history is also kept as text, for `world.history.text()`."""
        self.seed = seed
        self.now_us: int = 0
        self.history = History(keeps_lines=keeps_lines)
        self.network = Network(self, network or NetworkConfig(), self.random("network"))
        self.hosts: dict[str, Host] = {}
        self.failures: list[Failure] = []  # unhandled exceptions, which are defects
        self.exits: list[Failure] = []  # processes that ended by themselves, with the exception that ended each
        self.counters: Counter[str] = Counter()
        self.tls_offers: dict[int, Handshake] = {}  # number -> handshake that a client has begun
        self.graveyard: list[asyncio.Task[Any]] = []  # tasks of ended processes, which are closed when the world ends
        self.is_running = False
        self.inside: HostLoop | None = None  # the loop that asyncio sees as running; code of a kernel never asks for it
        self.due: deque[HostLoop] = deque()  # loops that have a turn at this moment
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0
        self._is_open = False

    def __enter__(self) -> World:
        install()
        self._is_open = True
        self._gc = gc.get_threshold()
        gc.set_threshold(20_000, 20, 20)  # as a live node does, because its objects have few cycles
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process, and close their coroutines. Nothing that they do then has an effect."""
        if not self._is_open:
            return
        self._is_open = False
        for host in self.hosts.values():
            host.end_process()
        self._heap.clear()
        self.due.clear()
        for task in self.graveyard:
            _close_quietly(task)
        self.graveyard.clear()
        gc.set_threshold(*self._gc)
        uninstall()

    def random(self, *labels: int | str) -> Random:
        """Return a stream of random numbers for one purpose."""
        return Random(stream(self.seed, "whole", *labels))

    def host(self, name: str, address: str = "") -> Host:
        """Return the host of this name. It is created, with an address, at the first call."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host(self, name, address or self.network.free_address())
            self.network.add(found)
        return found

    def offer_tls(self, handshake: Handshake) -> int:
        """Keep the context of a client until the server asks for it. Return its number."""
        number = len(self.tls_offers) + 1
        self.tls_offers[number] = handshake
        return number

    # Events

    def at(self, when_us: int, call: Callable[..., object], *args: Any) -> None:
        """Call `call(*args)` at a time, or now if that is past. It runs outside every process."""
        self.kernel_at(when_us, self._outside, call, args)

    def kernel_at(self, when_us: int, call: Callable[..., object], *args: Any) -> None:
        """Do what `at` does, at lower cost, for code that asks neither for the running event loop nor for the time.

        CPython makes a system call whenever a running loop is set.
        """
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (when_us if when_us > self.now_us else self.now_us, sequence, call, args))

    def after(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        self.at(self.now_us + round(seconds * 1_000_000), call, *args)

    def _outside(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._leave()
        call(*args)

    def _leave(self) -> None:
        """Make asyncio see no running loop, because the code that follows belongs to no process."""
        if self.inside is not None:
            self.inside = None
            asyncio._set_running_loop(None)

    def failed(self, host: str, message: str, error: BaseException | None) -> None:
        """Record an exception that reached the loop of a host."""
        self.failures.append(Failure(self.now_us, host, message, error))
        self.say(f"{host} {message}: {type(error).__name__}")

    def exited(self, host: str, error: BaseException | None) -> None:
        self.exits.append(Failure(self.now_us, host, "its process ended", error))
        self.say(f"{host} exits" if error is None else f"{host} exits: {type(error).__name__}: {error}")

    def say(self, what: str) -> None:
        """Add a line to the history."""
        self.history.add(f"{self.now_us} {what}")

    # Running

    @property
    def now_s(self) -> float:
        return self.now_us / 1_000_000

    def run_for(self, seconds: float) -> None:
        """Run all events of the next virtual seconds."""
        until_us = self.now_us + round(seconds * 1_000_000)
        self._run(until_us, None)
        self.now_us = max(self.now_us, until_us)

    def run_until(self, is_over: Callable[[], bool], limit_s: float = 3_600.0) -> None:
        """Run until `is_over` returns True, which is called after each event.

        Raise `NotOver` after `limit_s` virtual seconds.
        """
        if is_over():
            return
        until_us = self.now_us + round(limit_s * 1_000_000)
        if not self._run(until_us, is_over):
            why = f"after {limit_s:g} s of virtual time" if self._heap else "and nothing is left to happen"
            raise NotOver(f"it is not over {why}; raise limit_s, or see world.failures and the tasks of the hosts")

    def run(self, task: asyncio.Task[Any], limit_s: float = 3_600.0) -> Any:
        """Run until a task of `Host.start` is done. Return its result, or raise its exception."""
        self.run_until(task.done, limit_s)
        return task.result()

    def _run(self, until_us: int, is_over: Callable[[], bool] | None) -> bool:
        """Run events up to a time, or until `is_over`. Return whether `is_over` was true."""
        assert self._is_open, "use a world as a context: with World(...) as world"
        heap, due, before = self._heap, self.due, asyncio._get_running_loop()
        self.is_running = True
        try:
            while heap and heap[0][0] <= until_us:
                self.now_us, _, call, args = heappop(heap)
                call(*args)
                while due:
                    due.popleft().turn()
                if is_over is not None:
                    self._leave()
                    if is_over():
                        return True
        finally:
            self.is_running, self.inside = False, None
            asyncio._set_running_loop(before)
        return False


_CLOSES_MAX = 16


def _close_quietly(task: asyncio.Task[Any]) -> None:
    """Close the coroutine of a task that will never run again. Its clean-up code finds its loop closed.

    Clean-up code may wait for something, as a task group waits for its tasks. Then the coroutine is not closed yet, and
    would warn when it is collected. So it is closed again.
    """
    coroutine: Any = task.get_coro()
    for _ in range(_CLOSES_MAX):
        try:
            coroutine.close()
        except BaseException:  # Errors of clean-up code are ignored, because the process has ended long before.
            continue
        return
