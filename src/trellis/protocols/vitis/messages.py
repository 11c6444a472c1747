"""The messages of Vitis, RVR and OPT.  [VI §III]

| message         | receiver                             | meaning                                                    |
| --------------- | ------------------------------------ | ---------------------------------------------------------- |
| Newscast, T-Man | as in those parts                    | samples; routing tables, `layer` "table"                   |
| Profile         | every neighbor, once per period      | topics, gateway proposals, relay paths through the receiver|
| Unlink          | a node that has left our table       | you are not in my table (any more)                         |
| Relay           | next hop, at once                    | these topics are now relayed through you as well           |
| Leave           | every neighbor                       | I leave the mesh                                           |
| Notification    | subscribed neighbors, relay links    | I have this event                                          |
| Pull            | the node that notified               | send me the event                                          |
| Event           | the node that pulled                 | the event                                                  |
| Handover        | next hop                             | an event whose publisher neither subscribes nor relays     |

The profile is the heartbeat [VI Alg. 6]. A node sends it to the nodes in its table and to those that have it in theirs.
So a profile also serves as the answer to one (A-VIT-8), and `linked` tells the two cases apart. Relay state is a part
of the profile: paths that a profile no longer lists end. An event is identified by origin and sequence. The sequence
includes the incarnation of the publisher.
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
    """The gateway that connects a cluster to the rendezvous node.  [VI Alg. 5]

    `parent` is the node from which the sender has the proposal, and `hops` the distance to the gateway. A node that
    proposes itself has itself as parent and 0 hops.
    """

    gateway: NodeName
    parent: NodeName
    hops: Annotated[int, Meta(ge=0, le=10_000)]


Proposals = Annotated[tuple[Proposal, ...], Meta(max_length=TOPICS_MAX)]


class Profile(msgspec.Struct, frozen=True, gc=False, tag="profile"):
    """The heartbeat of a node, with all that its neighbors need to know about it."""

    incarnation: Count
    linked: bool  # Whether the receiver is in the sender's table.
    topics: Topics  # sorted
    proposals: Proposals = ()  # One for each topic, in the same order. RVR and OPT have none.
    relays: Topics = ()  # Topics whose lookups the sender forwards through the receiver.
    beside: Annotated[tuple[NodeName, ...], Meta(max_length=2)] = ()  # the sender's successor and predecessor


class Unlink(msgspec.Struct, frozen=True, gc=False, tag="unlink"):
    """Tell a node that it is not in the sender's table.

    Deviation: a message of our own. In the paper a node is forgotten when its profiles stay away [VI Alg. 6, l. 4].
    Here both ends use a link (A-VIT-8), so each end must know whether the other one still holds it.
    """


class Relay(msgspec.Struct, frozen=True, gc=False, tag="relay"):
    """Ask the next hop to relay these topics.

    Deviation: sent at once where a path changes. Profiles list the same topics once in a round. With profiles alone, a
    change would take a round for each hop of the path [VI §III-B].
    """

    topics: Topics


class Leave(msgspec.Struct, frozen=True, gc=False, tag="leave"):
    """Tell the neighbors that the sender leaves."""

    pass


class Notification(msgspec.Struct, frozen=True, gc=False, tag="notification"):
    """Tell that the sender has an event."""

    topic: Name
    origin: NodeName
    sequence: Count
    hops: Hops  # links crossed when this arrives


class Pull(msgspec.Struct, frozen=True, gc=False, tag="pull"):
    """Ask for an event."""

    topic: Name
    origin: NodeName
    sequence: Count
    hops: Hops


class Event(msgspec.Struct, frozen=True, gc=False, tag="event"):
    """An event, sent to a node that has pulled it."""

    topic: Name
    origin: NodeName
    sequence: Count
    hops: Hops
    payload: Payload = b""


class Handover(msgspec.Struct, frozen=True, gc=False, tag="handover"):
    """An event on its way to a node that is subscribed to its topic or relays it."""

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
