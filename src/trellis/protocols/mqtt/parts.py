"""Messages that are larger than one publication of the mesh: they travel in parts.  [docs/mqtt.md, Large messages]

The publisher's node splits the payload, and publishes each part in an envelope of its own on the same overlay topic. A
receiver joins the parts when all of them have arrived. Arrivals have been put into order before, and freed from
duplicates (`arrivals.py`), but nodes that repeat publications may still bring parts in another order.

A1  At most `BYTES_MAX` bytes of incomplete messages are kept. Beyond that, the oldest message is dropped.
A2  A message whose next part does not arrive within `WAIT_MS` is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from trellis.protocols.effects import Incarnation, NodeId
from trellis.protocols.mqtt.envelope import Envelope

BYTES_MAX = 128 << 20  # most bytes of incomplete messages
PART_BYTES_MIN = 1 << 10  # A part has at least this many bytes, unless it is the last one.
WAIT_MS = 60_000  # Delivery brings what it owes within its window.

Key = tuple[NodeId, Incarnation, int]  # node, incarnation, number of the first part


def split(payload: bytes, part_bytes: int) -> Iterator[bytes]:
    """Yield the parts of a payload, each of at most `part_bytes`."""
    for at in range(0, len(payload), part_bytes):
        yield payload[at : at + part_bytes]


@dataclass
class Incomplete:
    """A message of which some parts have arrived."""

    count: int  # number of its parts
    until_ms: int  # when it is dropped, unless another part arrives
    parts: dict[int, Envelope] = field(default_factory=dict)  # by index, from 0

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return sum(len(part.payload) for part in self.parts.values())


class Assembly:
    """Joins parts to messages."""

    def __init__(self) -> None:
        self._incomplete: dict[Key, Incomplete] = {}  # the one whose parts came first stands first
        self._bytes = 0
        self.dropped = 0  # messages that were dropped because parts were missing

    def take(self, origin: NodeId, message: Envelope, now_ms: int) -> Envelope | None:
        """Take in a message or a part. Return the message if it is whole by now, else None.

        A joined message has the number of its last part.
        """
        if message.part is None:
            return message
        first, index, count = message.part
        key = (origin, message.incarnation, first)
        known = self._incomplete.get(key)
        if known is None:
            known = self._incomplete[key] = Incomplete(count, 0)
        if index >= known.count or count != known.count or index in known.parts:
            return None
        known.parts[index] = message
        known.until_ms = now_ms + WAIT_MS
        self._bytes += len(message.payload)
        if len(known.parts) == known.count:
            self._forget(key)
            last = known.parts[known.count - 1]
            payload = b"".join(known.parts[each].payload for each in range(known.count))
            return msgspec.structs.replace(last, payload=payload, part=None)
        while self._bytes > BYTES_MAX:
            self._forget(next(iter(self._incomplete)))
            self.dropped += 1
        return None

    def _forget(self, key: Key) -> None:
        self._bytes -= self._incomplete.pop(key).size

    def tick(self, now_ms: int) -> None:
        """Drop messages whose parts no longer arrive."""
        late = [key for key, known in self._incomplete.items() if known.until_ms <= now_ms]
        for key in late:
            self._forget(key)
            self.dropped += 1

    def check(self) -> None:
        assert self._bytes == sum(known.size for known in self._incomplete.values()), "A1"
        assert self._bytes <= BYTES_MAX, "A1"
