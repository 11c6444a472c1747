"""What travels through the mesh for MQTT: messages in envelopes, and what directories say to each other.

A payload that is no envelope is one of `trellis pub` or `trellis.connect`: its topic is the overlay topic, its QoS 1.
One that begins like an envelope travels in an envelope with incarnation 0.  [docs/mqtt.md]
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

MAGIC = b"\xc1tm1"  # 0xc1 is never used by MessagePack, and begins no text
PREFIXES_MAX = 1_000  # in one message
PART_BYTES = 48 << 10  # of prefixes or names in one message
KEPT_MAX = 1_000
CHOSEN_MAX = 64  # groups of shared subscriptions for which the publisher's node chooses; others choose for the rest
MEMBERS_MAX = 4_096
NEVER = 2**53  # a number, or a time in milliseconds, that is never reached
NO_INCARNATION = Incarnation(0)  # of a publication of a native client, and of a node that was only named
_NUMBERS_BYTES = 512  # more than all numbers and marks of an envelope take

Prefix = Annotated[str, Meta(min_length=1, max_length=PREFIX_LETTERS_MAX, pattern=NAME_PATTERN)]
Numbers = Annotated[tuple[Count, ...], Meta(max_length=PREFIXES_MAX)]
Prefixes = Annotated[tuple[Prefix, ...], Meta(max_length=PREFIXES_MAX)]
Chosen = tuple[
    Text, NodeName, IncarnationCount
]  # a group of a shared subscription; the node that hands over, its incarnation


class Envelope(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """A message of a client. It is identified by the node that published it, with incarnation and number."""

    topic: Text
    payload: bytes
    qos: Annotated[int, Meta(ge=0, le=2)]
    retain: bool
    client: Text  # who published it: a subscription may leave that out (no-local)
    incarnation: IncarnationCount  # of the node that published it
    number: Count  # its own, over all topics
    stamp_ms: Count  # its wall clock: for expiry, and for which retained message is later
    is_copied: bool = False  # it also travels over the directory
    previous: Count = 0  # its predecessor on the overlay topic, if that one was copied
    before: Count = 0  # its predecessor there, if that one was not
    content: Content = PLAIN
    chosen: Annotated[tuple[Chosen, ...], Meta(max_length=CHOSEN_MAX)] = ()

    def is_of(self, prefix: Topic, depth: int) -> bool:
        """Return whether clients of MQTT can be given it, and it belongs to this overlay topic."""
        if carried_prefix(self.topic, depth) != prefix:
            return False
        return self.content == PLAIN or self.content.is_sound


class Introduce(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """Directory: these overlay topics are in use."""

    prefixes: Prefixes


class Copy(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Directory: a message on an overlay topic that may be new to you."""

    prefix: Prefix
    message: Envelope


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """To all nodes with a listener: I hold these patterns. Earlier releases send and read the first three fields."""

    incarnation: IncarnationCount
    depth: Count
    patterns: Prefixes
    numbers: Numbers = ()  # of each pattern: drawn anew when it is taken up
    upto: Count = NEVER  # the sender's counter: a pattern with a greater number is newer than this message
    gone: Prefixes = ()  # patterns that were dropped
    is_whole: bool = False  # the sender holds no other patterns
    wants_answer: bool = False  # a SUBACK waits until every node has said `Heard`


class Who(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """To all nodes with a listener: I am new here; who else is there, and who holds wildcards?"""

    incarnation: IncarnationCount
    answers: bool = False  # I shall say `Heard` when I am asked


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """To one node: I have taken in your `Who`, or the patterns with these numbers."""

    node: NodeName
    incarnation: IncarnationCount  # the incarnation that is answered
    numbers: Numbers = ()
    is_to_who: bool = False


class Heard(msgspec.Struct, frozen=True, array_like=True, tag="y"):
    """To all nodes with a listener: answers to some of them."""

    incarnation: IncarnationCount
    answers: Annotated[tuple[Answer, ...], Meta(max_length=PREFIXES_MAX)]
    is_informed: bool = False  # I know every node that joined before me
    members: Annotated[tuple[NodeName, ...], Meta(max_length=MEMBERS_MAX)] = ()  # the nodes that I know
    number: Count = NEVER  # the number of the sender's last publication; earlier releases do not tell it


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="j"):
    """To all nodes with a listener: the mesh brings me these overlay topics; copy no more."""

    incarnation: IncarnationCount
    upto: Count  # the sender's counter: an answer to nothing that is newer
    prefixes: Prefixes


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """To all nodes with a listener: I am not on these overlay topics; copy again, if I hold a pattern that fits."""

    prefixes: Prefixes
    upto: Count = 0


class Bye(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    """To all nodes with a listener: I leave."""

    incarnation: IncarnationCount


class Grouped(msgspec.Struct, frozen=True, array_like=True, tag="g"):
    """To all nodes with a listener: I have members of these groups of shared subscriptions, and of no others."""

    incarnation: IncarnationCount
    number: Count  # grows with each announcement
    keys: Annotated[tuple[Text, ...], Meta(max_length=PREFIXES_MAX)]
    counts: Numbers  # of each group: members that are connected


class Shared(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """To all nodes with members of groups, about messages for a group, or about a node.  [shares.py]"""

    what: Annotated[int, Meta(ge=0, le=15)]
    key: Text  # the group
    node: NodeName  # that published these messages; or the node that this is about
    incarnation: IncarnationCount  # its incarnation
    numbers: Numbers  # of the messages
    by: IncarnationCount  # the speaker's incarnation
    owner: Annotated[str, Meta(max_length=PREFIX_LETTERS_MAX)] = ""  # of a question: the node that should have them


class Recall(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """On an overlay topic: I am new here; which messages are retained?"""


class Kept(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """On an overlay topic: these are retained."""

    origins: Annotated[tuple[NodeName, ...], Meta(max_length=KEPT_MAX)]  # where each was published
    messages: Annotated[tuple[Envelope, ...], Meta(max_length=KEPT_MAX)]


Said = Grouped | Shared | Recall | Kept | Envelope | Introduce | Copy | Ask | Who | Heard | Joined | Hold | Bye

_CODEC: Codec[Said] = Codec(Said, FRAME_BYTES_MAX)


def wrap(one: Said) -> bytes:
    return MAGIC + _CODEC.encode(one)


def fits(message: Envelope, prefix: Topic, bytes_max: int) -> bool:
    """Return whether a message and a copy of it take no more than `bytes_max` bytes, whatever its numbers will be."""
    letters = 2 * len(message.topic) + len(message.client) + message.content.size
    letters += sum(len(key) + len(node) + 4 for key, node, _ in message.chosen)
    if len(message.payload) + 4 * letters + _NUMBERS_BYTES <= bytes_max:
        return True
    if len(message.payload) > bytes_max:
        return False
    try:
        return len(wrap(Copy(prefix, message))) + _NUMBERS_BYTES <= bytes_max
    except WireError:
        return False


def unwrap(payload: bytes) -> Said | None:
    """None: no envelope. Raises WireError where it begins like one and is none."""
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
