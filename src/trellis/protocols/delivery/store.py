"""The window: the messages that a node keeps to send them to others, bounded by age and by bytes.

W1  Kept messages take at most `window_bytes`. At each tick, messages older than `window_ms` are dropped.

A message dropped for its age has served its purpose. A message dropped for lack of space was still promised to others,
so it is counted in `overflows`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from trellis.protocols.delivery.streams import Entry
from trellis.reached import reached


class Store:
    """Messages in the window, in buckets by the tick of their publication."""

    def __init__(self, window_ms: int, window_bytes: int, tick_ms: int) -> None:
        self.window_ms, self.window_bytes, self.tick_ms = window_ms, window_bytes, tick_ms
        self.bytes = self.count = 0
        self.overflows = 0  # messages dropped for lack of space
        self.on_drop: Callable[[Entry], None] | None = None  # told of every message that is dropped
        self._ages: list[int] = []  # a heap of the keys of `_born`
        # by the tick in which they were published; within it, in the order of arrival
        self._born: dict[int, list[Entry]] = {}

    def put(self, entry: Entry) -> None:
        """Keep a message, and drop the oldest ones while there are too many bytes."""
        entry.stream.entries[entry.sequence] = entry
        key = entry.born_ms // self.tick_ms
        bucket = self._born.get(key)
        if bucket is None:
            bucket = self._born[key] = []
            heappush(self._ages, key)
        bucket.append(entry)
        self.bytes += entry.size
        self.count += 1
        if self.bytes > self.window_bytes:
            self._make_room()

    def expire(self, now_ms: int) -> None:
        """Drop messages older than the window."""
        oldest = (now_ms - self.window_ms) // self.tick_ms
        while self._ages and self._ages[0] < oldest:
            for entry in self._born.pop(heappop(self._ages)):
                self.drop(entry)

    def drop(self, entry: Entry) -> None:
        """Drop a message, if it is still kept."""
        if entry.is_kept:
            entry.is_kept = False
            entry.stream.entries.pop(entry.sequence, None)
            self.bytes -= entry.size
            self.count -= 1
            if self.on_drop is not None:
                self.on_drop(entry)

    def check(self, now_ms: int) -> None:
        assert 0 <= self.bytes <= self.window_bytes, f"W1: {self.bytes} bytes are kept"
        # a message that arrives late stays until the next tick
        oldest = (now_ms - 2 * self.window_ms) // self.tick_ms - 1
        assert not self._ages or self._ages[0] >= oldest, "W1: something is kept for longer than two windows"

    def _make_room(self) -> None:
        reached("a window overflows")
        while self.bytes > self.window_bytes:
            bucket = self._born[self._ages[0]]
            cut = 0
            while cut < len(bucket) and self.bytes > self.window_bytes:
                self.overflows += bucket[cut].is_kept
                self.drop(bucket[cut])
                cut += 1
            del bucket[:cut]
            if not bucket:
                del self._born[heappop(self._ages)]
