"""Real Mosquitto brokers as child processes on loopback, with generated configurations.

What a sidecar needs of Mosquitto is in the configuration, and explained in docs/operating.md. Brokers end with us as
nodes do: on Linux the kernel sees to it (`live/parent.py`), however we go.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from trellis.errors import InputError
from trellis.fleet.processes import NodeFailed

_UP_S = 30.0
_TRIES = 5  # ports that somebody else takes in the moment
_SYSTEM = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"  # where it is, and users do not look
_INSTALL = (
    "install it (Debian, Ubuntu: apt install mosquitto; Fedora: dnf install mosquitto; macOS: brew install mosquitto)"
)

# `exec` keeps what die_with has asked of the kernel.
_START = """import os, sys
from trellis.live.parent import die_with
die_with(int(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])"""


def find_mosquitto() -> str:
    """Where it is; an error with the remedy where it is not."""
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{_SYSTEM}")
    if found is None:
        raise InputError("--broker", "mosquitto is not installed", _INSTALL)
    return found


def mosquitto_config(port: int, folder: Path, user: str | None = None) -> str:
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "persistence true",  # sessions, and what waits in them, outlive the process
        f"persistence_location {folder}/",
        "autosave_interval 1",
        "max_inflight_messages 1000",  # by default 20: so many a round trip is all that a sidecar may give it
        "max_queued_messages 0",  # what waits for a sidecar that is away is not dropped
        "log_dest stdout",
        "log_dest topic",  # so the sidecar learns what clients want
        *(f"log_type {kind}" for kind in ("subscribe", "unsubscribe", "notice", "warning", "error")),
        *([f"user {user}"] if user else []),  # else root's broker becomes somebody who cannot write there
    ]
    return "".join(f"{line}\n" for line in lines)


class Mosquitto:
    """One broker through its lives: its port and its files stay."""

    def __init__(self, program: str, folder: Path, label: str) -> None:
        self.program, self.folder = program, folder / f"{label}.mosquitto"
        self.config, self.log = folder / f"{label}.mosquitto.conf", folder / f"{label}.mosquitto.log"
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it takes connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(_TRIES if not self.port else 1):
            port = self.port or _free_port()
            self.config.write_text(mosquitto_config(port, self.folder, _user()), "utf-8")
            if await self._starts(port):
                self.port = port
                return
        raise NodeFailed(f"mosquitto did not come up: {self.last_words()}")

    async def _starts(self, port: int) -> bool:
        command = [sys.executable, "-c", _START, str(os.getpid()), self.program, "-c", str(self.config)]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(_UP_S):
                while self._process.returncode is None:
                    with suppress(OSError):
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                        writer.close()
                        return self._process.returncode is None
                    await asyncio.sleep(0.05)
        await self.kill()
        return False

    async def kill(self) -> None:
        """kill -9, and gone when this returns."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self._process.wait()

    def last_words(self) -> str:
        with suppress(OSError):
            return " | ".join(self.log.read_text("utf-8", "replace").splitlines()[-3:])
        return "it has no log"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def _user() -> str | None:
    import pwd

    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return None
