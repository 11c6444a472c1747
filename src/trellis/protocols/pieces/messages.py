"""The messages about pieces, and the types of pieces."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.wire import FRAME_BYTES_MAX, Codec, Name

DIGEST_BYTES = 16
PIECE_BYTES_MAX = 64 << 10
NAMES_MAX = 256  # most names in one piece
BYTES_MAX = 60 << 10  # most bytes of a message in one piece
LISTS_MAX = 4_096  # most different lists of topics in one message
WANTS_MAX = 16  # Most pieces that one peer is asked for at a time: they fit into the queue of a stream.
MISSING_MAX = 2 * WANTS_MAX  # Missing pieces of one message that are noted at a time, or a few more.

Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]


class Ref(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A reference to a piece: the digest of its content."""

    digest: Digest
    size: Annotated[int, Meta(ge=1, le=PIECE_BYTES_MAX)]  # bytes of the piece


class Names(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="n"):
    """A piece of a list of topics."""

    names: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=NAMES_MAX)]


class Bytes(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="b"):
    """A piece of a message that is larger than a frame."""

    data: Annotated[bytes, Meta(min_length=1, max_length=BYTES_MAX)]


class Index(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="i"):
    """A list of pieces of one kind, in order. None of them is an index."""

    refs: Annotated[tuple[Ref, ...], Meta(min_length=1, max_length=PIECE_BYTES_MAX // DIGEST_BYTES)]


Piece = Names | Bytes | Index
PIECES: Codec[Piece] = Codec(Piece, PIECE_BYTES_MAX)


class Packed(msgspec.Struct, frozen=True, gc=False, tag="packed"):
    """A message whose long lists, or whose whole body, are replaced by references."""

    body: Annotated[bytes, Meta(max_length=FRAME_BYTES_MAX)]  # the encoded message, with placeholders
    whole: Ref | None  # set instead of a body that is too large
    # The lists that the placeholders stand for, by number.
    lists: Annotated[tuple[Ref, ...], Meta(max_length=LISTS_MAX)]


class Want(msgspec.Struct, frozen=True, gc=False, tag="want"):
    """Ask for pieces."""

    digests: Annotated[tuple[Digest, ...], Meta(max_length=WANTS_MAX)]


class Give(msgspec.Struct, frozen=True, gc=False, tag="give"):
    """Give a piece."""

    piece: Annotated[bytes, Meta(max_length=PIECE_BYTES_MAX)]


PiecesMessage = Packed | Want | Give
PIECES_MESSAGES: Codec[PiecesMessage] = Codec(PiecesMessage, FRAME_BYTES_MAX)
