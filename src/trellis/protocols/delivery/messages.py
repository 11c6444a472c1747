"""The messages of the delivery protocol.

Neighbors exchange `Frame`s only. Frames are numbered, acknowledged and processed in order (`link.py`). A frame carries
items:

| about    | items                                                                                                    |
| -------- | -------------------------------------------------------------------------------------------------------- |
| messages | Push, Announce, Pull, Gone, Prune                                                                        |
| topics   | Compare: what the sender holds and has seen of a shared topic; Part: the sender takes no part in a topic |
| copies   | Held: these nodes hold a message; Ask: which nodes do?                                                   |
| leaving  | Leaving: the sender is about to leave a topic; Stay: whether the sender stays                            |

Other messages travel along the ring, outside of links: Register, Registered, Unregister, AskHome, HomeTells.

A message is identified by topic, origin (the publisher's node), incarnation of the origin, and sequence. The field
order of items and the tags of all messages are the wire format. Names of items' fields are not sent.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.wire import Count, IncarnationCount, Name, NodeName, Topics

PAYLOAD_BYTES_MAX = 512 << 10
RANGES_MAX = 512  # Most numbers in the ranges of one item: two for each range.
STREAMS_MAX = 256  # Most streams in one comparison item. A longer comparison travels in several items.
ITEMS_MAX = 512  # Most items in a received frame. We send at most half as many.
NAMES_MAX = 64  # Most names in one item or answer.

HOPS_MAX = 128  # Most steps of a message along the ring to a home.
REGISTERED_MAX = 4_096  # Most topics in one message to a home. Each of them may have to be forwarded alone.

Number = Annotated[int, Meta(ge=0, le=2**62)]  # A session number.
Flat = Annotated[tuple[Count, ...], Meta(max_length=RANGES_MAX)]  # Ranges of sequences: first, last, first, last, ...
Names = Annotated[tuple[NodeName, ...], Meta(max_length=NAMES_MAX)]
Registering = Annotated[tuple[Name, ...], Meta(max_length=REGISTERED_MAX)]
Payload = Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]


class Push(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="p"):
    """A message with its payload."""

    topic: Name
    origin: NodeName
    incarnation: IncarnationCount
    sequence: Count
    floor: Count  # The oldest sequence that the origin still keeps.
    age_ms: Count  # Time since the publication, without the time spent on the network.
    needs: Annotated[int, Meta(ge=0, le=NAMES_MAX)]  # How many more holders the publisher's node wants to learn of.
    is_eager: bool  # True: sent along the tree. False: sent because the receiver was known to lack it.
    payload: Payload
    pause_ms: Count = 0  # Time between the publication of the previous sequence and of this one.


class Announce(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="a"):
    """The sender holds these messages."""

    topic: Name
    origin: NodeName
    incarnation: IncarnationCount
    ranges: Flat


class Pull(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="l"):
    """The sender lacks these messages and asks for them."""

    topic: Name
    origin: NodeName
    incarnation: IncarnationCount
    ranges: Flat


class Gone(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="g"):
    """The sender does not hold these messages, so it cannot send them."""

    topic: Name
    origin: NodeName
    incarnation: IncarnationCount
    ranges: Flat


class Prune(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="u"):
    """The receiver of an eager push already had the message: from now on, announce instead of pushing."""

    topic: Name


class Seen(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What the sender of a comparison has seen of one stream."""

    origin: NodeName
    incarnation: IncarnationCount
    handed: Count  # All sequences up to this one were delivered to the application or never will be. 0: not known.
    floor: Count
    ranges: Flat  # The sequences that the sender has received, still kept or not.


class Compare(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="c"):
    """What the sender has seen of a topic, so that the receiver can send what is missing."""

    topic: Name
    streams: Annotated[tuple[Seen, ...], Meta(max_length=STREAMS_MAX)]
    is_settled: bool  # Whether `handed` may serve as a baseline for a new subscriber.
    is_leaving: bool  # Whether the sender is about to leave the topic.
    asks: bool  # The receiver must compare too: what the sender was told before may be lost.
    more: bool  # The comparison continues in the next item.


class Part(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="x"):
    """The sender does not take part in this topic."""

    topic: Name


class Held(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="h"):
    """These nodes hold a message. Sent back along the path to the publisher's node."""

    topic: Name
    origin: NodeName
    incarnation: IncarnationCount
    sequence: Count
    names: Names


class Ask(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="q"):
    """Asks which nodes hold a message."""

    topic: Name
    origin: NodeName
    incarnation: IncarnationCount
    sequence: Count
    needs: Annotated[int, Meta(ge=0, le=NAMES_MAX)]
    hops: Annotated[int, Meta(ge=0, le=NAMES_MAX)]  # How many more steps the question may be passed on.


class Leaving(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="v"):
    """The sender will leave this topic as soon as others hold its messages."""

    topic: Name


class Stay(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="s"):
    """The answer to `Leaving`: whether the sender stays in the topic and counts as a holder."""

    topic: Name
    stays: bool


Item = Push | Announce | Pull | Gone | Prune | Compare | Part | Held | Ask | Leaving | Stay


class Frame(msgspec.Struct, frozen=True, tag="frame"):
    """One numbered packet of a link's session, with its items and an acknowledgement of the other direction."""

    session: Number  # The sender's session.
    number: Count  # Number of this frame in the session, from 1. 0: the frame is only an acknowledgement.
    heard: Number  # The receiver's session that the sender currently accepts. 0: none yet.
    upto: Count  # All frames of `heard` up to this number have arrived.
    items: Annotated[tuple[Item, ...], Meta(max_length=ITEMS_MAX)] = ()


# Through the ring


class Register(msgspec.Struct, frozen=True, gc=False, tag="register"):
    """`node` subscribes to these topics. Sent step by step along the ring to their home."""

    node: NodeName
    topics: Registering
    hops: Count = 0
    # Set in the copy that a home sends to its heir: the start of the home's range. Without topics, the copy says that
    # the heir now has all registrations.
    heir_of: NodeName | None = None
    number: Count = 0  # How often `node` has unsubscribed from any topic, plus one. The answer repeats it.


class Registered(msgspec.Struct, frozen=True, gc=False, tag="registered"):
    """The home's answer to `Register`."""

    topics: Topics
    # Set in the answer of an heir to its home: the heir has these registrations of that node.
    copy_of: NodeName | None = None
    number: Count = 0  # That of the registration. Earlier releases do not repeat it; 0 answers any registration.


class Unregister(msgspec.Struct, frozen=True, gc=False, tag="unregister"):
    """`node` no longer subscribes to these topics."""

    node: NodeName
    topics: Registering
    hops: Count = 0


class AskHome(msgspec.Struct, frozen=True, gc=False, tag="ask-home"):
    """Asks the home of a topic who subscribes to it."""

    node: NodeName
    topic: Name
    number: Count  # Number of the question, counted by the node that asks.
    hops: Count = 0


class HomeTells(msgspec.Struct, frozen=True, gc=False, tag="home-tells"):
    """The home's answer to `AskHome`."""

    topic: Name
    number: Count
    names: Names  # Some of the subscribers, at most `sample_max`.
    total: Count  # How many subscribers there are.
    is_sure: bool  # The node has been home for long enough that every subscriber has registered with it.


HomeMessage = Register | Registered | Unregister | AskHome | HomeTells
DeliveryMessage = Frame | HomeMessage
