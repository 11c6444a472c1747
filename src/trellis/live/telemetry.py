"""What a node tells about itself for planning: who subscribes, and how often it publishes, as JSON lines.

    {"time": 1700000000.0, "node": "a", "event": "join"}
    {"time": 1700000000.0, "node": "a", "event": "subscribe", "topic": "t"}
    {"time": 1700000010.0, "node": "a", "event": "publish", "topic": "t", "count": 7, "bytes": 896, "seconds": 10.0}

`trellis pipeline pairs` makes interests of them, `rates` publication rates, `churn` a trace. Everything is looked at
once in `interval_s`: subscriptions as the difference to what was told last, publications as sums. So however busy the
node is, it writes at most one line per topic and interval and kind. When a file is full it is put aside, and the next
one begins with all that is in force. A disk that fails never costs the node. What could not be written is told in the
next interval: subscriptions as they are then, publications as sums over the longer time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from trellis.errors import InputError
from trellis.live.clock import wall_s

log = logging.getLogger("trellis.live")

TOPICS_MAX = 100_000  # with publications in one interval; more are counted as left out


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str = ""
    """Where the lines go. None unless said."""

    interval_s: float = 10.0
    """Raising it makes fewer lines, and coarser times."""

    file_bytes: int = 16 << 20
    """A larger file becomes FILE.1, and that FILE.2, ..."""

    files_max: int = 4
    """Files kept; the oldest goes."""

    def __post_init__(self) -> None:
        for field in ("interval_s", "file_bytes", "files_max"):
            if not getattr(self, field) > 0:
                raise InputError(field, f"{getattr(self, field)}", "give more than 0")


class Telemetry:
    def __init__(
        self,
        config: TelemetryConfig,
        node: str,
        wanted: Callable[[], Collection[str]],
        clock: Callable[[], float] = wall_s,
    ) -> None:
        """`wanted` tells what the node subscribes to now."""
        self.config, self.node, self.wanted, self.clock = config, node, wanted, clock
        self.path = Path(config.file)
        self.counters: Counter[str] = Counter()
        self._told: set[str] = set()  # Subscriptions as the file has them.
        self._begins = True  # The next lines begin a file, or follow those of an earlier incarnation in it.
        self._published: dict[str, list[int]] = {}  # topic -> messages and bytes since `_since`
        self._since = clock()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.look()
        self._wait()

    def published(self, topic: str, size: int) -> None:
        found = self._published.get(topic)
        if found is None:
            if len(self._published) >= TOPICS_MAX:
                self.counters["left_out"] += 1
                return
            found = self._published[topic] = [0, 0]
        found[0] += 1
        found[1] += size

    def look(self) -> None:
        """Once per interval."""
        wanted = set(self.wanted())
        now = self.clock()
        if self._write([*self._changes(wanted), *self._sums(now)]):
            self._told = wanted
            self._since, self._published = now, {}

    def close(self, *, in_order: bool) -> None:
        """A crash says nothing: the next life's `join` tells that there was one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            if in_order:
                self._write([*self._sums(self.clock()), self._line("leave")])

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.config.interval_s, self._due)

    def _due(self) -> None:
        self._wait()
        self.look()

    def _changes(self, wanted: set[str]) -> Iterator[bytes]:
        """Return what the file does not have yet."""
        for topic in sorted(self._told - wanted):
            yield self._line("unsubscribe", topic=topic)
        for topic in sorted(wanted - self._told):
            yield self._line("subscribe", topic=topic)

    def _sums(self, now: float) -> Iterator[bytes]:
        """Return what was published since the file took the last sums."""
        seconds = max(now - self._since, 0.001)
        for topic, (count, size) in sorted(self._published.items()):
            yield self._line("publish", topic=topic, count=count, bytes=size, seconds=round(seconds, 3))

    def _line(self, event: str, **more: object) -> bytes:
        return msgspec.json.encode({"time": round(self.clock(), 3), "node": self.node, "event": event, **more}) + b"\n"

    def _write(self, lines: list[bytes]) -> bool:
        """Append lines to the file, all or none. Return whether it has them now."""
        if not lines and not self._begins:
            return True
        try:
            if self._is_full():
                self._turn()
                self._begins = True
            if self._begins:
                in_force = [self._line("subscribe", topic=one) for one in sorted(self._told)]
                lines = [self._line("join"), *in_force, *lines]
            self._append(b"".join(lines))
        except OSError as error:
            if not self.counters["failed"]:
                log.warning("%s: no telemetry: %s: %s", self.node, self.path, error.strerror)
            self.counters["failed"] += 1
            return False
        self.counters["lines"] += len(lines)
        self._begins = False
        return True

    def _append(self, data: bytes) -> None:
        """Where the disk is full in the midst of it, take back what was written: half a line would break the file."""
        with self.path.open("ab", buffering=0) as file:
            size = file.seek(0, 2)
            try:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(size)
                raise

    def _is_full(self) -> bool:
        with suppress(FileNotFoundError):
            return self.path.stat().st_size >= self.config.file_bytes
        return False

    def _turn(self) -> None:
        for place in range(self.config.files_max - 1, 0, -1):
            older = self.path if place == 1 else self._aside(place - 1)
            if older.exists():
                older.replace(self._aside(place))
        self.path.unlink(missing_ok=True)  # where only one is kept

    def _aside(self, place: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{place}")
