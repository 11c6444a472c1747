"""Encode messages as bytes and decode them: MessagePack, one tagged union for each protocol, with limits.

Every field that can grow has its own limit (`Name`, `Topics`, ...), and so has a whole message. A message may be larger
than a frame; then it is sent in pieces (`pieces/`). Bytes from the network decode to a valid message or raise a
`WireError`, and nothing else.

Names have types: `NodeName` for nodes, `Name` for topics and clusters. A node's configuration and its clients are held
to the same or to stricter rules (`node_name_fault`, `name_fault`). So no node sends a name that another one refuses.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from trellis.errors import TrellisError
from trellis.protocols.effects import Incarnation

NAME_LETTERS_MAX = 512  # most letters in the name of a topic or a cluster; at most 2,048 bytes in UTF-8
NODE_LETTERS_MAX = 255  # most letters in the name of a node; at most 1,020 bytes in UTF-8
TOPICS_MAX = 65_536  # most topics of one node in one message
PEERS_MAX = 1_024  # most nodes described in one message
TOPICS_BYTES_MAX = 8 << 20  # most bytes of these topics' names, with a few bytes added for each
FRAME_BYTES_MAX = 1 << 20  # most bytes that are sent as one frame
MESSAGE_BYTES_MAX = 32 << 20  # most bytes of a message with all its lists written out

# Control characters, and the halves of surrogate pairs, which UTF-8 cannot encode.
_UNPRINTABLE = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
# Also excluded from names of nodes: white space other than a plain blank, marks that change how a line is shown, and
# colons.
_NOT_IN_NODES = _UNPRINTABLE + r":\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ufff9-\ufffb"
NAME_PATTERN = rf"\A[^{_UNPRINTABLE}]+\Z"
# Code points that Unicode reserves for ever. Mosquitto closes a connection that sends one, as it does for a control
# character.
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_UNCLEAN = _UNPRINTABLE + _NONCHARACTERS
_NEW_NAME = rf"\A[^{_UNCLEAN}]+\Z"
_NODE_NAME = rf"\A[^ {_NOT_IN_NODES}](?:[^{_NOT_IN_NODES}]*[^ {_NOT_IN_NODES}])?\Z"

# Between nodes only the length of a topic is checked. Lists of topics are long, and a pattern takes ten times as long
# as the rest of decoding. Names from a client or a configuration are checked in full (`NewName`, `name_fault`).
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LETTERS_MAX)]
NewName = Annotated[str, Meta(min_length=1, max_length=NAME_LETTERS_MAX, pattern=_NEW_NAME)]
NodeName = Annotated[str, Meta(min_length=1, max_length=NODE_LETTERS_MAX, pattern=_NODE_NAME)]
Topics = Annotated[tuple[Name, ...], Meta(max_length=TOPICS_MAX)]
COUNT_MAX = 2**53
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
IncarnationCount = Annotated[Incarnation, Meta(ge=0, le=COUNT_MAX)]

Message = TypeVar("Message", bound=msgspec.Struct)


def counted(number: int) -> int:
    """Return the next count after one from the network. The greatest count stays as it is, since more is no `Count`."""
    return min(number + 1, COUNT_MAX)


class WireError(TrellisError):
    """Bytes that are no message of this protocol, or a message that is too large."""


Fault = tuple[str, str]  # what is wrong, and what to do about it

_unclean, _node_name = re.compile(f"[{_UNCLEAN}]"), re.compile(_NODE_NAME)


def is_clean(text: str) -> bool:
    """Return whether `text` has no control characters, halves of surrogate pairs, or noncharacters of Unicode."""
    # The first test is fast, and true for almost every text.
    return text.isprintable() or _unclean.search(text) is None


def is_printable(text: str) -> bool:
    """Return whether `text` is not empty and is clean."""
    return bool(text) and is_clean(text)


def name_fault(text: str) -> Fault | None:
    """Return why `text` cannot be the name of a topic or a cluster, or None if it can. The same rule as `NewName`."""
    if not 0 < len(text) <= NAME_LETTERS_MAX:
        return f"{len(text)} letters", f"give 1 to {NAME_LETTERS_MAX}"
    return None if is_clean(text) else (f"{text!a} has control characters or noncharacters", "leave them out")


def node_name_fault(text: str) -> Fault | None:
    """Return why `text` cannot be the name of a node, or None if it can. The same rule as `NodeName`."""
    if not 0 < len(text) <= NODE_LETTERS_MAX:
        return f"{len(text)} letters", f"give 1 to {NODE_LETTERS_MAX}"
    if _node_name.search(text):
        return None
    return f"{text!a} cannot name a node", "leave out colons, control characters, and blanks at the ends"


class Codec(Generic[Message]):
    """Encodes and decodes the messages of one protocol. `union` is the union of their types."""

    def __init__(self, union: Any, bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.union, self.bytes_max = union, bytes_max
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(union)

    def encode(self, message: Message) -> bytes:
        """Return the message as bytes. Raise a `WireError` if they are too many."""
        data = self._encoder.encode(message)
        if len(data) > self.bytes_max:
            raise WireError(f"a {type(message).__name__} of {len(data)} bytes is over {self.bytes_max}")
        return data

    def decode(self, data: bytes) -> Message:
        """Return the message of these bytes. Raise a `WireError` if they are no valid message."""
        if len(data) > self.bytes_max:
            raise WireError(f"a message of {len(data)} bytes is over {self.bytes_max}")
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise WireError(f"not a message of ours: {error}") from None
