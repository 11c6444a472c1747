"""The messages of Magnet, beside those of its two rings.  [MG §3]

| message            | from, to                          | for                                                       |
| ------------------ | --------------------------------- | --------------------------------------------------------- |
| `ToHome`           | hop by hop on the control ring    | brings its body to home(t)                                |
| `Inquire`, `View`  | joiner to home(t), and back       | a sample before there is a place (A-MAG-19)               |
| `SampleUp`, `View` | up and down the membership tree   | sampling rounds [§3.4]; `SamplesUp`: of several topics    |
| `Place`, `Placed`  | joiner to the most similar node   | a label [Alg. 1]; `NoPlace`: come again                   |
| `JoinAt`, `Climb`  | joiner to home(t), or to p_s      | phases 1 and 2 of Alg. 2; `NotInTree`: not here           |
| `Descend`          | down the greedy route             | phase 3: makes forwarders and, in the end, a child        |
| `Prune`, `Orphan`  | child to parent, parent to child  | the tree link is over                                     |
| `Move`             | parent to child                   | it will be over: find another way                         |
| `Ping`, `Pong`     | child to parent, and back         | heartbeats, with the root's count                         |
| `Publication`      | down the tree                     | what was published                                        |
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.oscar.labels import LabelField
from trellis.protocols.oscar.messages import Hops, OscarMessage, Peer, Peers
from trellis.protocols.wire import TOPICS_MAX, Codec, Count, Name, NodeName, Topics

SAMPLE_MAX = 1_024
PARTS_MAX = 32
PAYLOAD_BYTES_MAX = 512 * 1_024


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A subscriber and its interest: what view(p) is made of.  [MG §2.1]"""

    node: NodeName
    interest: Topics
    incarnation: Count = 1
    version: Count = 0


Sample = Annotated[tuple[Entry, ...], Meta(max_length=SAMPLE_MAX)]


class Inquire(msgspec.Struct, frozen=True, gc=False, tag="inquire"):
    origin: NodeName


class JoinAt(msgspec.Struct, frozen=True, gc=False, tag="join-at"):
    joiner: Peer
    count: Count  # the newest count of the root that the joiner knows


class Publish(msgspec.Struct, frozen=True, gc=False, tag="publish"):
    origin: NodeName
    sequence: Count
    payload: Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)] = b""


class ToHome(msgspec.Struct, frozen=True, gc=False, tag="to-home"):
    topic: Name
    body: Inquire | JoinAt | Publish
    hops: Hops = 0
    arriving: bool = False  # the sender is next below the topic's place, so the receiver should be its home


class View(msgspec.Struct, frozen=True, gc=False, tag="view"):
    topic: Name
    home: NodeName
    sample: Sample
    round: Count  # of the topic, from home to home, so that late ones are known; 0: the answer to an Inquire


class SampleUp(msgspec.Struct, frozen=True, gc=False, tag="sample-up"):
    topic: Name
    sample: Sample
    count: Count  # subscribers in the subtree
    seen: Count  # the newest round that came down


class SamplesUp(msgspec.Struct, frozen=True, gc=False, tag="samples-up"):
    """A round: all that goes to the same parent. Its topics are many, its next hops are few."""

    parts: Annotated[tuple[SampleUp, ...], Meta(max_length=PARTS_MAX)]


class Place(msgspec.Struct, frozen=True, gc=False, tag="place"):
    incarnation: Count
    version: Count  # of the place that is asked for


class Placed(msgspec.Struct, frozen=True, gc=False, tag="placed"):
    label: LabelField
    peers: Peers  # around it


class NoPlace(msgspec.Struct, frozen=True, gc=False, tag="no-place"):
    later: bool  # True: the ring makes room, come again; False: the sender has no place itself


class Climb(msgspec.Struct, frozen=True, gc=False, tag="climb"):
    topic: Name
    joiner: Peer
    hops: Hops = 0


class NotInTree(msgspec.Struct, frozen=True, gc=False, tag="not-in-tree"):
    topic: Name


class Descend(msgspec.Struct, frozen=True, gc=False, tag="descend"):
    topic: Name
    joiner: Peer
    root: Peer
    count: Count
    hops: Hops = 0


class Prune(msgspec.Struct, frozen=True, gc=False, tag="prune"):
    """I am no longer your child."""

    topics: Topics


class Orphan(msgspec.Struct, frozen=True, gc=False, tag="orphan"):
    """You are not my child."""

    topics: Topics


class Move(msgspec.Struct, frozen=True, gc=False, tag="tree-move"):
    """You are my child until you have another parent; look for one."""

    topics: Topics


class Ping(msgspec.Struct, frozen=True, gc=False, tag="tree-ping"):
    """You are my parent in these."""

    topics: Topics


class Pong(msgspec.Struct, frozen=True, gc=False, tag="tree-pong"):
    topics: Topics
    counts: Annotated[tuple[Count, ...], Meta(max_length=TOPICS_MAX)]  # of the root; 0: you are not my child


class Publication(msgspec.Struct, frozen=True, gc=False, tag="publication"):
    topic: Name
    origin: NodeName
    sequence: Count
    hops: Hops  # links crossed below the home location, this one counted
    payload: Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)] = b""


MagnetControl = (
    ToHome
    | View
    | SampleUp
    | SamplesUp
    | Place
    | Placed
    | NoPlace
    | Climb
    | NotInTree
    | Descend
    | Prune
    | Orphan
    | Move
    | Ping
    | Pong
)
CODEC: Codec[msgspec.Struct] = Codec(MagnetControl | Publication | OscarMessage | NewscastRequest | NewscastReply)
# Caused by events, not by time.
CONTROL = (ToHome, Place, Placed, NoPlace, Climb, NotInTree, Descend, Prune, Orphan, Move)
