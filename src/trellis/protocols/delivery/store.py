"""What a node keeps for others: the replay window, by time and by bytes.

W1  what is kept takes at most `window_bytes`; at a tick, what is older than `window_ms` goes.

What goes because it is old has done its duty. What goes because there is no room was still promised to others:
counted as overflow, never silent.
"""

from __future__ import annotations

from heapq import heappop, heappush

from trellis.protocols.delivery.streams import Entry
from trellis.reached import reached


class Store:
    def __init__(self, window_ms: int, window_bytes: int, tick_ms: int) -> None:
        self.window_ms, self.window_bytes, self.tick_ms = window_ms, window_bytes, tick_ms
        self.bytes = self.count = 0
        self.overflows = 0  # messages that went for want of room
        self._ages: list[int] = []  # a heap of the keys of `_born`
        self._born: dict[int, list[Entry]] = {}  # by the tick of their birth, oldest first within it

    def put(self, entry: Entry) -> None:
        """Keeps it, and drops the oldest while there is too much."""
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
        oldest = (now_ms - self.window_ms) // self.tick_ms
        while self._ages and self._ages[0] < oldest:
            for entry in self._born.pop(heappop(self._ages)):
                self.drop(entry)

    def drop(self, entry: Entry) -> None:
        if entry.is_kept:
            entry.is_kept = False
            entry.stream.entries.pop(entry.sequence, None)
            self.bytes -= entry.size
            self.count -= 1

    def check(self, now_ms: int) -> None:
        assert 0 <= self.bytes <= self.window_bytes, f"W1: {self.bytes} bytes are kept"
        oldest = (now_ms - 2 * self.window_ms) // self.tick_ms - 1  # what comes late stays until the next tick
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
