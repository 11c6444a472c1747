"""The file in which a sidecar keeps its broker's subscriptions.  [docs/mqtt.md, What a sidecar remembers]

It is written whole or not at all. A file that cannot be understood is renamed, and never stops the node.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from trellis.live.clock import wall_s
from trellis.protocols.mqtt.learn import Learned

BYTES_MAX = 64 << 20  # `SubscriptionLog` keeps 8 Mi letters, and a letter takes at most six bytes.
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]")


class Damaged(Exception):
    """The file contains something that we have not written."""


class LearnedFile:
    """One sidecar's file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Learned | None:
        """Return what was saved, or None if there is no file. Raises `OSError` or `Damaged`."""
        try:
            with self.path.open("rb") as file:
                data = file.read(BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        if len(data) > BYTES_MAX:
            raise Damaged(f"it has more than {BYTES_MAX} bytes")
        try:
            learned = msgspec.json.decode(data, type=Learned)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Damaged(str(error)) from None
        if learned.version != 1:
            raise Damaged(f"its version is {learned.version}, and we know 1")
        return learned

    def set_aside(self) -> Path:
        """Rename a damaged file, so that it can be examined. Return its new name."""
        aside = self.path.with_name(f"{self.path.name}.damaged")
        self.path.replace(aside)
        return aside

    def write(self, learned: Learned) -> None:
        """Replace the file. When this returns, a crash of the machine does not lose it. Raises `OSError`."""
        data = msgspec.json.encode(learned)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _stamp(part)
            part.replace(self.path)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def touch(self) -> None:
        """Note that the log is still being read: the file's time is when it was last read."""
        with suppress(OSError):
            _stamp(self.path)

    def touched(self) -> float | None:
        """Return when the log was last read, in seconds since 1970; None if there is no file."""
        with suppress(OSError):
            return self.path.stat().st_mtime
        return None

    def remove(self) -> bool:
        """Delete the file. Return whether there was one. Raises `OSError`."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True


def _stamp(path: Path) -> None:
    """Set a file's time by the clock that it is compared with."""
    now_s = wall_s()
    os.utime(path, (now_s, now_s))


def learned_path(given: str, client: str, host: str, port: int) -> Path:
    """Return the file of a sidecar: the configured one, or one in the service's or the user's state folder."""
    if given:
        return Path(given).expanduser()
    mark = blake2b(f"{client}@{host}:{port}".encode("utf-8", "replace"), digest_size=6).hexdigest()
    return _state_folder() / f"{_PLAIN.sub('_', client)[:60]}-{mark}.learned.json"


def _state_folder() -> Path:
    service = os.environ.get("STATE_DIRECTORY", "").split(":")[0]  # systemd: StateDirectory=
    if service:
        return Path(service)
    user = os.environ.get("XDG_STATE_HOME", "")
    return (Path(user) if user else Path("~/.local/state").expanduser()) / "trellis"
