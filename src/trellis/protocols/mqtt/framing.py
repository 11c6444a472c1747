"""Bytes of a stream into packets: the length is checked before a byte of the body is kept.  [MQTT 5, 2.1]"""

from __future__ import annotations

from collections.abc import Iterator

from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.packets import CONNECT
from trellis.protocols.mqtt.primitives import PacketError


class Framing:
    """`feed` what comes; `packets` gives (first byte, body) as long as whole ones are there."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max  # of a packet, its header included
        self._buffer = bytearray()
        self._at = 0

    def __len__(self) -> int:
        return len(self._buffer) - self._at

    @property
    def kind(self) -> int | None:
        """Of the next packet, as soon as its first byte is there."""
        return self._buffer[self._at] >> 4 if len(self) else None

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def packets(self) -> Iterator[tuple[int, bytes]]:
        """May be left at any time: what was not taken stays."""
        while True:
            found = self._next()
            if found is None:
                break
            yield found
        self._drop()

    def _next(self) -> tuple[int, bytes] | None:
        buffer, at = self._buffer, self._at
        length = shift = 0
        index = at + 1
        while True:
            if index >= len(buffer):
                self._drop()
                return None
            byte = buffer[index]
            index += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise PacketError("a length in more bytes than it needs")
                break
            shift += 7
            if shift > 21:
                raise PacketError("a length of more than four bytes")
        if index - at + length > self.bytes_max:
            raise PacketError(f"a packet of {length} bytes is over {self.bytes_max}", reasons.TOO_LARGE)
        if len(buffer) < index + length:
            self._drop()
            return None
        self._at = index + length
        return buffer[at], bytes(memoryview(buffer)[index : index + length])

    def _drop(self) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0


def version_of(first: int, body: bytes) -> int:
    """Of the first packet, which must be a CONNECT.  [MQTT-3.1.0-1, 3.1.2-1, 3.1.2-2]"""
    if first >> 4 != CONNECT:
        raise PacketError("the first packet is no CONNECT", reasons.PROTOCOL_ERROR)
    if body[:6] != b"\x00\x04MQTT" or len(body) < 7:
        raise PacketError("a protocol that is not MQTT", reasons.VERSION)
    return body[6]
