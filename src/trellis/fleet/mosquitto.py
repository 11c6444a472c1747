"""Real Mosquitto brokers as child processes on loopback, with generated configurations.

docs/operating.md explains the keys of the configuration that a sidecar needs. Brokers end with this process, as nodes
do: on Linux the kernel kills them, however this process ends (`live/parent.py`).
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
_TRIES = 5  # ports to try, since another process may take a free port before the broker does
_SYSTEM = "/usr/sbin:/usr/local/sbin:/opt/homebrew/sbin"  # where packages put it; not on the PATH of most users
_INSTALL = (
    "install it (Debian, Ubuntu: apt install mosquitto; Fedora: dnf install mosquitto; macOS: brew install mosquitto)"
)

# `exec` keeps what `die_with` has requested of the kernel.
_START = """import os, sys
from trellis.live.parent import die_with
die_with(int(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])"""


def find_mosquitto() -> str:
    """Return the path of the program. Raise an InputError that says how to install it if there is none."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{_SYSTEM}")
    if program is None:
        raise InputError("--broker", "mosquitto is not installed", _INSTALL)
    return program


def mosquitto_config(port: int, folder: Path, user: str | None = None) -> str:
    """Return the text of a configuration for a broker that has a sidecar."""
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "persistence true",  # Sessions and the messages in them outlive the process.
        f"persistence_location {folder}/",
        "autosave_interval 1",
        "max_inflight_messages 1000",  # The default of 20 would limit a sidecar to so many messages a round trip.
        "max_queued_messages 0",  # Messages for a sidecar that is down are not dropped.
        "log_dest stdout",
        "log_dest topic",  # The sidecar learns the subscriptions of clients from it.
        *(f"log_type {kind}" for kind in ("subscribe", "unsubscribe", "notice", "warning", "error")),
        *([f"user {user}"] if user else []),  # A broker that root starts would else become a user without rights here.
    ]
    return "".join(f"{line}\n" for line in lines)


class Mosquitto:
    """One broker, which may be started several times with the same port and files."""

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
        """Start the broker. Return when it accepts connections."""
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
        """Kill the broker (SIGKILL). Return when it has ended."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self._process.wait()

    def last_words(self) -> str:
        with suppress(OSError):
            return " | ".join(self.log.read_text("utf-8", "replace").splitlines()[-3:])
        return "it has no log"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _user() -> str | None:
    import pwd

    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return None
