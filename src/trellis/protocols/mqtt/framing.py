"""Cuts a stream of bytes into packets. The length is checked before a byte of the body is kept.  [MQTT 5, 2.1]"""

from __future__ import annotations

from collections.abc import Iterator

from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.packets import CONNECT, PUBLISH, V5, V31, V311, VERSIONS
from trellis.protocols.mqtt.primitives import PacketError

_NAME_31 = b"\x00\x06MQIsdp"  # the protocol's name in a CONNECT of 3.1
_HEAD_BYTES = 2 + 65_535 + 2  # most bytes of a PUBLISH up to its identifier: topic and identifier


class Framing:
    """`feed` takes received bytes; `packets` yields each complete packet as (first byte, body)."""

    def __init__(self, bytes_max: int, *, reads_past: bool = False) -> None:
        """`reads_past`: of a PUBLISH that is too large, only the head is kept and yielded as the body.

        `left_out` then has its length while it is processed. Without `reads_past`, such a packet raises a PacketError.
        """
        self.bytes_max, self.reads_past = bytes_max, reads_past  # `bytes_max` is for a whole packet, header included.
        self.left_out = 0
        self._buffer = bytearray()
        self._at = 0
        # first byte, head and length of a packet whose body is not kept
        self._head: tuple[int, bytes, int] | None = None
        self._unread = 0  # bytes of that packet that are still to come

    def __len__(self) -> int:
        return len(self._buffer) - self._at

    @property
    def kind(self) -> int | None:
        """Type of the next packet, or None if its first byte has not arrived."""
        return self._buffer[self._at] >> 4 if len(self) else None

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        passed = min(self._unread, len(data))
        self._unread -= passed
        self._buffer += data[passed:] if passed else data

    def packets(self) -> Iterator[tuple[int, bytes]]:
        """Yield complete packets. The caller may stop at any time; packets that were not yielded stay."""
        while True:
            packet = self._next()
            if packet is None:
                break
            yield packet
        self._drop()

    def _next(self) -> tuple[int, bytes] | None:
        self.left_out = 0
        if self._head is not None:
            if self._unread:
                return None
            (first, head, self.left_out), self._head = self._head, None
            return first, head
        buffer, at = self._buffer, self._at
        if at < len(buffer) and not buffer[at] >> 4:  # [MQTT 5, 2.1.2: forbidden]
            raise PacketError("packet type 0", reasons.PROTOCOL_ERROR)
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
            if self.reads_past and buffer[at] >> 4 == PUBLISH:
                return self._read_past(index, length)
            raise PacketError(f"a packet of {length} bytes is over {self.bytes_max}", reasons.TOO_LARGE)
        if len(buffer) < index + length:
            self._drop()
            return None
        self._at = index + length
        return buffer[at], bytes(memoryview(buffer)[index : index + length])

    def _read_past(self, index: int, length: int) -> tuple[int, bytes] | None:
        """Keep only the head of a packet whose body begins at `index`, as soon as the head has arrived."""
        buffer, head_bytes = self._buffer, min(_HEAD_BYTES, length)
        if len(buffer) < index + head_bytes:
            self._drop()
            return None
        self._head = (buffer[self._at], bytes(memoryview(buffer)[index : index + head_bytes]), length)
        end = min(len(buffer), index + length)
        self._unread = index + length - end
        self._at = end
        self._drop()
        return self._next()

    def _drop(self) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0


def answered_in(version: int) -> int:
    """Return the version in whose form a CONNECT is answered. A version that we do not know may be one after 5.

    The highest bit marks a bridge of 3.1 or 3.1.1, which connects again without it if it gets code 1.
    """
    if version in VERSIONS:
        return version
    return V311 if version & 0x80 else V5


def version_of(first: int, body: bytes) -> int:
    """Return the MQTT version of the first packet, which must be a CONNECT.  [MQTT-3.1.0-1, 3.1.2-1, 3.1.2-2]

    It may be a version that we do not know.
    """
    if first >> 4 != CONNECT:
        raise PacketError("the first packet is no CONNECT", reasons.PROTOCOL_ERROR)
    if body.startswith(_NAME_31) and len(body) > len(_NAME_31):
        if body[len(_NAME_31)] in (V311, V5):
            raise PacketError(f"version {body[len(_NAME_31)]} of MQIsdp", reasons.VERSION)
        return body[len(_NAME_31)]
    if body[:6] != b"\x00\x04MQTT" or len(body) < 7:
        raise PacketError("a protocol that is not MQTT", reasons.PROTOCOL_ERROR)  # It gets no answer.  [MQTT-3.1.2-1]
    if body[6] == V31:  # 3.1 has the other name
        raise PacketError("version 3 of MQTT", reasons.VERSION)
    return body[6]
