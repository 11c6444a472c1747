"""What travels through the mesh for MQTT: messages of clients in envelopes, and what nodes tell each other.

A payload that is no envelope was published by `trellis pub` or `trellis.connect`. Its MQTT topic is its overlay topic,
and its QoS is 1. If such a payload begins like an envelope, it is put into an envelope with `NO_INCARNATION`. All
structs but `Content` are encoded as arrays: the order of their fields is the format, and their names are not sent.
[docs/mqtt.md]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.effects import Incarnation, Topic
from trellis.protocols.mqtt.packets import PLAIN, Content, Text
from trellis.protocols.mqtt.topics import PREFIX_LETTERS_MAX, carried_prefix
from trellis.protocols.wire import FRAME_BYTES_MAX, NAME_PATTERN, Codec, Count, IncarnationCount, NodeName, WireError

MAGIC = b"\xc1tm1"  # 0xc1 is never used by MessagePack, and begins no UTF-8 text
PREFIXES_MAX = 1_000  # most overlay topics, patterns or numbers in one message
PART_BYTES = 48 << 10  # most bytes of overlay topics or names in one message
KEPT_MAX = 1_000  # most retained messages in one answer
# Most groups of shared subscriptions for which the publisher's node chooses. Other nodes choose for the rest.
CHOSEN_MAX = 64
MEMBERS_MAX = 4_096  # most nodes with a listener or sidecar
NEVER = 2**53  # a number, or a time in milliseconds, that is never reached
NO_INCARNATION = Incarnation(0)  # of a publication of a native client, and of a node that was only named
_NUMBERS_BYTES = 512  # more than all numbers and flags of an envelope take

Prefix = Annotated[str, Meta(min_length=1, max_length=PREFIX_LETTERS_MAX, pattern=NAME_PATTERN)]
Numbers = Annotated[tuple[Count, ...], Meta(max_length=PREFIXES_MAX)]
Prefixes = Annotated[tuple[Prefix, ...], Meta(max_length=PREFIXES_MAX)]
# A group of a shared subscription; the node that must give the message to a member; that node's incarnation.
Chosen = tuple[Text, NodeName, IncarnationCount]
PARTS_MAX = 16_384  # most parts of one message
# Number of a message's first part; index of this part, from 0; number of parts.
Part = tuple[Count, Annotated[int, Meta(ge=0, lt=PARTS_MAX)], Annotated[int, Meta(ge=1, le=PARTS_MAX)]]


class Envelope(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """A message of a client. It is identified by the node that published it, with incarnation and number."""

    topic: Text
    payload: bytes
    qos: Annotated[int, Meta(ge=0, le=2)]
    retain: bool
    client: Text  # the client that published it: a no-local subscription leaves out its own messages
    incarnation: IncarnationCount  # of the node that published it
    number: Count  # That node's number for the message. It grows over all topics.
    stamp_ms: Count  # that node's wall clock: decides expiry, and which of two retained messages is later
    is_copied: bool = False  # It also travels over directories.
    previous: Count = 0  # number of its predecessor on the overlay topic, if that one was copied; else 0
    before: Count = 0  # number of its predecessor on the overlay topic, if that one was not copied; else 0
    content: Content = PLAIN
    chosen: Annotated[tuple[Chosen, ...], Meta(max_length=CHOSEN_MAX)] = ()
    part: Part | None = None  # It is a part of a larger message.

    def is_of(self, prefix: Topic, depth: int) -> bool:
        """Return whether the message belongs to this overlay topic, and MQTT clients can be given it."""
        if carried_prefix(self.topic, depth) != prefix:
            return False
        return self.content == PLAIN or self.content.is_sound


class Introduce(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """In a directory: these overlay topics are in use."""

    prefixes: Prefixes


class Copy(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """In a directory: a message on an overlay topic that may be new to some holders."""

    prefix: Prefix
    message: Envelope


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """To all nodes: the sender holds these patterns. Earlier releases send and read the first three fields."""

    incarnation: IncarnationCount
    depth: Count
    patterns: Prefixes
    numbers: Numbers = ()  # a number for each pattern, drawn when it was taken up
    upto: Count = NEVER  # the sender's counter: a pattern with a greater number is newer than this message
    gone: Prefixes = ()  # patterns that the sender has dropped
    is_whole: bool = False  # The sender holds no other patterns.
    wants_answer: bool = False  # A SUBACK waits until every node has said `Heard`.


class Who(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """To all nodes: the sender is new, and asks which other nodes there are and which patterns they hold."""

    incarnation: IncarnationCount
    answers: bool = False  # The sender will answer `Ask` with `Heard`.


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """To one node: the sender has taken in its `Who`, or the patterns with these numbers."""

    node: NodeName
    incarnation: IncarnationCount  # the incarnation that is answered
    numbers: Numbers = ()
    is_to_who: bool = False


class Heard(msgspec.Struct, frozen=True, array_like=True, tag="y"):
    """To all nodes: answers to some of them."""

    incarnation: IncarnationCount
    answers: Annotated[tuple[Answer, ...], Meta(max_length=PREFIXES_MAX)]
    is_informed: bool = False  # The sender knows every node that joined before it.
    members: Annotated[tuple[NodeName, ...], Meta(max_length=MEMBERS_MAX)] = ()  # the nodes that the sender knows
    number: Count = NEVER  # Number of the sender's last publication. Earlier releases do not send it.


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="j"):
    """To all nodes: the mesh brings the sender these overlay topics, so copies are no longer needed."""

    incarnation: IncarnationCount
    upto: Count  # the sender's counter: this answers no pattern with a greater number
    prefixes: Prefixes


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """To all nodes: the sender left these overlay topics. Copy again, if it holds a pattern that fits."""

    prefixes: Prefixes
    upto: Count = 0


class Bye(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """To all nodes: the sender leaves."""

    incarnation: IncarnationCount


class Grouped(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """To all nodes: the sender has members of these groups of shared subscriptions, and of no others."""

    incarnation: IncarnationCount
    number: Count  # grows with each announcement
    keys: Annotated[tuple[Text, ...], Meta(max_length=PREFIXES_MAX)]
    counts: Numbers  # connected members of each group


class Shared(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """To all nodes with members of groups: about messages for a group, or about a node.  [shares.py]"""

    what: Annotated[int, Meta(ge=0, le=15)]  # one of `TAKEN`, `MINE`, ... of `shares.py`
    key: Text  # the group
    node: NodeName  # the node that published the messages, or the node that this is about
    incarnation: IncarnationCount  # incarnation of `node`
    numbers: Numbers  # numbers of the messages
    by: IncarnationCount  # incarnation of the sender
    # of a question: the node that should have the messages
    owner: Annotated[str, Meta(max_length=PREFIX_LETTERS_MAX)] = ""


class Recall(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """On an overlay topic: the sender is new there and asks which messages are retained."""


class Kept(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """On an overlay topic: these messages are retained."""

    origins: Annotated[tuple[NodeName, ...], Meta(max_length=KEPT_MAX)]  # the node that published each message
    messages: Annotated[tuple[Envelope, ...], Meta(max_length=KEPT_MAX)]


class Keep(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    """To one node: take part in these overlay topics, and keep what is retained there.  [keepers.py]"""

    incarnation: IncarnationCount
    keeper: NodeName
    prefixes: Prefixes


class WillTold(msgspec.Struct, frozen=True, array_like=True):
    """The will of a client, as its node tells it to others."""

    client: Text
    user: Text | None  # the client's user, for the access rules
    topic: Text
    payload: bytes
    qos: Annotated[int, Meta(ge=0, le=2)]
    retain: bool
    delay_s: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)] = 0
    content: Content = PLAIN


class Testament(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """To all nodes: the keepers keep these wills of the sender's clients.  [testaments.py]"""

    incarnation: IncarnationCount
    keepers: Annotated[tuple[NodeName, ...], Meta(max_length=16)]
    wills: Annotated[tuple[WillTold, ...], Meta(max_length=PREFIXES_MAX)]
    gone: Annotated[tuple[Text, ...], Meta(max_length=PREFIXES_MAX)]  # clients that have no will any more
    is_whole: bool  # The sender has no other wills than these, and those of the messages that follow.


