"""The messages of Magnet, besides those of its two rings.  [MG §3]

| message            | from, to                          | purpose                                                   |
| ------------------ | --------------------------------- | --------------------------------------------------------- |
| `ToHome`           | hop by hop on the control ring    | brings its body to home(t)                                |
| `Inquire`, `View`  | joiner to home(t), and back       | a sample before there is a position (A-MAG-19)            |
| `SampleUp`, `View` | up and down the membership tree   | sampling rounds [§3.4]; `SamplesUp`: of several topics    |
| `Place`, `Placed`  | joiner to the most similar node   | a label [Alg. 1]; `NoPlace`: try again                    |
| `JoinAt`, `Climb`  | joiner to home(t), or to p_s      | phases 1 and 2 of Alg. 2; `NotInTree`: not here           |
| `Descend`          | down the greedy route             | phase 3: makes forwarders and, in the end, a child        |
| `Prune`, `Orphan`  | child to parent, parent to child  | the tree link has ended                                   |
| `Move`             | parent to child                   | the tree link will end: find another parent               |
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
    """A subscriber and its interest. view(p) consists of these.  [MG §2.1]"""

    node: NodeName
    interest: Topics
    incarnation: Count = 1
    version: Count = 0


Sample = Annotated[tuple[Entry, ...], Meta(max_length=SAMPLE_MAX)]


class Inquire(msgspec.Struct, frozen=True, gc=False, tag="inquire"):
    """Ask home(t) for its sample."""

    origin: NodeName


class JoinAt(msgspec.Struct, frozen=True, gc=False, tag="join-at"):
    """Ask home(t) to let a node join the tree."""

    joiner: Peer
    count: Count  # The latest count of the root that the joiner knows.


class Publish(msgspec.Struct, frozen=True, gc=False, tag="publish"):
    """Ask home(t) to send a publication down the tree."""

    origin: NodeName
    sequence: Count
    payload: Annotated[bytes, Meta(max_length=PAYLOAD_BYTES_MAX)] = b""


class ToHome(msgspec.Struct, frozen=True, gc=False, tag="to-home"):
    """Carry a body to home(t), hop by hop on the control ring."""

    topic: Name
    body: Inquire | JoinAt | Publish
    hops: Hops = 0
    # The sender is the last node before the topic's position, so the receiver should be its home.
    arriving: bool = False


class View(msgspec.Struct, frozen=True, gc=False, tag="view"):
    """The sample of a topic that its home sends down the membership tree, or as an answer."""

    topic: Name
    home: NodeName
    sample: Sample
    # Counted for the topic, also over a change of its home, to notice late views. 0: an answer to `Inquire`.
    round: Count


class SampleUp(msgspec.Struct, frozen=True, gc=False, tag="sample-up"):
    """The sample of a child for its parent in the membership tree."""

    topic: Name
    sample: Sample
    count: Count  # number of subscribers in the subtree
    seen: Count  # the latest round of which a view came down


class SamplesUp(msgspec.Struct, frozen=True, gc=False, tag="samples-up"):
    """All samples of one round for the same parent. A node has many topics, and few next hops."""

    parts: Annotated[tuple[SampleUp, ...], Meta(max_length=PARTS_MAX)]


class Place(msgspec.Struct, frozen=True, gc=False, tag="place"):
    """Ask for a position right behind the receiver."""

    incarnation: Count
    version: Count  # the version that the sender's position will have


class Placed(msgspec.Struct, frozen=True, gc=False, tag="placed"):
    """Give a position: its label, and the nodes around it."""

    label: LabelField
    peers: Peers  # around it


class NoPlace(msgspec.Struct, frozen=True, gc=False, tag="no-place"):
    """Refuse a position."""

    later: bool  # True: labels are being spread out, try again soon. False: the sender has no position itself.


class Climb(msgspec.Struct, frozen=True, gc=False, tag="climb"):
    """Phase 2 of a join: go up the tree to the node where the joiner's branch begins."""

    topic: Name
    joiner: Peer
    hops: Hops = 0


class NotInTree(msgspec.Struct, frozen=True, gc=False, tag="not-in-tree"):
    """Tell a joiner that the sender is not in the tree."""

    topic: Name


class Descend(msgspec.Struct, frozen=True, gc=False, tag="descend"):
    """Phase 3 of a join: make the receiver a child of the sender, and go on towards the joiner."""

    topic: Name
    joiner: Peer
    root: Peer
    count: Count
    hops: Hops = 0


class Prune(msgspec.Struct, frozen=True, gc=False, tag="prune"):
    """Tell the parent that the sender is no longer its child."""

    topics: Topics


class Orphan(msgspec.Struct, frozen=True, gc=False, tag="orphan"):
    """Tell a node that it is not a child of the sender."""

    topics: Topics


class Move(msgspec.Struct, frozen=True, gc=False, tag="tree-move"):
    """Tell a child that it must find another parent. Until then the link stays."""

    topics: Topics


class Ping(msgspec.Struct, frozen=True, gc=False, tag="tree-ping"):
    """Tell the parent that it is the sender's parent in the trees of these topics."""

    topics: Topics


class Pong(msgspec.Struct, frozen=True, gc=False, tag="tree-pong"):
    """Tell a child the root's counts."""

    topics: Topics
    # One for each topic. 0: the receiver is not a child of the sender.
    counts: Annotated[tuple[Count, ...], Meta(max_length=TOPICS_MAX)]


class Publication(msgspec.Struct, frozen=True, gc=False, tag="publication"):
    """A publication on its way down the tree."""

    topic: Name
    origin: NodeName
    sequence: Count
    hops: Hops  # links crossed below the home location, with this one
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
# Messages that are sent because of an event, and not periodically.
CONTROL = (ToHome, Place, Placed, NoPlace, Climb, NotInTree, Descend, Prune, Orphan, Move)
