"""`trellis node` as child processes on loopback. They end with their parent, however it ends (`live/parent.py`)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trellis.errors import TrellisError

_UP_S = 60.0  # longest time for a start, on a busy machine
_TOLD_LINES = 5  # lines from the log of a node that has failed
ANY = "127.0.0.1:0"


class NodeFailed(TrellisError):
    """A process did not come up, or ended although it was not killed."""


class NodeProcess:
    """The process of one incarnation of a node."""

    def __init__(self, name: str, folder: Path, label: str) -> None:
        """`label` names its files."""
        self.name = name
        self.log = folder / f"{label}.log"
        self.config = folder / f"{label}.toml"
        self.about: dict[str, Any] = {}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, config: Mapping[str, object]) -> None:
        """Start the process. Return when it is up. Keys of tables in `config` have a dot."""
        self.config.write_text(to_toml({"name": self.name, **config}), "utf-8")
        command = [sys.executable, "-m", "trellis", "node", "--json", "--config", str(self.config)]
        with self.log.open("ab") as log:
            # A session of its own, so that Ctrl-C reaches only the parent, which then ends the nodes.
            self._process = await asyncio.create_subprocess_exec(
                *command, "--parent", str(os.getpid()), stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
                env={key: value for key, value in os.environ.items() if not key.startswith("TRELLIS_")},
            )  # fmt: skip
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_UP_S):
                line = await self._process.stdout.readline()
            self.about = json.loads(line)
        except (TimeoutError, ValueError):
            self.signal(signal.SIGKILL)
            raise NodeFailed(f"node {self.name} did not come up: {self.last_words()}") from None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end of the process. Return its exit code, -9 if it was killed."""
        assert self._process is not None
        return await self._process.wait()

    def last_words(self) -> str:
        try:
            lines = self.log.read_text("utf-8", "replace").splitlines()
        except OSError:
            return "it has no log"
        return " | ".join(lines[-_TOLD_LINES:]) or "it said nothing"


def to_toml(config: Mapping[str, object]) -> str:
    """Return a configuration as TOML. Values are text, numbers, booleans or lists of text."""
    return "".join(f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in config.items())
