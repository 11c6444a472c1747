"""Frames on a stream, and what two nodes say to each other before any protocol speaks.

    frame  = length (4 bytes, big-endian, of what follows), kind (1 byte), body
    kind   = CONTROL: a message of this file; MESSAGE: one of the overlay's and delivery's union (`mesh/codecs.py`);
             PIECES: a message that refers to pieces, or what is said of them (`protocols/pieces/`); since version 2

A length is checked before anything of the body is kept, so a peer cannot make us hold more than one frame of the size
that it may send at that time: until its hello is accepted, that is a small one. Whatever comes is a frame or a
`WireError`; nothing else escapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.wire import FRAME_BYTES_MAX, NAME_PATTERN, Codec, Count, Name, NodeName, WireError

PROTOCOL = "trellis-mesh"
VERSION = 2
VERSION_OLDEST = max(1, VERSION - 1)  # whom we still understand  [docs/upgrading.md]
HELLO_BYTES_MAX = 8 << 10  # names of 512 letters, four bytes each, fit
BODY_BYTES_MAX = FRAME_BYTES_MAX + 1  # with its kind
ADDRESSES_MAX = 256  # in one frame
PIECES_SINCE = 2  # the version of the protocol that has frames of kind PIECES
PINGS_SINCE = 2  # and the one that has pings

_TLS_HANDSHAKE = 0x1603  # a record of TLS: its type and the first half of its version. No frame is that long.

CONTROL, MESSAGE, PIECES = b"\x00", b"\x01", b"\x02"

# A DNS name (labels of at most 63 letters, digits, `-` and `_`), an IPv4 address, or an IPv6 address with or without
# the name of an interface. Whatever else is given to the resolver can raise more than OSError.
_LABEL = r"[0-9A-Za-z_](?:[0-9A-Za-z_-]{0,61}[0-9A-Za-z_])?"
_HEX = r"[0-9A-Fa-f]{0,4}"
_IPV6 = rf"{_HEX}(?::{_HEX}){{2,7}}(?::[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}})?(?:%[0-9A-Za-z_-]{{1,15}})?"
HOST_PATTERN = rf"\A(?:{_LABEL}(?:\.{_LABEL})*\.?|{_IPV6})\Z"
HOST_LETTERS_MAX = 255

Host = Annotated[str, Meta(min_length=1, max_length=HOST_LETTERS_MAX, pattern=HOST_PATTERN)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Reason = Annotated[str, Meta(max_length=1_024, pattern=f"\\A(?:{NAME_PATTERN})?\\Z")]  # it is shown, and logged


class Oversized(WireError):
    """A length that its sender may not use now."""


class TlsHello(Oversized):
    """The other end begins a TLS handshake where frames are spoken."""


class Address(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where a life of a node listens."""

    node: NodeName
    incarnation: Count
    host: Host
    port: Port


class Hello(msgspec.Struct, frozen=True, gc=False, tag="hello"):
    """The first frame of either side. Its first two fields never change their meaning, whatever the version.

    `version` is the newest that the sender speaks. Both go on in the lesser of the two. The newer one knows the older
    one's language, or does not: so only the newer one refuses, and fields that it adds are skipped by the older one.
    """

    protocol: Reason
    version: Count
    cluster: Name
    overlay: Reason
    address: Address  # the node, its incarnation, and where it listens


class Refused(msgspec.Struct, frozen=True, gc=False, tag="refused", omit_defaults=True):
    """Instead of a hello; the stream ends after it."""

    kind: Reason
    text: Reason = ""
    # Kind "second": the name of the node that refuses. The dialer of a seed knows only an address so far.
    node: NodeName | None = None


class Addresses(msgspec.Struct, frozen=True, gc=False, tag="addresses"):
    """Always before the first message that can name these nodes."""

    known: Annotated[tuple[Address, ...], Meta(max_length=ADDRESSES_MAX)]


class Bye(msgspec.Struct, frozen=True, gc=False, tag="bye"):
    """The stream ends in order: it is no sign of a crash."""


class Ping(msgspec.Struct, frozen=True, gc=False, tag="ping"):
    """Asks the other end to answer at once: proof that it reads and writes this stream."""


class Pong(msgspec.Struct, frozen=True, gc=False, tag="pong"):
    """The answer to a `Ping`."""


Control = Hello | Refused | Addresses | Bye | Ping | Pong
CONTROLS: Codec[Control] = Codec(Control, FRAME_BYTES_MAX)


def pack(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def pack_control(message: Control) -> bytes:
    return pack(CONTROL + CONTROLS.encode(message))


def pack_message(encoded: bytes, kind: bytes = MESSAGE) -> bytes:
    return (len(encoded) + 1).to_bytes(4, "big") + kind + encoded


def kind_of(frame: bytes) -> bytes:
    return frame[4:5]


class Splitter:
    """Bytes in, bodies of frames out."""

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max  # may be raised when the sender is known
        self._buffer = bytearray()

    @property
    def held_bytes(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The limit may change between two bodies, so they are cut off one by one."""
        held, start = self._buffer, 0
        held_before = bool(held)
        if held_before:
            held += data
        buffer = held if held_before else data  # most data are whole frames: they need not be copied
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
    if body[:1] != CONTROL:
        raise WireError("a message before the hello")
    return CONTROLS.decode(body[1:])
