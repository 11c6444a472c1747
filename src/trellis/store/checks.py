"""Check a store, copy it and read its messages, also while a node uses it.  [docs/durable.md]

Segments are only appended to, and removed as a whole. So a reader needs no lock. It may find the end of the newest
segment in the middle of a write, and a segment may be gone when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trellis.store.disk import Disk
from trellis.store.records import (
    DAMAGED,
    HEADER_BYTES,
    INDEX,
    PREFIX_BYTES,
    Scan,
    file_name,
    number_of,
    read_index,
    salt_of,
    scan,
)


@dataclass
class CheckedSegment:
    """The result of checking one segment."""

    name: str
    size: int
    records: int
    bad: list[tuple[int, int]] = field(default_factory=list)  # bytes that are no record: offset, end
    has_index: bool = False
    is_newest: bool = False
    why: str = ""  # why it could not be read

    @property
    def is_damaged(self) -> bool:
        """Whether it has lost something that was promised. The end of the newest segment may be half written."""
        if self.is_newest and not self.why:
            return any(end < self.size for _, end in self.bad)
        return bool(self.bad or self.why)


def look(disk: Disk) -> Iterator[CheckedSegment]:
    """Check every record of every segment. An index that does not fit is as good as none."""
    numbers = [number for name in disk.names() if (number := number_of(name)) is not None]
    for number in numbers:
        name, is_newest = file_name(number), number == numbers[-1]
        try:
            data = disk.read(name)
        except FileNotFoundError:
            continue  # the node has removed it
        except OSError as error:
            yield CheckedSegment(name, 0, 0, is_newest=is_newest, why=error.strerror or str(error))
            continue
        scanned = scan(data, number)
        yield CheckedSegment(
            name, len(data), len(scanned.heads), scanned.bad, _has_index(disk, number, data), is_newest
        )


def set_aside(disk: Disk) -> list[str]:
    """Return the names of damaged segments that a node has set aside."""
    return [name for name in disk.names() if name.endswith(DAMAGED)]


def records(disk: Disk) -> Iterator[tuple[bytes, bytes]]:
    """Yield heads and bodies of all valid records, in the order in which they were written."""
    for name in disk.names():
        number = number_of(name)
        if number is None:
            continue
        try:
            data = disk.read(name)
        except OSError:
            continue
        scanned = scan(data, number)
        for head, offset, length in zip(scanned.heads, scanned.offsets, scanned.bodies, strict=True):
            start = offset + PREFIX_BYTES + len(head)
            yield head, data[start : start + length]


def copy(source: Disk, target: Disk) -> tuple[int, int]:
    """Copy a store, oldest segments first, also while a node uses it. Return the numbers of segments and bytes.

    Segments that the node begins meanwhile are copied too. The copy is what a crash at the end of the copying could
    have left, so a node can be started on it.
    """
    done: dict[int, int] = {}
    while True:
        numbers = [number for name in source.names() if (number := number_of(name)) is not None]
        left = [number for number in numbers if number not in done]
        if not left:
            return len(done), sum(done.values())
        if done:  # the one that was the newest may have grown since it was copied
            left = [max(done), *left]
        for number in left:
            try:
                data = source.read(file_name(number))
            except FileNotFoundError:
                done.setdefault(number, 0)
                continue
            target.write_whole(file_name(number), data)
            done[number] = len(data)


def _has_index(disk: Disk, number: int, data: bytes) -> bool:
    name, salt = file_name(number, INDEX), salt_of(data[:HEADER_BYTES], number)
    if salt is None or not disk.size(name):
        return False
    try:
        scanned: Scan | None = read_index(disk.read(name), number, salt, len(data))
    except OSError:
        return False
    return scanned is not None
