"""What a client and its node say to each other: frames as between nodes (`frames.py`), on a port of their own.

client                       node
Greet                        Welcome, or Turned away
Subscribe, Unsubscribe       Subscribed when what is published from now on is promised; then Message, Missed
Publish                      Taken (acknowledged by `copies` nodes) or NotTaken, under the client's own number
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.live.frames import Reason, pack
from trellis.protocols.delivery.messages import Names, Payload
from trellis.protocols.wire import FRAME_BYTES_MAX, NAME_PATTERN, Codec, Count, Name, NewName, NodeName

CLIENT_PROTOCOL = "trellis-client"
CLIENT_VERSION = 2
CLIENT_VERSION_OLDEST = max(1, CLIENT_VERSION - 1)
CLIENT_NAME_MAX = 128
SESSION_MAX = 2**53 - 1

ClientName = Annotated[str, Meta(min_length=1, max_length=CLIENT_NAME_MAX, pattern=NAME_PATTERN)]


PASSWORD_BYTES_MAX = 4_096
Password = Annotated[bytes, Meta(max_length=PASSWORD_BYTES_MAX)]


class Greet(msgspec.Struct, frozen=True, gc=False, tag="greet"):
    protocol: Reason
    version: Count
    client: ClientName
    session: Count = 0
    """Drawn at random when the client begins, and kept while it reconnects. A publication with the same client, session
    and number is the same publication. 0: a client of version 1; its node draws one for each stream."""

    user: NewName | None = None
    password: Password | None = None
    """Who the client says it is, and the proof: a password, or a token. An older node skips both."""


class Subscribe(msgspec.Struct, frozen=True, gc=False, tag="subscribe"):
    topic: NewName
    number: Count = 0
    """The client's own number of this request. The answer repeats it. 0: an older client, which sends none."""


class Unsubscribe(msgspec.Struct, frozen=True, gc=False, tag="unsubscribe"):
    topic: NewName


class Publish(msgspec.Struct, frozen=True, gc=False, tag="publish"):
    number: Count
    topic: NewName
    payload: Payload


class Welcome(msgspec.Struct, frozen=True, gc=False, tag="welcome"):
    node: NodeName
    cluster: Name
    life: Count
    version: Count = 1  # the newest that the node speaks; both go on in the lesser of the two


class TurnedAway(msgspec.Struct, frozen=True, gc=False, tag="turned-away"):
    text: Reason


class Subscribed(msgspec.Struct, frozen=True, gc=False, tag="subscribed"):
    topic: Name
    number: Count = 0
    """The number of the last Subscribe for this topic. 0: it had none, or the node is older and knows no numbers."""


class Taken(msgspec.Struct, frozen=True, gc=False, tag="taken"):
    number: Count
    sequence: Count
    copies: Count
    holders: Names


class NotTaken(msgspec.Struct, frozen=True, gc=False, tag="not-taken"):
    number: Count
    reason: Reason


class Message(msgspec.Struct, frozen=True, gc=False, tag="message"):
    """A publication, as a subscriber gets it: by whom, and the number that its publisher gave it on this topic."""

    topic: Name
    origin: NodeName
    sequence: Count
    payload: Payload


class Missed(msgspec.Struct, frozen=True, gc=False, tag="missed"):
    """These messages of a publisher will never come."""

    topic: Name
    origin: NodeName
    first: Count
    last: Count
    why: Reason


ToNode = Greet | Subscribe | Unsubscribe | Publish
ToClient = Welcome | TurnedAway | Subscribed | Taken | NotTaken | Message | Missed

TO_NODE: Codec[ToNode] = Codec(ToNode, FRAME_BYTES_MAX)
TO_CLIENT: Codec[ToClient] = Codec(ToClient, FRAME_BYTES_MAX)
TALK_BYTES_MAX = FRAME_BYTES_MAX


def pack_to_node(message: ToNode) -> bytes:
    return pack(TO_NODE.encode(message))


def pack_to_client(message: ToClient) -> bytes:
    return pack(TO_CLIENT.encode(message))
