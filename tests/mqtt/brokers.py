"""Real brokers for tests, each a process of its own on a free port of loopback: Mosquitto, and amqtt."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

MOSQUITTO = shutil.which("mosquitto") or (Path("/usr/sbin/mosquitto").exists() and "/usr/sbin/mosquitto") or ""
needs_mosquitto = pytest.mark.skipif(not MOSQUITTO, reason="mosquitto is not installed (Debian: apt install mosquitto)")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


Kind = TypeVar("Kind", bound="Broker")


class Broker(ABC):
    """A process that listens on `port` of loopback."""

    port: int
    name: str
    log: Path
    process: asyncio.subprocess.Process | None = None

    @abstractmethod
    def command(self) -> list[str]: ...

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.command(), stdout=log, stderr=log)
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            assert self.process.returncode is None, self.log.read_text()
            await asyncio.sleep(0.05)

    async def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
            self.process = None


class Mosquitto(Broker):
    def __init__(self, folder: Path, name: str, lines: str = "") -> None:
        self.port, self.name = free_port(), name
        self.config = folder / f"{name}.conf"
        (folder / name).mkdir(exist_ok=True)
        lines = lines.replace("NAME", name)  # a folder of its own for what it saves
        self.config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n{lines}\n")
        self.log = folder / f"{name}.log"

    def command(self) -> list[str]:
        return [str(MOSQUITTO), "-c", str(self.config)]


class Amqtt(Broker):
    """A broker of 3.1.1 that knows no bridges, in Python. It keeps sessions, and what waits in them, only where
    it lets no anonymous clients in: here all must have a name, and any will do."""

    def __init__(self, folder: Path, name: str) -> None:
        self.port, self.name, self.log = free_port(), name, folder / f"{name}.log"

    def command(self) -> list[str]:
        return [sys.executable, "-c", _AMQTT, str(self.port)]

    @property
    def url(self) -> str:
        return f"mqtt://sidecar:secret@127.0.0.1:{self.port}"


_AMQTT = """
import asyncio, logging, sys
from amqtt.broker import Broker

async def serve():
    logging.basicConfig(level=logging.WARNING)
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": False}}
    listeners = {"default": {"type": "tcp", "bind": f"127.0.0.1:{sys.argv[1]}"}}
    await Broker({"listeners": listeners, "plugins": plugins}).start()
    await asyncio.Event().wait()

asyncio.run(serve())
"""


@asynccontextmanager
async def brokers(folder: Path, *names: str, lines: str = "") -> AsyncIterator[list[Mosquitto]]:
    async with running([Mosquitto(folder, name, lines) for name in names]) as several:
        yield several


@asynccontextmanager
async def running(several: list[Kind]) -> AsyncIterator[list[Kind]]:
    try:
        for one in several:
            await one.start()
        yield several
    finally:
        for one in several:
            await one.kill()
