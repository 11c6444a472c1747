"""Frames on a stream between nodes, and the control messages of the transport.

    frame  = length of what follows (4 bytes, big-endian), kind (1 byte), body
    kind   = CONTROL: a message of this file
             MESSAGE: a message of the overlay or of delivery (`mesh/codecs.py`)
             PIECES: a message that refers to pieces, a request for pieces, or pieces (`protocols/pieces/`).
             Since version 2.

The client port uses the same lengths, without the kind (`talk.py`).

The length is checked before the body is kept. So a peer can make us hold at most one frame of the size that it may send
at that time. That is a small one until its hello is accepted. Bytes from a peer become frames, or raise `WireError` and
no other error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.wire import FRAME_BYTES_MAX, NAME_PATTERN, Codec, Count, Name, NodeName, WireError

PROTOCOL = "trellis-mesh"
VERSION = 2
VERSION_OLDEST = max(1, VERSION - 1)  # oldest version that we still speak  [docs/upgrading.md]
HELLO_BYTES_MAX = 8 << 10  # largest frame before a hello is accepted; names of 512 letters of four bytes fit
BODY_BYTES_MAX = FRAME_BYTES_MAX + 1  # largest frame afterwards, with its kind
ADDRESSES_MAX = 256  # most addresses in one frame
PIECES_SINCE = 2  # first version of the protocol with frames of kind PIECES
PINGS_SINCE = 2  # first version of the protocol with pings

# The first two bytes of a TLS handshake: type, and half of the version. As a length they would be far too large.
_TLS_HANDSHAKE = 0x1603

CONTROL, MESSAGE, PIECES = b"\x00", b"\x01", b"\x02"

# A DNS name (labels of at most 63 letters, digits, `-` and `_`), an IPv4 address, or an IPv6 address with or without
# the name of an interface. For other texts the resolver may raise errors that are no OSError.
_LABEL = r"[0-9A-Za-z_](?:[0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?"
_HEX = r"[0-9A-Fa-f]{0,4}"
_IPV6 = rf"{_HEX}(?::{_HEX}){{2,7}}(?::[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}})?(?:%[0-9A-Za-z_-]{{1,15}})?"
HOST_PATTERN = rf"\A(?:{_LABEL}(?:\.{_LABEL})*\.?|{_IPV6})\Z"
HOST_LETTERS_MAX = 255

Host = Annotated[str, Meta(min_length=1, max_length=HOST_LETTERS_MAX, pattern=HOST_PATTERN)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Reason = Annotated[str, Meta(max_length=1_024, pattern=f"\\A(?:{NAME_PATTERN})?\\Z")]  # shown and logged


class Oversized(WireError):
    """A frame is longer than its sender may send at this time, or empty."""


class TlsHello(Oversized):
    """The other end begins a TLS handshake on a stream without TLS."""


class Address(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The mesh port of one incarnation of a node."""

    node: NodeName
    incarnation: Count
    host: Host
    port: Port


class Hello(msgspec.Struct, frozen=True, gc=False, tag="hello"):
    """The first frame of each side. Its first two fields keep their meaning in all versions.

    `version` is the newest version that the sender speaks. Both ends then use the lesser of the two. Only the newer end
    knows whether it still speaks the older version, so only it may refuse. The older end skips fields that it does not
    know.
    """

    protocol: Reason
    version: Count
    cluster: Name
    overlay: Reason
    address: Address  # the node, its incarnation, and where it listens


class Refused(msgspec.Struct, frozen=True, gc=False, tag="refused", omit_defaults=True):
    """Sent instead of a hello, before the stream is closed.

    A dialer sends it after its own hello, if the version or certificate of the other end is the reason. `kind` is one
    of `handshake.REFUSALS`, or a kind of a newer version.
    """

    kind: Reason
    text: Reason = ""
    # For kind "second": the name of the node that refuses. A node that dialed a seed knows only its address.
    node: NodeName | None = None


class Addresses(msgspec.Struct, frozen=True, gc=False, tag="addresses"):
    """Entries of the sender's address book. Sent before the first message that can name these nodes."""

    known: Annotated[tuple[Address, ...], Meta(max_length=ADDRESSES_MAX)]


class Bye(msgspec.Struct, frozen=True, gc=False, tag="bye"):
    """The sender closes the stream in order. The end of the stream is then no sign of a crash."""


class Ping(msgspec.Struct, frozen=True, gc=False, tag="ping"):
    """Ask the other end to answer at once. The answer proves that it reads and writes this stream."""


class Pong(msgspec.Struct, frozen=True, gc=False, tag="pong"):
    """The answer to a `Ping`."""


Control = Hello | Refused | Addresses | Bye | Ping | Pong
CONTROLS: Codec[Control] = Codec(Control, FRAME_BYTES_MAX)


def pack(body: bytes) -> bytes:
    """Return a body with its length before it."""
    return len(body).to_bytes(4, "big") + body


def pack_control(message: Control) -> bytes:
    """Return the frame of a control message."""
    return pack(CONTROL + CONTROLS.encode(message))


def pack_message(encoded: bytes, kind: bytes = MESSAGE) -> bytes:
    """Return the frame of an encoded message."""
    return (len(encoded) + 1).to_bytes(4, "big") + kind + encoded


def kind_of(frame: bytes) -> bytes:
    """Return the kind of a packed frame."""
    return frame[4:5]


def message_bytes(frame: bytes) -> int:
    """Return the size of the encoded message in a frame of `pack_message`."""
    return len(frame) - 5


class Splitter:
    """Cut the bytes of a stream into the bodies of frames."""

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max  # The owner raises it once the sender is known.
        self._buffer = bytearray()

    @property
    def held_bytes(self) -> int:
        """Return how many bytes of an incomplete frame are held."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take bytes of the stream, and yield the body of each complete frame. Raise Oversized if one is too long.

        `body_bytes_max` may change between two bodies, so the caller must take them one by one.
        """
        held, start = self._buffer, 0
        held_before = bool(held)
        if held_before:
            held += data
        buffer = held if held_before else data  # usually whole frames come: do not copy them
        try:
            while len(buffer) - start >= 4:
                size = int.from_bytes(buffer[start : start + 4], "big")
                if size >> 16 == _TLS_HANDSHAKE:
                    raise TlsHello("the first bytes of a TLS handshake")
                if not 0 < size <= self.body_bytes_max:
                    raise Oversized(f"a frame of {size} bytes; 1 to {self.body_bytes_max} are allowed")
                end = start + 4 + size
                if len(buffer) < end:
                    break
                body = bytes(buffer[start + 4 : end])
                start = end
                yield body
        finally:
            if held_before:
                del held[:start]
            else:
                held += data[start:]


def read_control(body: bytes) -> Control:
    """Return the control message of a body. Raise WireError if it is none."""
    if body[:1] != CONTROL:
        raise WireError("a message before the hello")
    return CONTROLS.decode(body[1:])
