"""Numbers, text and bytes as MQTT encodes them. Nothing is read beyond a packet's end.

Every fault is a `PacketError` with a reason code. Nothing else is raised by the codecs.  [MQTT 5, 1.5]
"""

from __future__ import annotations

from trellis.errors import TrellisError
from trellis.protocols.mqtt import reasons
from trellis.protocols.wire import is_clean

LENGTH_MAX = 268_435_455  # greatest length in four bytes of seven bits
TEXT_BYTES_MAX = 65_535


class PacketError(TrellisError):
    """The bytes are no packet, or one that the standard forbids here."""

    def __init__(self, what: str, reason: int = reasons.MALFORMED) -> None:
        super().__init__(what)
        self.reason = reason


class Reader:
    """Reads the body of one packet. `is_strict`: text with control characters or noncharacters is an error."""

    __slots__ = ("at", "data", "end", "is_strict")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None, *, is_strict: bool = True) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end
        self.is_strict = is_strict

    def __bool__(self) -> bool:
        return self.at < self.end

    def take(self, count: int) -> int:
        """Skip `count` bytes. Return where they begin."""
        at = self.at
        if at + count > self.end:
            raise PacketError("a field goes beyond the packet's end")
        self.at = at + count
        return at

    def u8(self) -> int:
        return self.data[self.take(1)]

    def u16(self) -> int:
        at = self.take(2)
        return self.data[at] << 8 | self.data[at + 1]

    def u32(self) -> int:
        at = self.take(4)
        return int.from_bytes(self.data[at : at + 4], "big")

    def varint(self) -> int:
        """Read a variable byte integer.  [MQTT-1.5.5-1: the minimum number of bytes]"""
        value = shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise PacketError("a length in more bytes than it needs")
                return value
            shift += 7
            if shift > 21:
                raise PacketError("a length of more than four bytes")

    def binary(self) -> bytes:
        count = self.u16()
        at = self.take(count)
        return self.data[at : at + count]

    def text(self, reason: int = reasons.MALFORMED) -> str:
        """Read a text.  [MQTT-1.5.4-1, -2: well-formed UTF-8 without surrogates and U+0000; 1.5.4: may be refused]

        `reason`: the reason code for a text that is not allowed.
        """
        try:
            text = self.binary().decode("utf-8")
        except UnicodeDecodeError:
            raise PacketError("text that is not UTF-8", reason) from None
        if "\0" in text:
            raise PacketError("text with U+0000", reason)
        if self.is_strict and not is_clean(text):
            raise PacketError("text with control characters or noncharacters", reason)
        return text

    def id(self, reason: int = reasons.PROTOCOL_ERROR) -> int:
        """Read a packet identifier.  [MQTT-2.2.1-3: not 0] `reason`: the reason code for 0."""
        number = self.u16()
        if not number:
            raise PacketError("packet identifier 0", reason)
        return number

    def rest(self) -> bytes:
        """Read everything that is left."""
        at, self.at = self.at, self.end
        return self.data[at : self.end]

    def done(self) -> None:
        """Raise a PacketError if bytes are left."""
        if self.at != self.end:
            raise PacketError(f"{self.end - self.at} bytes too many")


def varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while True:
        value, byte = value >> 7, value & 0x7F
        out.append(byte | 0x80 if value else byte)
        if not value:
            return bytes(out)


def u16(value: int) -> bytes:
    return value.to_bytes(2, "big")


def binary(value: bytes) -> bytes:
    if len(value) > TEXT_BYTES_MAX:
        raise PacketError(f"a field of {len(value)} bytes")
    return u16(len(value)) + value


def text(value: str) -> bytes:
    try:
        return binary(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise PacketError("text that UTF-8 cannot hold") from None


def packet(first: int, *parts: bytes) -> bytes:
    """Return a packet: its first byte, its length, and its parts."""
    body = b"".join(parts)
    if len(body) > LENGTH_MAX:
        raise PacketError(f"a packet of {len(body)} bytes")
    return b"".join((bytes((first,)), varint(len(body)), body))