class Beat(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    """To all nodes: the sender is there. Only nodes with wills, and their keepers, say so."""

    incarnation: IncarnationCount


class Executed(msgspec.Struct, frozen=True, array_like=True, tag="x"):
    """To all nodes: the sender publishes the wills of a node that has crashed."""

    node: NodeName
    incarnation: IncarnationCount


Said = (
    Keep
    | Testament
    | Beat
    | Executed
    | Grouped
    | Shared
    | Recall
    | Kept
    | Envelope
    | Introduce
    | Copy
    | Ask
    | Who
    | Heard
    | Joined
    | Hold
    | Bye
)

_CODEC: Codec[Said] = Codec(Said, FRAME_BYTES_MAX)


def wrap(said: Said) -> bytes:
    """Return the bytes of an envelope or another statement."""
    return MAGIC + _CODEC.encode(said)


def fits(message: Envelope, prefix: Topic, bytes_max: int) -> bool:
    """Return whether a message and a copy of it take at most `bytes_max` bytes, whatever its numbers will be."""
    if len(message.payload) <= room_for_payload(message, bytes_max):
        return True
    if len(message.payload) > bytes_max:
        return False
    try:
        return len(wrap(Copy(prefix, message))) + _NUMBERS_BYTES <= bytes_max
    except WireError:
        return False


def room_for_payload(message: Envelope, bytes_max: int) -> int:
    """Return how many bytes of payload certainly fit into `bytes_max` together with the other fields of a message."""
    letters = 2 * len(message.topic) + len(message.client) + message.content.size
    letters += sum(len(key) + len(node) + 4 for key, node, _ in message.chosen)
    return bytes_max - 4 * letters - _NUMBERS_BYTES


def unwrap(payload: bytes) -> Said | None:
    """Return what a payload says, or None if it is no envelope. Raises WireError if it begins like one and is none."""
    return _CODEC.decode(payload[len(MAGIC) :]) if payload.startswith(MAGIC) else None


def parts_of(names: Iterable[str]) -> Iterator[list[str]]:
    """Split names into lists that each fit into one message."""
    part: list[str] = []
    size = 0
    for name in names:
        size += len(name.encode()) + 12
        if part and (size > PART_BYTES or len(part) >= PREFIXES_MAX):
            yield part
            part, size = [], len(name.encode()) + 12
        part.append(name)
    if part:
        yield part
