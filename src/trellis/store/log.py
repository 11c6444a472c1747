"""The log of a store: records in segments, group commit, recovery.

    log = Log(disk, segment_bytes, new_salt, snapshot)
    for number, head in log.restored(): ...      # the records that the last process left
    log.begin()                                  # write a snapshot, and forget segments that nothing needs
    number = log.append(head, body)              # buffered
    batch = log.take_batch()                     # all records that were appended since the last batch
    batch.write(disk)                            # may take long: another thread may do it
    log.written(batch)                           # from now on everything below `batch.upto` survives a loss of power

Only one batch is written at a time. Records that are appended meanwhile wait for the next batch: that is the group
commit. It needs no timer, and a single record does not wait.

L1  A record is certain to survive once `written` was called with a batch that has it.
L2  A segment that is not the newest one was synced as a whole before the next one was begun. So bytes that are no
    record are damage there. At the end of the newest segment they are a torn write, and nothing that was certain.
L3  Each segment has a snapshot of everything that must be known besides the records that count (`keeps`). So any other
    segment in which no record counts can be removed.
L4  An index is written after its segment was synced.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from trellis.store.disk import Disk
from trellis.store.records import (
    BODY_BYTES_MAX,
    DAMAGED,
    HEAD_BYTES_MAX,
    HEADER_BYTES,
    INDEX,
    PREFIX_BYTES,
    SEGMENT,
    Scan,
    file_name,
    header,
    make_index,
    number_of,
    read_index,
    read_record,
    record,
    salt_of,
    scan,
)

Snapshot = Callable[[], Iterable[tuple[bytes, bytes]]]


class NoSpace(Exception):
    """The disk took no more bytes. The rest of the batch is kept, and can be written again later."""


@dataclass
class Step:
    """One operation of a batch."""

    what: Literal["append", "sync", "index", "remove"]
    name: str
    data: bytes = b""
    size: int = 0  # bytes of the file before an append


@dataclass
class Batch:
    """Records that are written and synced together."""

    upto: int  # All records with numbers below this one are on the disk when the batch is written.
    steps: list[Step]
    size: int = 0  # bytes of all appends
    _done: int = 0  # steps that were carried out

    def write(self, disk: Disk) -> None:
        """Carry out all steps. Raise NoSpace if the disk is full; then call it again later. Raise SyncFailed."""
        while self._done < len(self.steps):
            step = self.steps[self._done]
            match step.what:
                case "append":
                    self._append(disk, step)
                case "sync":
                    disk.sync(step.name)
                case "index":
                    disk.close_file(file_name(number_of(step.name, INDEX) or 0))
                    try:
                        disk.write_whole(step.name, step.data)
                    except OSError:
                        disk.remove(step.name)  # it only saves time at the next start
                case "remove":
                    disk.remove(step.name)
            self._done += 1

    def _append(self, disk: Disk, step: Step) -> None:
        try:
            disk.append(step.name, step.data)
        except OSError as error:
            if disk.size(step.name) > step.size:
                disk.cut(step.name, step.size)
            raise NoSpace(f"{step.name}: {error.strerror or error}") from error


@dataclass
class Segment:
    """One segment: its records, and how many of them count."""

    number: int
    salt: int
    first: int  # the number of its first record
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("L"))  # bytes of the records
    size: int = 0  # bytes, also those that are not written yet
    live: int = 0  # records that still count
    is_new: bool = False  # It is appended to by this process.
    has_snapshot: bool = False  # L3
    heads: list[bytes] = field(default_factory=list)  # of the newest segment, for its index

    @property
    def name(self) -> str:
        return file_name(self.number)


@dataclass
class Recovered:
    """The result of `restored`."""

    records: int = 0
    torn_bytes: int = 0  # cut off at the end of the newest segment
    damaged: list[str] = field(default_factory=list)  # segments that were set aside
    rescued: int = 0  # valid records of damaged segments, which were written again
    rebuilt: int = 0  # indexes that were missing or did not fit


class Log:
    """An append-only log of records, in segments."""

    def __init__(self, disk: Disk, segment_bytes: int, new_salt: Callable[[], int], snapshot: Snapshot) -> None:
        self.disk, self.segment_bytes = disk, segment_bytes
        self._new_salt, self._snapshot = new_salt, snapshot
        self.segments: list[Segment] = []  # in the order of their record numbers
        self.recovered = Recovered()
        self.next = 0  # the number of the next record
        # Restored records from this number on are older than those before, and may be outdated.
        self.rescued_from = 1 << 62
        self.durable = 0  # Records below this number are certain to survive (L1).
        self.unreadable = 0  # records that `read` could not return
        self._buffer: list[bytes] = []  # bytes of the newest segment that no batch has taken yet
        self._steps: list[Step] = []
        self._written = 0  # bytes of the newest segment that batches have taken
        self._rescued: list[tuple[bytes, bytes]] = []
        self.is_writing = False
        self.can_forget = False  # There may be a segment in which no record counts any more.
        self._to_set_aside: list[str] = []

    # Opening

    def restored(self) -> Iterator[tuple[int, bytes]]:
        """Read all segments. Yield the numbers and heads of their records, in the order in which they were written."""
        numbers = [number for name in self.disk.names() if (number := number_of(name)) is not None]
        for number in numbers:
            name, is_newest = file_name(number), number == numbers[-1]
            salt, scanned = self._read_segment(number, is_newest)
            if salt is None or scanned is None:
                if self.disk.size(name):
                    self._to_set_aside.append(name)
                continue
            segment = Segment(number, salt, self.next, scanned.offsets, size=scanned.size)
            lengths = zip(scanned.heads, scanned.bodies, strict=True)
            segment.sizes = array("L", [PREFIX_BYTES + len(head) + body for head, body in lengths])
            self.segments.append(segment)
            self.next += len(scanned.heads)
            yield from enumerate(scanned.heads, segment.first)
        self._begin_segment(1 + max(numbers, default=0))
        self.rescued_from = self.next
        for head, body in self._rescued:
            yield self._append(head, body), head
        self.recovered.records, self._rescued = self.next, []

    def begin(self) -> None:
        """Write a snapshot of what was restored. Records that count were named with `keep` before."""
        self._append_snapshot()

    def _read_segment(self, number: int, is_newest: bool) -> tuple[int | None, Scan | None]:
        """Return the salt of a segment and what it holds. Its valid records go to `_rescued` if it is damaged."""
        name, index_name = file_name(number), file_name(number, INDEX)
        size = self.disk.size(name)
        scanned: Scan | None = None
        try:
            salt = salt_of(self.disk.read(name, 0, HEADER_BYTES), number)
            if salt is not None and self.disk.size(index_name):
                scanned = read_index(self.disk.read(index_name), number, salt, size)
            if scanned is not None:
                return salt, scanned
            data = self.disk.read(name)
        except OSError:
            self.recovered.damaged.append(name)
            return None, None
        scanned = scan(data, number)
        if is_newest and not scanned.is_damaged:
            if scanned.torn_bytes:
                self.recovered.torn_bytes += scanned.torn_bytes
                scanned.size -= scanned.torn_bytes
                self.disk.cut(name, scanned.size)
            if salt is None or scanned.size <= HEADER_BYTES:
                self._remove_empty(name)
                return None, None
        elif not size:
            self._remove_empty(name)  # it was removed before, and came back after a loss of power
            return None, None
        elif scanned.bad:
            self.recovered.damaged.append(name)
            for head, offset, length in zip(scanned.heads, scanned.offsets, scanned.bodies, strict=True):
                start = offset + PREFIX_BYTES + len(head)
                self._rescued.append((head, data[start : start + length]))
            self.recovered.rescued += len(scanned.heads)
            return None, None
        assert salt is not None
        self.recovered.rebuilt += 1
        self.disk.sync(name)  # it may have been read from pages that are not on the disk
        self._steps.append(Step("index", index_name, make_index(number, salt, scanned.size, scanned)))
        return salt, scanned

    def _remove_empty(self, name: str) -> None:
        """Remove a segment in which nothing was certain. If its name comes back, it is empty."""
        self.disk.cut(name, 0)
        self.disk.sync(name)
        self.disk.remove(name)

    # Appending

    def append(self, head: bytes, body: bytes = b"", *, keeps: bool = True) -> int:
        """Add a record. Return its number. `keeps`: it counts until `release` is called with its number."""
        newest = self.segments[-1]
        if newest.size >= self.segment_bytes:
            self._end_segment()
            self._begin_segment(newest.number + 1)
            self._append_snapshot()
        number = self._append(head, body)
        self.segments[-1].live += keeps
        return number

    def _append(self, head: bytes, body: bytes) -> int:
        assert len(head) <= HEAD_BYTES_MAX, "a head is too large"
        assert len(body) <= BODY_BYTES_MAX, "a body is too large"
        newest = self.segments[-1]
        data = record(newest.salt, newest.size, head, body)
        newest.offsets.append(newest.size)
        newest.sizes.append(len(data))
        newest.heads.append(head)
        newest.size += len(data)
        self._buffer.append(data)
        self.next += 1
        return self.next - 1

    def _append_snapshot(self) -> None:
        for head, body in self._snapshot():
            self._append(head, body)
        self.segments[-1].has_snapshot = True

    def _begin_segment(self, number: int) -> None:
        salt = self._new_salt()
        segment = Segment(number, salt, self.next, size=HEADER_BYTES, is_new=True)
        self.segments.append(segment)
        self._buffer, self._written = [header(number, salt)], 0

    def _end_segment(self) -> None:
        """Write the rest of the newest segment, sync it, and then write its index (L2, L4)."""
        self._flush()
        newest = self.segments[-1]
        scanned = Scan(newest.heads, newest.offsets, size=newest.size)
        lengths = zip(newest.heads, newest.sizes, strict=True)
        scanned.bodies = array("L", [size - PREFIX_BYTES - len(head) for head, size in lengths])
        index = make_index(newest.number, newest.salt, newest.size, scanned)
        self._steps.append(Step("index", file_name(newest.number, INDEX), index))
        newest.heads = []

    def _flush(self) -> None:
        """Turn the buffer into steps: append, then sync."""
        if self._buffer:
            newest, data = self.segments[-1], b"".join(self._buffer)
            self._steps += [Step("append", newest.name, data, self._written), Step("sync", newest.name)]
            self._written += len(data)
            self._buffer = []

    # Group commit

    @property
    def is_due(self) -> bool:
        """Whether there is something to write, and no batch is being written."""
        return bool(self._buffer or self._steps) and not self.is_writing

    def take_batch(self) -> Batch:
        """Return everything that was appended since the last batch."""
        assert not self.is_writing, "only one batch is written at a time"
        self.is_writing = True
        self._flush()
        steps, self._steps = self._steps, []
        return Batch(self.next, steps, sum(len(step.data) for step in steps if step.what == "append"))

    def written(self, batch: Batch) -> None:
        """Note that a batch is on the disk, set damaged segments aside, and remove segments that nothing needs."""
        self.is_writing = False
        self.durable = batch.upto
        if self.segments[-1].has_snapshot:
            for name in self._to_set_aside:  # what was valid in them is written again now
                self.disk.rename(name, name.removesuffix(SEGMENT) + DAMAGED)
                self.disk.remove(name.removesuffix(SEGMENT) + INDEX)
            self._to_set_aside = []
            self._remove_unneeded()

    def _remove_unneeded(self) -> None:
        newest = self.segments[-1]
        if newest.first >= self.durable:
            return  # Its snapshot is not certain yet (L3).
        self.can_forget = False
        gone = [segment for segment in self.segments[:-1] if not segment.live]
        for segment in gone:
            self._steps += [Step("remove", file_name(segment.number, INDEX)), Step("remove", segment.name)]
        if gone:
            self.segments = [segment for segment in self.segments if segment.live or segment is newest]

    # Records that count

    def keep(self, number: int) -> None:
        """Let a restored record count until it is released."""
        self._segment_of(number).live += 1

    def release(self, numbers: Iterable[int]) -> None:
        """Let records count no more. Their segments are removed when no record in them counts."""
        for number in numbers:
            segment = self._segment_of(number)
            segment.live -= 1
            self.can_forget = self.can_forget or not segment.live
            assert segment.live >= 0, f"record {number} was released twice"

    def forget_released(self) -> int:
        """Remove segments in which no record counts, with the next batch. Return the bytes of the others."""
        if self.segments[-1].has_snapshot:
            self._remove_unneeded()
        return self.bytes

    def read(self, number: int) -> bytes | None:
        """Return the body of a record; None if it is damaged or cannot be read. It must be on the disk already."""
        segment = self._segment_of(number)
        index = number - segment.first
        offset, size = segment.offsets[index], segment.sizes[index]
        try:
            data = self.disk.read(segment.name, offset, size)
        except OSError:
            self.unreadable += 1
            return None
        scanned = read_record(segment.salt, offset, data)
        if scanned is None:
            self.unreadable += 1
            return None
        return scanned[1]

    @property
    def bytes(self) -> int:
        """Bytes of all segments, also those that are not written yet."""
        return sum(segment.size for segment in self.segments)

    def oldest(self) -> range | None:
        """Return the numbers of the records of the oldest segment; None if there is only the newest one."""
        if len(self.segments) < 2:
            return None
        oldest = self.segments[0]
        return range(oldest.first, oldest.first + len(oldest.offsets))

    def _segment_of(self, number: int) -> Segment:
        index = bisect_right(self.segments, number, key=lambda segment: segment.first) - 1
        return self.segments[index]
