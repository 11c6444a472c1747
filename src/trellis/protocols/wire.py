"""Messages as bytes, and bytes as messages: MessagePack, one tagged union per system, limits on everything decoded.

Every field of a message that can grow carries its own limit (`Name`, `Names`, ...), and so has the whole message. It
may be larger than a frame: then it travels in pieces (`pieces/`).
Whatever comes from the network is either a valid message or a `WireError`; nothing else escapes.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from trellis.errors import TrellisError

NAME_LETTERS_MAX = 512
TOPICS_MAX = 65_536  # topics of one node in one message
PEERS_MAX = 1_024  # nodes described in one message
TOPICS_BYTES_MAX = 8 << 20  # bytes of their names, with a few for each
FRAME_BYTES_MAX = 1 << 20  # what is sent at once
MESSAGE_BYTES_MAX = 32 << 20  # a message with all its lists written out

Name = Annotated[str, Meta(min_length=1, max_length=NAME_LETTERS_MAX)]
Topics = Annotated[tuple[Name, ...], Meta(max_length=TOPICS_MAX)]
Count = Annotated[int, Meta(ge=0, le=2**53)]

Message = TypeVar("Message", bound=msgspec.Struct)


class WireError(TrellisError):
    """Bytes that are no message of ours."""


class Codec(Generic[Message]):
    """Encodes and decodes the messages of one system, given as the union of their types."""

    def __init__(self, union: Any, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.union, self.bytes_max = union, bytes_max
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(union)

    def encode(self, message: Message) -> bytes:
        data = self._encoder.encode(message)
        if len(data) > self.bytes_max:
            raise WireError(f"a {type(message).__name__} of {len(data)} bytes is over {self.bytes_max}")
        return data

    def decode(self, data: bytes) -> Message:
        if len(data) > self.bytes_max:
            raise WireError(f"a message of {len(data)} bytes is over {self.bytes_max}")
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise WireError(f"not a message of ours: {error}") from None
