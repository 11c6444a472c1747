"""What travels through the mesh for MQTT: messages in envelopes, and what directories say to each other.

A payload that is no envelope is one of `trellis pub`: its topic is the overlay topic, its QoS 1.  [docs/mqtt.md]
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.effects import Topic
from trellis.protocols.mqtt.packets import PLAIN, Content
from trellis.protocols.mqtt.topics import PREFIX_LETTERS_MAX
from trellis.protocols.wire import FRAME_BYTES_MAX, Codec, Count, Name, WireError

MAGIC = b"\xc1tm1"  # 0xc1 is never used by MessagePack, and begins no text
PREFIXES_MAX = 1_000  # in one message
KEPT_MAX = 1_000

MqttText = Annotated[str, Meta(max_length=65_535)]
Prefix = Annotated[str, Meta(min_length=1, max_length=PREFIX_LETTERS_MAX)]
Prefixes = Annotated[tuple[Prefix, ...], Meta(max_length=PREFIXES_MAX)]


class Envelope(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    """An application message. `origin`, the mesh's word for its first node, with life and number is its identity."""

    topic: MqttText
    payload: bytes
    qos: Annotated[int, Meta(ge=0, le=2)]
    retain: bool
    client: MqttText  # who published it: a subscription may leave that out (no-local)
    life: Count  # of the node that published it
    number: Count  # its own, over all topics
    stamp_ms: Count  # its wall clock: for expiry, and for which retained message is later
    is_copied: bool = False  # it also travels over the directory
    previous: Count = 0  # its predecessor on the overlay topic, if that one was copied
    before: Count = 0  # its predecessor there, if that one was not
    content: Content = PLAIN


class Introduce(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """Directory: these overlay topics are in use."""

    prefixes: Prefixes


class Copy(msgspec.Struct, frozen=True, array_like=True, tag="c"):
    """Directory: a message on an overlay topic that may be new to you."""

    prefix: Prefix
    message: Envelope


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="a"):
    """To all doors: I hold these wildcards."""

    life: Count
    depth: Count
    patterns: Prefixes


class Who(msgspec.Struct, frozen=True, array_like=True, tag="w"):
    """To all doors: I am new here; who holds wildcards?"""

    life: Count


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    """To all doors: I am not confirmed yet on these overlay topics; go on copying."""

    prefixes: Prefixes


class Recall(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """On an overlay topic: I am new here; which messages are retained?"""


class Kept(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """On an overlay topic: these are retained."""

    origins: Annotated[tuple[Name, ...], Meta(max_length=KEPT_MAX)]  # where each was published
    messages: Annotated[tuple[Envelope, ...], Meta(max_length=KEPT_MAX)]


Said = Recall | Kept | Envelope | Introduce | Copy | Ask | Who | Hold

_CODEC: Codec[Said] = Codec(Said, FRAME_BYTES_MAX)


def wrap(one: Said) -> bytes:
    return MAGIC + _CODEC.encode(one)


def unwrap(payload: bytes) -> Said | None:
    """None: no envelope. Raises WireError where it begins like one and is none."""
    return _CODEC.decode(payload[len(MAGIC) :]) if payload.startswith(MAGIC) else None


def unpack(topic: Topic, payload: bytes) -> tuple[str, bytes] | None:
    """For whoever is no door: topic and payload as the client published them. None: doors talk to each other."""
    try:
        said = unwrap(payload)
    except WireError:
        return topic, payload  # it only begins like an envelope
    if said is None:
        return topic, payload
    return (said.topic, said.payload) if isinstance(said, Envelope) else None
