"""Keep pieces by their digests, and cut lists of topics into pieces."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

from trellis.protocols.pieces.messages import DIGEST_BYTES, NAMES_MAX, PIECES, Index, Piece, Ref
from trellis.protocols.pieces.topic_lists import Topics

_NAMES_MIN = 32  # Least names in a piece before a name may end it.
_NAMES_BYTES = 32 << 10  # A piece is closed when it has this many bytes.
_CUT = 64  # One name in this many ends a piece.


@dataclass(slots=True, eq=False)
class Held:
    """A piece that is kept."""

    piece: Piece
    size: int  # bytes of the piece
    total: int  # For an index: bytes of the pieces that it refers to, as it says. Else the same as `size`.
    found: int = 0  # For an index: this many of its first pieces were there, of type `kind`, when we last looked.
    kind: type | None = None


class Store:
    """The pieces that were used last, by digest, at most `bytes_max` bytes."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.bytes, self.forgotten = bytes_max, 0, 0
        self._pieces: OrderedDict[bytes, Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pieces)

    def held(self, digest: bytes) -> Held | None:
        """Return a piece with what is known about it, or None. It counts as used."""
        found = self._pieces.get(digest)
        if found is not None:
            self._pieces.move_to_end(digest)
        return found

    def get(self, digest: bytes) -> Piece | None:
        """Return a piece, or None. It counts as used."""
        found = self.held(digest)
        return found.piece if found is not None else None

    def put(self, piece: Piece) -> Ref:
        """Keep a piece, and return the reference to it. Pieces that were not used for longest are dropped."""
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
    """Cut a list behind names whose checksum says so. A change of the list moves only the cuts next to it."""
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
    """Return the digest that names a piece."""
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
