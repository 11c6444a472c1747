"""The bytes of a segment and of its index.

A segment is a header and records. A record has a head, which says what it is, and a body, such as a payload:

    mark (2) | bytes of the head (2) | bytes of the body (4) | CRC-32 (4) | head | body

The checksum covers the three fields before it, the head and the body. It begins with a number that depends on the
segment's salt and on the record's offset. So a record that was moved, or that belongs to another segment, is not valid,
and a client cannot write a payload that would be taken for a record.

An index has the heads of all records of a complete segment, with offsets and sizes, so that a store is opened without
reading bodies. It is written after its segment was synced, and names the segment's salt and size. An index that does
not fit its segment is not used: the segment is read instead.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from zlib import crc32

SEGMENT, INDEX, DAMAGED = ".segment", ".index", ".damaged"  # the ends of file names
HEAD_BYTES_MAX = 0xFFFF
BODY_BYTES_MAX = 64 << 20
_MARK = b"\xa5\x5a"
_PREFIX = struct.Struct("<2sHII")
_UNCHECKED = struct.Struct("<2sHI")  # the prefix without its checksum
_FILE = struct.Struct("<8sQQI")  # magic, number, salt, checksum
_SEGMENT_MAGIC, _INDEX_MAGIC = b"trellis\x01", b"trelidx\x01"
_INDEX_ABOUT = struct.Struct("<QI")  # bytes of the segment, number of records
PREFIX_BYTES, HEADER_BYTES = _PREFIX.size, _FILE.size


def file_name(number: int, ending: str = SEGMENT) -> str:
    """Return the name of a file of segment `number`. Names sort in the order of numbers."""
    return f"{number:012d}{ending}"


def number_of(name: str, ending: str = SEGMENT) -> int | None:
    """Return the number of the segment that a file belongs to; None if it is no file of a store."""
    stem = name.removesuffix(ending)
    return int(stem) if name.endswith(ending) and len(stem) == 12 and stem.isdecimal() else None


def header(number: int, salt: int) -> bytes:
    """Return the first bytes of a segment."""
    return _file_header(_SEGMENT_MAGIC, number, salt)


def _file_header(magic: bytes, number: int, salt: int) -> bytes:
    return _FILE.pack(magic, number, salt, crc32(magic + struct.pack("<QQ", number, salt)))


def salt_of(data: bytes, number: int, magic: bytes = _SEGMENT_MAGIC) -> int | None:
    """Return the salt in the header of a segment; None if this is no valid header of segment `number`."""
    if len(data) < HEADER_BYTES:
        return None
    _, _, salt, _ = _FILE.unpack_from(data)
    return int(salt) if data[:HEADER_BYTES] == _file_header(magic, number, salt) else None


def _seed(salt: int, offset: int) -> int:
    return (salt ^ (salt >> 32) ^ (offset * 0x9E3779B1)) & 0xFFFFFFFF


def record(salt: int, offset: int, head: bytes, body: bytes) -> bytes:
    """Return a record that will stand at `offset` of its segment."""
    start = _UNCHECKED.pack(_MARK, len(head), len(body))
    checksum = crc32(body, crc32(head, crc32(start, _seed(salt, offset))))
    return b"".join((start, checksum.to_bytes(4, "little"), head, body))


def read_record(salt: int, offset: int, data: bytes, at: int = 0) -> tuple[bytes, bytes] | None:
    """Return head and body of the record at `data[at:]`, which is at `offset` of its segment. None: it is not valid."""
    if len(data) - at < PREFIX_BYTES:
        return None
    mark, head_bytes, body_bytes, checksum = _PREFIX.unpack_from(data, at)
    start = at + PREFIX_BYTES
    end = start + head_bytes + body_bytes
    if mark != _MARK or end > len(data):
        return None
    rest = data[start:end]
    if crc32(rest, crc32(data[at : at + _UNCHECKED.size], _seed(salt, offset))) != checksum:
        return None
    return rest[:head_bytes], rest[head_bytes:]


@dataclass
class Scan:
    """The valid records of a segment, and the bytes that are none."""

    heads: list[bytes] = field(default_factory=list)
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    bodies: array[int] = field(default_factory=lambda: array("L"))  # bytes of the bodies
    # Bytes that are no valid record: (offset, end). If records follow, the segment is damaged. If not, the last write
    # before a crash was torn.
    bad: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0  # bytes of the segment

    @property
    def torn_bytes(self) -> int:
        """Bytes at the end of the segment that are no record."""
        return self.size - self.bad[-1][0] if self.bad and self.bad[-1][1] == self.size else 0

    @property
    def is_damaged(self) -> bool:
        """Whether valid records follow bytes that are none."""
        return any(end < self.size for _, end in self.bad)


def scan(data: bytes, number: int) -> Scan:
    """Find all valid records of a segment, also those behind damaged bytes."""
    scanned = Scan(size=len(data))
    salt = salt_of(data, number)
    if salt is None:
        if data:
            scanned.bad.append((0, len(data)))
        return scanned
    at, end = HEADER_BYTES, len(data)
    while at < end:
        parsed = read_record(salt, at, data, at)
        if parsed is None:
            following = _next_valid(salt, data, at + 1)
            scanned.bad.append((at, following))
            at = following
            continue
        head, body = parsed
        scanned.heads.append(head)
        scanned.offsets.append(at)
        scanned.bodies.append(len(body))
        at += PREFIX_BYTES + len(head) + len(body)
    return scanned


def _next_valid(salt: int, data: bytes, at: int) -> int:
    """Return the offset of the next valid record from `at` on, or the end of the data."""
    while True:
        at = data.find(_MARK, at)
        if at < 0:
            return len(data)
        if read_record(salt, at, data, at) is not None:
            return at
        at += 1


def make_index(number: int, salt: int, size: int, scanned: Scan) -> bytes:
    """Return the index of a complete segment of `size` bytes."""
    lengths = array("H", map(len, scanned.heads))
    parts = (
        _file_header(_INDEX_MAGIC, number, salt),
        _INDEX_ABOUT.pack(size, len(scanned.heads)),
        *(scanned.offsets.tobytes(), array("I", scanned.bodies).tobytes(), lengths.tobytes(), *scanned.heads),
    )
    data = b"".join(parts)
    return data + crc32(data).to_bytes(4, "little")


def read_index(data: bytes, number: int, salt: int, size: int) -> Scan | None:
    """Return what an index says of a segment with this salt and size; None if it is damaged or of another segment."""
    start = HEADER_BYTES + _INDEX_ABOUT.size
    if len(data) < start + 4 or crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    if salt_of(data, number, _INDEX_MAGIC) != salt:
        return None
    stated_size, count = _INDEX_ABOUT.unpack_from(data, HEADER_BYTES)
    if stated_size != size or len(data) < start + 14 * count + 4:
        return None
    scanned = Scan(size=size)
    scanned.offsets.frombytes(data[start : start + 8 * count])
    scanned.bodies = array("L", array("I", data[start + 8 * count : start + 12 * count]))
    lengths = array("H", data[start + 12 * count : start + 14 * count])
    scanned.heads = list(_pieces(data, start + 14 * count, lengths))
    return scanned


def _pieces(data: bytes, at: int, lengths: array[int]) -> Iterator[bytes]:
    for length in lengths:
        yield data[at : at + length]
        at += length
