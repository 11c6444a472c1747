"""The records that delivery writes to a store, and the interface of the store.  [docs/durable.md]

The heads of records are these classes, encoded. The payload of a message is the body of its `Kept` record.

S1  A snapshot (`Begin` ... `End`) replaces all records before it but `Kept` and `Turn`. Without its `End` it is not
    complete, and is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from trellis.protocols.wire import WireError


class Kept(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="k"):
    """A message that this node holds. It counts until the message is dropped."""

    topic: str
    origin: str
    incarnation: int
    sequence: int
    born_ms: int  # wall clock, milliseconds since 1970
    pause_ms: int
    # The publication of a client of this node: client, session, number.
    client_id: tuple[str, int, int] | None = None


class Turn(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="t"):
    """A message was the next one for the durable subscribers of this node. It counts until all of them have it."""

    position: int
    topic: str
    origin: str
    incarnation: int
    sequence: int


class Handed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="h"):
    """On a topic with durable subscribers, all messages of a stream up to `upto` had their turn or never will."""

    topic: str
    origin: str
    incarnation: int
    upto: int


class Since(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="s"):
    """The node's subscription to a topic with durable subscribers was confirmed. Times are of the wall clock."""

    topic: str
    wanted_ms: int
    confirmed_ms: int


class Joined(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="j"):
    """A client has a durable subscription, and is owed the messages behind this position."""

    client: str
    topic: str
    position: int


class Cursor(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="c"):
    """A durable client has everything up to this position. It was last here at `seen_ms`, by the wall clock."""

    client: str
    position: int
    seen_ms: int


class Quit(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="q"):
    """A client has ended its durable subscription to a topic; "": to all."""

    client: str
    topic: str


class Begin(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="b"):
    """A snapshot begins."""

    position: int  # the last position that was given


class End(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="e"):
    """A snapshot is complete."""


StoreRecord = Kept | Turn | Handed | Since | Joined | Cursor | Quit | Begin | End
_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[StoreRecord] = msgspec.msgpack.Decoder(StoreRecord)


def encode(record: StoreRecord) -> bytes:
    """Return the head of a record."""
    return _ENCODER.encode(record)


def decode(head: bytes) -> StoreRecord:
    """Return what a head says. Raise WireError if it is none of ours."""
    try:
        return _DECODER.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"a record of the store: {error}") from None


class Journal(Protocol):
    """The store, as delivery uses it. Nothing here waits for a disk but `read`.

    The driver writes what was appended, and calls `Delivery.on_synced` when it is certain to survive.
    """

    next: int  # the number of the next record
    rescued_from: int  # Restored records from this number on were in a damaged file, and may be outdated.

    def append(self, head: bytes, body: bytes = b"", *, keeps: bool = True) -> int:
        """Add a record. Return its number. `keeps`: it counts until it is released."""
        ...

    def keep(self, number: int) -> None:
        """Let a restored record count."""
        ...

    def release(self, numbers: Iterable[int]) -> None:
        """Let records count no more."""
        ...

    def read(self, number: int) -> bytes | None:
        """Return the body of a record that was synced; None if it cannot be read."""
        ...
