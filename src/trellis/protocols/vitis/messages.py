"""The messages of Vitis, RVR and OPT.  [VI §III]

| message        | from, to                              | what it says                                              |
| -------------- | ------------------------------------- | --------------------------------------------------------- |
| Newscast, T-Man| as those parts do                     | samples; routing tables, `layer` "table"                  |
| Profile        | every neighbour, once per period      | topics, gateway proposals, relay paths through the receiver|
| Unlink         | a node that left our table            | you are not in my table (any more)                        |
| Relay          | next hop, at once                     | these topics now relay through you, too                   |
| Leave          | every neighbour                       | I go                                                      |
| Notification   | interested neighbours, relay links    | I have this event                                         |
| Pull           | whoever notified                      | send it                                                   |
| Event          | whoever pulled                        | the event                                                 |
| Handover       | next hop                              | an event of a publisher that neither wants nor relays it  |

The profile is the heartbeat [VI Alg. 6]. A node sends it to those in its table and to those that have it in theirs, so
that it serves as the response, too (A-VIT-8); `linked` tells the two apart. Relay state rides on it: what a profile no
longer lists fades. An event's identity is (origin, sequence); a sequence holds the incarnation of its publisher.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.tman import TManReply, TManRequest
from trellis.protocols.wire import TOPICS_MAX, Codec, Count, Name, NodeName, Topics

PAYLOAD_BYTES_MAX = 1 << 18
Hops = Annotated[int, Meta(ge=0, le=100_000)]
Payload = Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)]


class Proposal(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Who connects our cluster to the rendezvous node, from whom we have that, and how far it is.  [VI Alg. 5]"""

    gateway: NodeName
    parent: NodeName
    hops: Annotated[int, Meta(ge=0, le=10_000)]


Proposals = Annotated[tuple[Proposal, ...], Meta(max_length=TOPICS_MAX)]


class Profile(msgspec.Struct, frozen=True, gc=False, tag="profile"):
    incarnation: Count
    linked: bool  # the receiver is in the sender's table
    topics: Topics  # sorted
    proposals: Proposals = ()  # one for each topic, in their order; RVR and OPT have none
    relays: Topics = ()  # the sender's lookups of these topics go on through the receiver
    beside: Annotated[tuple[NodeName, ...], Meta(max_length=2)] = ()  # the sender's successor and predecessor


class Unlink(msgspec.Struct, frozen=True, gc=False, tag="unlink"):
    """Deviation: a message of our own. In the paper a node is forgotten when its profiles stay away [VI Alg. 6, l. 4].
    Links are used both ways here (A-VIT-8), so each end has to know whether the other one still holds it."""


class Relay(msgspec.Struct, frozen=True, gc=False, tag="relay"):
    """Deviation: sent at once where a path changes. Profiles list the same topics once in a round; with these alone a
    change would take a round for each hop of the path [VI §III-B]."""

    topics: Topics


class Leave(msgspec.Struct, frozen=True, gc=False, tag="leave"):
    pass


class Notification(msgspec.Struct, frozen=True, gc=False, tag="notification"):
    topic: Name
    origin: NodeName
    sequence: Count
    hops: Hops  # links crossed when this arrives


class Pull(msgspec.Struct, frozen=True, gc=False, tag="pull"):
    topic: Name
    origin: NodeName
    sequence: Count
    hops: Hops


class Event(msgspec.Struct, frozen=True, gc=False, tag="event"):
    topic: Name
    origin: NodeName
    sequence: Count
    hops: Hops
    payload: Payload = b""


class Handover(msgspec.Struct, frozen=True, gc=False, tag="handover"):
    topic: Name
    origin: NodeName
    sequence: Count
    hops: Hops
    payload: Payload = b""


Gossip = NewscastRequest | NewscastReply | TManRequest | TManReply
CODEC: Codec[msgspec.Struct] = Codec(
    NewscastRequest
    | NewscastReply
    | TManRequest
    | TManReply
    | Profile
    | Unlink
    | Relay
    | Leave
    | Notification
    | Pull
    | Event
    | Handover
)
EVENT_TYPES = (Notification, Pull, Event, Handover)
