"""What delivery parts say to each other.

`Frame` is all that crosses an overlay link: numbered, acknowledged, in order (`link.py`). In it travel items:

| about    | items                                                                                        |
| -------- | -------------------------------------------------------------------------------------------- |
| messages | Push, Announce, Pull, Gone, Prune                                                            |
| topics   | Compare: what I hold and have seen of a topic that we share; Part: I take no part in it      |
| copies   | Held: these nodes hold it; Ask: who does?                                                    |
| leaving  | Leaving: I shall go from this topic; Stay: whether I stay, and what I have seen              |

Beside the links, through the ring: Register, Registered, Unregister, AskHome, HomeTells.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.wire import Count, Name, NodeName, Topics

PAYLOAD_BYTES_MAX = 512 << 10
RANGES_MAX = 512  # numbers in one item: two per range
STREAMS_MAX = 256  # streams in one comparison; a larger one travels in several
ITEMS_MAX = 512  # of one frame; we put in half of that at most
NAMES_MAX = 64

HOPS_MAX = 128  # of a message on its way to a home
REGISTERED_MAX = 4_096  # topics in one message to a home: each of them may have to travel on alone

Number = Annotated[int, Meta(ge=0, le=2**62)]
Flat = Annotated[tuple[Count, ...], Meta(max_length=RANGES_MAX)]
Names = Annotated[tuple[NodeName, ...], Meta(max_length=NAMES_MAX)]
Registering = Annotated[tuple[Name, ...], Meta(max_length=REGISTERED_MAX)]
Payload = Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]


class Push(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="p"):
    """The message itself."""

    topic: Name
    origin: NodeName
    life: Count
    sequence: Count
    floor: Count  # the oldest sequence that its origin still keeps
    age_ms: Count
    needs: Annotated[int, Meta(ge=0, le=NAMES_MAX)]  # how many more holders its publisher wants to hear of
    is_eager: bool  # sent along the tree, not because the receiver was found to lack it
    payload: Payload
    pause_ms: Count = 0  # between the publication of the sequence before this one and of this one, at the origin


class Announce(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="a"):
    """I hold these."""

    topic: Name
    origin: NodeName
    life: Count
    ranges: Flat


class Pull(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="l"):
    topic: Name
    origin: NodeName
    life: Count
    ranges: Flat


class Gone(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="g"):
    """I cannot give these."""

    topic: Name
    origin: NodeName
    life: Count
    ranges: Flat


class Prune(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="u"):
    """What you pushed was here already: announce from now on."""

    topic: Name


class Seen(msgspec.Struct, frozen=True, gc=False, array_like=True):
    origin: NodeName
    life: Count
    handed: Count  # all up to here was handed over, or will never be; 0: the sender knows no such number
    floor: Count
    ranges: Flat


class Compare(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="c"):
    topic: Name
    streams: Annotated[tuple[Seen, ...], Meta(max_length=STREAMS_MAX)]
    is_settled: bool  # `handed` may serve as a baseline
    is_leaving: bool
    asks: bool  # compare as well: what I sent you before may be gone
    more: bool  # the comparison goes on in the next item


class Part(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="x"):
    topic: Name


class Held(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="h"):
    topic: Name
    origin: NodeName
    life: Count
    sequence: Count
    names: Names


class Ask(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="q"):
    topic: Name
    origin: NodeName
    life: Count
    sequence: Count
    needs: Annotated[int, Meta(ge=0, le=NAMES_MAX)]
    hops: Annotated[int, Meta(ge=0, le=NAMES_MAX)]  # how far the question still goes


class Leaving(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="v"):
    topic: Name


class Stay(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="s"):
    topic: Name
    stays: bool


Item = Push | Announce | Pull | Gone | Prune | Compare | Part | Held | Ask | Leaving | Stay


class Frame(msgspec.Struct, frozen=True, tag="frame"):
    session: Number  # the sender's
    number: Count  # of this frame in the session, from 1; 0: an acknowledgement alone
    heard: Number  # the receiver's session that the sender takes part in; 0: none yet
    upto: Count  # frames of it that have come without a gap
    items: Annotated[tuple[Item, ...], Meta(max_length=ITEMS_MAX)] = ()


# Through the ring


class Register(msgspec.Struct, frozen=True, gc=False, tag="register"):
    """I subscribe to these. To their home location, from step to step."""

    node: NodeName
    topics: Registering
    hops: Count = 0
    # A home gives its heir a copy: the start of the home's range. Without topics: the heir has all registrations.
    heir_of: NodeName | None = None


class Registered(msgspec.Struct, frozen=True, gc=False, tag="registered"):
    topics: Topics
    copy_of: NodeName | None = None  # an heir answers its home: it has these registrations of that node


class Unregister(msgspec.Struct, frozen=True, gc=False, tag="unregister"):
    node: NodeName
    topics: Registering
    hops: Count = 0


class AskHome(msgspec.Struct, frozen=True, gc=False, tag="ask-home"):
    """Who subscribes to this topic?"""

    node: NodeName
    topic: Name
    number: Count  # of the question
    hops: Count = 0


class HomeTells(msgspec.Struct, frozen=True, gc=False, tag="home-tells"):
    topic: Name
    number: Count
    names: Names  # some of them
    total: Count  # how many there are
    is_sure: bool  # home for long enough to have heard of all


HomeMessage = Register | Registered | Unregister | AskHome | HomeTells
DeliveryMessage = Frame | HomeMessage
