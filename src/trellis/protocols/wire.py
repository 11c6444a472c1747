"""Messages as bytes, and bytes as messages: MessagePack, one tagged union per system, limits on everything decoded.

Every field of a message that can grow carries its own limit (`Name`, `Names`, ...), and so has the whole message. It
may be larger than a frame: then it travels in pieces (`pieces/`).
Whatever comes from the network is either a valid message or a `WireError`; nothing else escapes.

Names have types of their own: `NodeName` for nodes, `Name` for topics and clusters. A node's configuration and its
clients are held to rules that are the same or stricter (`node_name_fault`, `name_fault`), so that no node sends what
another one refuses.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from trellis.errors import TrellisError
from trellis.protocols.effects import Incarnation

NAME_LETTERS_MAX = 512  # of a topic or a cluster; at most 2,048 bytes in UTF-8
NODE_LETTERS_MAX = 255  # of a node; at most 1,020 bytes in UTF-8
TOPICS_MAX = 65_536  # topics of one node in one message
PEERS_MAX = 1_024  # nodes described in one message
TOPICS_BYTES_MAX = 8 << 20  # bytes of their names, with a few for each
FRAME_BYTES_MAX = 1 << 20  # what is sent at once
MESSAGE_BYTES_MAX = 32 << 20  # a message with all its lists written out

# Control characters, and halves of surrogate pairs, which UTF-8 cannot encode.
_UNPRINTABLE = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
# Further, in names of nodes: white space other than a plain blank, marks that change how a line is shown, and colons.
_NOT_IN_NODES = _UNPRINTABLE + r":\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb"
NAME_PATTERN = rf"\A[^{_UNPRINTABLE}]+\Z"
# Code points that Unicode reserves for ever. Mosquitto ends a connection on which one comes, as on a control character.
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_UNCLEAN = _UNPRINTABLE + _NONCHARACTERS
_NEW_NAME = rf"\A[^{_UNCLEAN}]+\Z"
_NODE_NAME = rf"\A[^ {_NOT_IN_NODES}](?:[^{_NOT_IN_NODES}]*[^ {_NOT_IN_NODES}])?\Z"

# Between nodes only the length of a topic is checked: lists of topics are long, and a pattern costs ten times as much
# as the rest of decoding. What a client or a configuration names is checked as a whole (`NewName`, `name_fault`).
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LETTERS_MAX)]
NewName = Annotated[str, Meta(min_length=1, max_length=NAME_LETTERS_MAX, pattern=_NEW_NAME)]
NodeName = Annotated[str, Meta(min_length=1, max_length=NODE_LETTERS_MAX, pattern=_NODE_NAME)]
Topics = Annotated[tuple[Name, ...], Meta(max_length=TOPICS_MAX)]
COUNT_MAX = 2**53
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
IncarnationCount = Annotated[Incarnation, Meta(ge=0, le=COUNT_MAX)]

Message = TypeVar("Message", bound=msgspec.Struct)


def counted(number: int) -> int:
    """Return the next count after one that came from the network. The greatest stays: beyond it is no `Count`."""
    return min(number + 1, COUNT_MAX)


class WireError(TrellisError):
    """Bytes that are no message of ours."""


Fault = tuple[str, str]  # what is wrong, and what to do about it

_unclean, _node_name = re.compile(f"[{_UNCLEAN}]"), re.compile(_NODE_NAME)


def is_clean(text: str) -> bool:
    """Return whether `text` has no control characters, halves of surrogate pairs, or noncharacters of Unicode."""
    return text.isprintable() or _unclean.search(text) is None  # the first is fast, and true of almost every text


def is_printable(text: str) -> bool:
    """Return whether `text` is not empty, and clean."""
    return bool(text) and is_clean(text)


def name_fault(text: str) -> Fault | None:
    """Say why `text` cannot be the name of a topic or a cluster; None if it can. The same rule as `NewName`."""
    if not 0 < len(text) <= NAME_LETTERS_MAX:
        return f"{len(text)} letters", f"give 1 to {NAME_LETTERS_MAX}"
    return None if is_clean(text) else (f"{text!a} has control characters or noncharacters", "leave them out")


def node_name_fault(text: str) -> Fault | None:
    """Say why `text` cannot be the name of a node; None if it can. The same rule as `NodeName`."""
    if not 0 < len(text) <= NODE_LETTERS_MAX:
        return f"{len(text)} letters", f"give 1 to {NODE_LETTERS_MAX}"
    if _node_name.search(text):
        return None
    return f"{text!a} cannot name a node", "leave out colons, control characters, and blanks at the ends"


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
