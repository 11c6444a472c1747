"""Keep pieces by their digests, and cut lists of topics into pieces."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

from trellis.protocols.pieces.messages import DIGEST_BYTES, NAMES_MAX, PIECES, Index, Piece, Ref
from trellis.protocols.pieces.topic_lists import Topics

_NAMES_MIN = 32
_NAMES_BYTES = 32 << 10  # a piece is closed when it has this many bytes
_CUT = 64  # one name in so many ends a piece


@dataclass(slots=True, eq=False)
class Held:
    """A piece that is kept."""

    piece: Piece
    size: int  # bytes of the piece
    total: int  # bytes of the pieces that an index refers to, as it says; else the same as `size`
    found: int = 0  # of an index: its first so many pieces were there, of the kind below, when we last looked
    kind: type | None = None


class Store:
    """The pieces that were used last, by digest."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.bytes, self.forgotten = bytes_max, 0, 0
        self._pieces: OrderedDict[bytes, Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pieces)

    def held(self, digest: bytes) -> Held | None:
        found = self._pieces.get(digest)
        if found is not None:
            self._pieces.move_to_end(digest)
        return found

    def get(self, digest: bytes) -> Piece | None:
        found = self.held(digest)
        return found.piece if found is not None else None

    def put(self, piece: Piece) -> Ref:
        data = PIECES.encode(piece)
        digest = digest_of(data)
        if self.get(digest) is None:
            total = sum(one.size for one in piece.refs) if isinstance(piece, Index) else len(data)
            self._pieces[digest] = Held(piece, len(data), total)
            self.bytes += len(data)
            while self.bytes > self.bytes_max:
                _, gone = self._pieces.popitem(last=False)
                self.bytes -= gone.size
                self.forgotten += 1
        return Ref(digest, len(data))


def cut(topics: Topics) -> Iterator[Topics]:
    """Cut a list behind names whose checksum says so, so that a change moves no cut but those beside it."""
    part: list[str] = []
    size = 0
    for topic in topics:
        data = topic.encode()
        part.append(topic)
        size += len(data) + 5
        is_end = len(part) >= _NAMES_MIN and crc32(data) % _CUT == 0
        if is_end or len(part) == NAMES_MAX or size > _NAMES_BYTES:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)


def digest_of(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
