"""Real Mosquitto processes for tests, on free ports of loopback."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

MOSQUITTO = shutil.which("mosquitto") or (Path("/usr/sbin/mosquitto").exists() and "/usr/sbin/mosquitto") or ""
needs_mosquitto = pytest.mark.skipif(not MOSQUITTO, reason="mosquitto is not installed (Debian: apt install mosquitto)")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


class Mosquitto:
    def __init__(self, folder: Path, name: str, lines: str = "") -> None:
        self.port, self.name = free_port(), name
        self.config = folder / f"{name}.conf"
        (folder / name).mkdir(exist_ok=True)
        lines = lines.replace("NAME", name)  # a folder of its own for what it saves
        self.config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n{lines}\n")
        self.log = folder / f"{name}.log"
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                str(MOSQUITTO), "-c", str(self.config), stdout=log, stderr=log
            )
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            await asyncio.sleep(0.05)

    async def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
            self.process = None


@asynccontextmanager
async def brokers(folder: Path, *names: str, lines: str = "") -> AsyncIterator[list[Mosquitto]]:
    several = [Mosquitto(folder, name, lines) for name in names]
    try:
        for one in several:
            await one.start()
        yield several
    finally:
        for one in several:
            await one.kill()
