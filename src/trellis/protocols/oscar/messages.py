"""The messages of an OSCAR ring. A node may be on several rings: each has a name, its `layer`.

A `Peer` is a node with its position. Incarnation and version grow with every change of the position. So late messages
do not move a node back, and a restarted node is not taken for its earlier incarnation.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.oscar.labels import LabelField
from trellis.protocols.wire import Codec, Count, NodeName, Topics

Layer = Annotated[str, Meta(min_length=1, max_length=16)]
HOPS_MAX = 1_000_000
Hops = Annotated[int, Meta(ge=0, le=HOPS_MAX)]


class Peer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node and its position on the ring."""

    node: NodeName
    label: LabelField
    incarnation: Count = 1
    version: Count = 0  # counts the positions that the node has had in this incarnation


Peers = Annotated[tuple[Peer, ...], Meta(max_length=64)]


class Locate(msgspec.Struct, frozen=True, gc=False, tag="locate"):
    """Look up the position of `origin`. The last node before it answers."""

    layer: Layer
    origin: Peer
    hops: Hops = 0


class Located(msgspec.Struct, frozen=True, gc=False, tag="located"):
    """Answer a `Locate` with the nodes around the position."""

    layer: Layer
    peers: Peers


class Stabilise(msgspec.Struct, frozen=True, gc=False, tag="stabilise"):
    """Tell the successor that the sender is its predecessor, and ask for its neighbors."""

    layer: Layer
    me: Peer


class Neighbors(msgspec.Struct, frozen=True, gc=False, tag="neighbors"):
    """Answer a `Stabilise`."""

    layer: Layer
    me: Peer
    predecessor: Peer | None
    successors: Peers


class Gone(msgspec.Struct, frozen=True, gc=False, tag="gone"):
    """Tell that the sender leaves this ring, or this position, in order."""

    layer: Layer


class Walk(msgspec.Struct, frozen=True, gc=False, tag="walk"):
    """A random walk that stays on the open arc from `origin` to `end`.  [MG Fig. 1]"""

    layer: Layer
    origin: Peer
    query: Count
    end: LabelField
    steps: Hops  # links that the walk still has to cross


class Walked(msgspec.Struct, frozen=True, gc=False, tag="walked"):
    """Tell the origin of a walk where it has ended."""

    layer: Layer
    query: Count
    peer: Peer
    interest: Topics = ()


class Connect(msgspec.Struct, frozen=True, gc=False, tag="connect"):
    """Ask the receiver to be a finger of the sender."""

    layer: Layer
    me: Peer


class ConnectOk(msgspec.Struct, frozen=True, gc=False, tag="connect-ok"):
    """Answer a `Connect`: the sender is now a finger of the receiver."""

    layer: Layer
    me: Peer


class Beat(msgspec.Struct, frozen=True, gc=False, tag="beat"):
    """A heartbeat on a finger, with the position of the sender."""

    layer: Layer
    me: Peer
    finger: bool  # True: the receiver is a finger of the sender. False: the sender is one of the receiver.


class Unlink(msgspec.Struct, frozen=True, gc=False, tag="unlink"):
    """Tell that the link in this direction has ended, or never existed."""

    layer: Layer
    finger: bool  # True: the receiver was a finger of the sender.


class Spread(msgspec.Struct, frozen=True, gc=False, tag="spread"):
    """Look for free labels in clockwise direction. The receiver is the `count`-th node after `origin`.  (A-MAG-7)"""

    layer: Layer
    origin: NodeName
    start: LabelField
    count: Annotated[int, Meta(ge=1, le=HOPS_MAX)]


class SpreadBack(msgspec.Struct, frozen=True, gc=False, tag="spread-back"):
    """Move the receiver to grid point `place`, before the sender. The nodes before it follow."""

    layer: Layer
    origin: NodeName
    start: LabelField
    place: LabelField
    step: LabelField  # the distance between two nodes, as a label on the grid
    me: Peer  # the sender at its present position
    successors: Peers  # the nodes after the sender


OscarMessage = (
    Locate
    | Located
    | Stabilise
    | Neighbors
    | Gone
    | Walk
    | Walked
    | Connect
    | ConnectOk
    | Beat
    | Unlink
    | Spread
    | SpreadBack
)
CODEC: Codec[msgspec.Struct] = Codec(OscarMessage)
