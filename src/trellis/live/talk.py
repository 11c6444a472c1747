"""The messages between a native client and its node, on the client port. Their frames are those of `frames.py`.

client         answers of the node
Greet          Welcome, or TurnedAway
Subscribe      Subscribed, when all later publications are promised to the node; then Message and Missed
SubscribeKept  Subscribed, as above; then Turn and Missed. The subscription outlives the stream  [docs/durable.md]
Got            none
Unsubscribe    none
Publish        Taken (`copies` nodes hold it) or NotTaken, both with the number of the Publish

The node may send TurnedAway at any time. It then closes the stream.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.live.frames import Reason, pack
from trellis.protocols.delivery.messages import Names, Payload
from trellis.protocols.wire import FRAME_BYTES_MAX, NAME_PATTERN, Codec, Count, Name, NewName, NodeName

CLIENT_PROTOCOL = "trellis-client"
CLIENT_VERSION = 2  # newest version of the protocol that this code speaks
CLIENT_VERSION_OLDEST = max(1, CLIENT_VERSION - 1)  # and the oldest
CLIENT_NAME_MAX = 128
SESSION_MAX = 2**53 - 1

ClientName = Annotated[str, Meta(min_length=1, max_length=CLIENT_NAME_MAX, pattern=NAME_PATTERN)]


PASSWORD_BYTES_MAX = 4_096
Password = Annotated[bytes, Meta(max_length=PASSWORD_BYTES_MAX)]


class Greet(msgspec.Struct, frozen=True, gc=False, tag="greet"):
    """The first message of a client."""

    protocol: Reason
    version: Count
    client: ClientName
    session: Count = 0
    """A random number that the client draws when it starts, and keeps when it reconnects. Two publications with the
    same client, session and number are the same publication. 0: a client of version 1, which has no session number. Its
    node draws one for each stream."""

    user: NewName | None = None
    password: Password | None = None
    """The user that the client claims to be, and the proof: a password, or a token. Older nodes ignore both fields."""


class Subscribe(msgspec.Struct, frozen=True, gc=False, tag="subscribe"):
    """Asks for the messages of a topic."""

    topic: NewName
    number: Count = 0
    """The client's own number for this request. The answer repeats it. 0: an older client, which sends none."""


class SubscribeKept(msgspec.Struct, frozen=True, gc=False, tag="subscribe-kept"):
    """Asks for the messages of a topic, also for those that come while the client is away. The node needs a store."""

    topic: NewName
    number: Count
    after: Count  # the last position that the client has got; 0: none that it remembers


class Got(msgspec.Struct, frozen=True, gc=False, tag="got"):
    """The application has all messages up to this position. The node need not keep them for it."""

    position: Count


class Unsubscribe(msgspec.Struct, frozen=True, gc=False, tag="unsubscribe"):
    """Ends the subscription to a topic."""

    topic: NewName


class Publish(msgspec.Struct, frozen=True, gc=False, tag="publish"):
    """Publishes a message."""

    number: Count  # the client's own number for this publication in its session
    topic: NewName
    payload: Payload


class Welcome(msgspec.Struct, frozen=True, gc=False, tag="welcome"):
    """The node accepts the client."""

    node: NodeName
    cluster: Name
    life: Count  # the incarnation of the node
    version: Count = 1  # The newest that the node speaks. Both ends then use the older one of their newest versions.


class TurnedAway(msgspec.Struct, frozen=True, gc=False, tag="turned-away"):
    """The node refuses the client or its request, and closes the stream. `text` says why."""

    text: Reason


class Subscribed(msgspec.Struct, frozen=True, gc=False, tag="subscribed"):
    """The subscription is confirmed: messages that are published from now on are promised to the node."""

    topic: Name
    number: Count = 0
    """The number of the latest Subscribe for this topic. 0: it had none, or the node is too old to know numbers."""


class Taken(msgspec.Struct, frozen=True, gc=False, tag="taken"):
    """A publication is acknowledged."""

    number: Count  # of the Publish
    sequence: Count  # the number that the node gave it on its topic
    copies: Count  # number of nodes that hold it
    holders: Names  # their names, perhaps not all


class NotTaken(msgspec.Struct, frozen=True, gc=False, tag="not-taken"):
    """A publication is not acknowledged: it was refused, or too few nodes hold it in time."""

    number: Count  # of the Publish
    reason: Reason


class Message(msgspec.Struct, frozen=True, gc=False, tag="message"):
    """A publication, as a subscriber gets it."""

    topic: Name
    origin: NodeName  # the node at which it was published
    sequence: Count  # the number that this node gave it on this topic
    payload: Payload


class Turn(msgspec.Struct, frozen=True, gc=False, tag="turn"):
    """A publication, as a durable subscriber gets it."""

    position: Count  # Grows from message to message. It means the same message for ever.
    topic: Name
    origin: NodeName
    sequence: Count
    payload: Payload


class Missed(msgspec.Struct, frozen=True, gc=False, tag="missed"):
    """The messages `first` to `last` of the node `origin` on a topic will never come."""

    topic: Name
    origin: NodeName
    first: Count
    last: Count
    why: Reason


ToNode = Greet | Subscribe | SubscribeKept | Got | Unsubscribe | Publish
ToClient = Welcome | TurnedAway | Subscribed | Taken | NotTaken | Message | Turn | Missed

TO_NODE: Codec[ToNode] = Codec(ToNode, FRAME_BYTES_MAX)
TO_CLIENT: Codec[ToClient] = Codec(ToClient, FRAME_BYTES_MAX)
TALK_BYTES_MAX = FRAME_BYTES_MAX


def pack_to_node(message: ToNode) -> bytes:
    """Return a message of a client as a frame."""
    return pack(TO_NODE.encode(message))


def pack_to_client(message: ToClient) -> bytes:
    """Return a message of a node as a frame."""
    return pack(TO_CLIENT.encode(message))
