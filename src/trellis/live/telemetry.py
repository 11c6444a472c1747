"""Write what a node subscribes to and how much it publishes to a file of JSON lines, as data for planning.

    {"time": 1700000000.0, "node": "a", "event": "join"}
    {"time": 1700000000.0, "node": "a", "event": "subscribe", "topic": "t"}
    {"time": 1700000010.0, "node": "a", "event": "publish", "topic": "t", "count": 7, "bytes": 896, "seconds": 10.0}

`trellis pipeline pairs` makes interests from these files, `rates` publication rates, and `churn` a churn trace.

Lines are written once in `interval_s`: the subscriptions that have changed since the last lines, and for each topic the
sum of its publications. So even a busy node writes at most one line for each topic, interval and event.

When the file is full, it is renamed, and a new file begins. Each file begins with a `join` line and all present
subscriptions, so that it can be read without the others.

If the disk fails, the node goes on. The next interval then covers the time since the last lines that were written:
subscriptions as they are then, and sums over the longer time.
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

TOPICS_MAX = 100_000  # Publications of one interval on further topics are only counted (`left_out`).


class TelemetryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    file: str = ""
    """The file that lines are written to. Empty: none."""

    interval_s: float = 10.0
    """Lines are written this often. Raising it makes fewer lines and less precise times."""

    file_bytes: int = 16 << 20
    """When FILE is larger, it is renamed to FILE.1, an earlier FILE.1 to FILE.2, and so on."""

    files_max: int = 4
    """Number of files that are kept, the present one included. The oldest is deleted."""

    def __post_init__(self) -> None:
        for field in ("interval_s", "file_bytes", "files_max"):
            if not getattr(self, field) > 0:
                raise InputError(field, f"{getattr(self, field)}", "give more than 0")


class Telemetry:
    """The telemetry of one node."""

    def __init__(
        self,
        config: TelemetryConfig,
        node: str,
        wanted: Callable[[], Collection[str]],
        clock: Callable[[], float] = wall_s,
    ) -> None:
        """`wanted` returns the topics that the node subscribes to now. `clock` returns seconds since 1970."""
        self.config, self.node, self.wanted, self.clock = config, node, wanted, clock
        self.path = Path(config.file)
        self.counters: Counter[str] = Counter()
        self._told: set[str] = set()  # subscriptions that the file shows
        self._begins = True  # The next lines begin a file, or are the first ones of this incarnation.
        self._published: dict[str, list[int]] = {}  # topic -> numbers of messages and bytes since `_since`
        self._since = clock()  # when the last sums were written
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Write the first lines, and go on once in `interval_s`."""
        self.look()
        self._wait()

    def published(self, topic: str, size: int) -> None:
        """Count a publication of `size` bytes."""
        counts = self._published.get(topic)
        if counts is None:
            if len(self._published) >= TOPICS_MAX:
                self.counters["left_out"] += 1
                return
            counts = self._published[topic] = [0, 0]
        counts[0] += 1
        counts[1] += size

    def look(self) -> None:
        """Write the changes and sums since the last lines. Called once per interval."""
        wanted = set(self.wanted())
        now = self.clock()
        if self._write([*self._changes(wanted), *self._sums(now)]):
            self._told = wanted
            self._since, self._published = now, {}

    def close(self, *, in_order: bool) -> None:
        """Stop. `in_order`: write the last sums and a `leave` line.

        After a crash there is no `leave` line. The next incarnation's `join` line then shows that there was a crash.
        """
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
        """Yield lines for the subscriptions that have changed since the last lines."""
        for topic in sorted(self._told - wanted):
            yield self._line("unsubscribe", topic=topic)
        for topic in sorted(wanted - self._told):
            yield self._line("subscribe", topic=topic)

    def _sums(self, now: float) -> Iterator[bytes]:
        """Yield one line for each topic with publications since the last sums."""
        seconds = max(now - self._since, 0.001)
        for topic, (count, size) in sorted(self._published.items()):
            yield self._line("publish", topic=topic, count=count, bytes=size, seconds=round(seconds, 3))

    def _line(self, event: str, **more: object) -> bytes:
        return msgspec.json.encode({"time": round(self.clock(), 3), "node": self.node, "event": event, **more}) + b"\n"

    def _write(self, lines: list[bytes]) -> bool:
        """Append all lines to the file, or none if the disk fails. Return whether they were written."""
        if not lines and not self._begins:
            return True
        try:
            if self._is_full():
                self._turn()
                self._begins = True
            if self._begins:
                in_force = [self._line("subscribe", topic=topic) for topic in sorted(self._told)]
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
        """Append to the file. If that fails halfway, remove what was written: half a line would break the file."""
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
        """Rename the full file and those before it. The oldest is overwritten."""
        for number in range(self.config.files_max - 1, 0, -1):
            older = self.path if number == 1 else self._aside(number - 1)
            if older.exists():
                older.replace(self._aside(number))
        self.path.unlink(missing_ok=True)  # only if `files_max` is 1; else it was renamed

    def _aside(self, number: int) -> Path:
        """Return the path of the renamed file with this number."""
        return self.path.with_name(f"{self.path.name}.{number}")
