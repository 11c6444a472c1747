"""One broker of a run through its starts and ends: its processes, and what they cost.

A *site* is one broker with everything that runs beside it, such as a sidecar: a fault hits all of it at once, as the
fault of a machine does. Its processes are known by a variable of their environment, so helpers that leave the session
of their parent are found, too.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from benchmarks.fire.network import Place
from benchmarks.fire.systems.base import Command

MARK = "FIRE_SITE"
UP_S = 300.0  # a busy machine may need minutes to start RabbitMQ
_PR_SET_PDEATHSIG = 1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_TOLD_LINES = 5


class SiteFailed(Exception):
    """A site did not come up, or did not end."""


class Site:
    def __init__(self, place: Place, folder: Path, commands: list[Command]) -> None:
        self.place, self.folder, self.commands = place, folder, commands
        self.mark = f"{os.getpid()}-{place.name}"
        self.log = folder / f"{place.name}.log"
        self.children: list[asyncio.subprocess.Process] = []
        self._cpu: dict[int, float] = {}  # seconds by process, ended ones included
        self.memory_mb = 0.0  # most that all processes of the site had at once

    @property
    def name(self) -> str:
        return self.place.name

    async def start(self) -> None:
        """Start every process, and return when clients can connect."""
        for command in self.commands:
            await self._start(command)

    async def _start(self, command: Command) -> None:
        with self.log.open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *self.place.prefix, *command.argv, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                env={**_environment(), **command.env, MARK: self.mark}, cwd=self.folder, start_new_session=True,
                preexec_fn=_die_with_us,
            )  # fmt: skip
        self.children.append(child)
        if command.ready is not None:
            await self._accepts(child, *command.ready)
        await asyncio.sleep(command.pause_s)

    async def _accepts(self, child: asyncio.subprocess.Process, host: str, port: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(UP_S):
                while child.returncode is None:
                    with suppress(OSError):
                        async with asyncio.timeout(1.0):
                            _, writer = await asyncio.open_connection(host, port)
                        writer.close()
                        return
                    await asyncio.sleep(0.1)
        raise SiteFailed(f"{self.name} did not come up at {host}:{port}: {self.last_words()}")

    def signal(self, number: int) -> None:
        for pid in pids_of([self.mark])[self.mark]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def kill(self) -> None:
        """kill -9 of all processes. They are gone when this returns."""
        self.sample(pids_of([self.mark])[self.mark])
        for _ in range(100):
            if not pids_of([self.mark])[self.mark]:
                break
            self.signal(signal.SIGKILL)
            await asyncio.sleep(0.02)
        for child in self.children:
            await child.wait()
        self.children.clear()

    async def stop(self, within_s: float) -> bool:
        """Stop in order, the last process first. Return False if it had to be killed because it took too long."""
        self.sample(pids_of([self.mark])[self.mark])
        is_clean = True
        for child in reversed(self.children):
            with suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(within_s):
                    await child.wait()
            except TimeoutError:
                is_clean = False
                break
        await self.kill()
        return is_clean

    def sample(self, pids: Iterable[int]) -> None:
        """Take down computing time and memory of the processes."""
        pages = 0
        for pid in pids:
            with suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
                self._cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
                pages += int(fields[21])
        self.memory_mb = max(self.memory_mb, pages * _PAGE_BYTES / 2**20)

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu.values())

    def last_words(self) -> str:
        with suppress(OSError):
            return " | ".join(self.log.read_text("utf-8", "replace").splitlines()[-_TOLD_LINES:]) or "it said nothing"
        return "it has no log"


def pids_of(marks: Iterable[str]) -> dict[str, list[int]]:
    """Return the processes that carry each mark in their environment."""
    found: dict[str, list[int]] = {mark: [] for mark in marks}
    start = f"{MARK}=".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                for word in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    if word.startswith(start) and (mark := word[len(start) :].decode("ascii", "replace")) in found:
                        found[mark].append(int(entry.name))
    return found


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("TRELLIS_", "RABBITMQ_"))}


def _die_with_us() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
