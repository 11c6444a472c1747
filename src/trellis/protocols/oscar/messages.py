"""The messages of an OSCAR ring. A node may be on several rings: each has a name, its `layer`.

`Peer` says who is where. Its stamp (incarnation, version) grows with every change of place, so that late news of a
node do not put it back, and a node that restarted is not taken for its former self.
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
    node: NodeName
    label: LabelField
    incarnation: Count = 1
    version: Count = 0


Peers = Annotated[tuple[Peer, ...], Meta(max_length=64)]


class Locate(msgspec.Struct, frozen=True, gc=False, tag="locate"):
    """Routed towards the place of `origin`; whoever is next below it answers."""

    layer: Layer
    origin: Peer
    hops: Hops = 0


class Located(msgspec.Struct, frozen=True, gc=False, tag="located"):
    layer: Layer
    peers: Peers


class Stabilise(msgspec.Struct, frozen=True, gc=False, tag="stabilise"):
    """To the successor: I am before you."""

    layer: Layer
    me: Peer


class Neighbors(msgspec.Struct, frozen=True, gc=False, tag="neighbors"):
    """The answer to `Stabilise`."""

    layer: Layer
    me: Peer
    predecessor: Peer | None
    successors: Peers


class Gone(msgspec.Struct, frozen=True, gc=False, tag="gone"):
    """The sender leaves this ring, or this place of it, in order."""

    layer: Layer


class Walk(msgspec.Struct, frozen=True, gc=False, tag="walk"):
    """A random walk that stays on the open arc from `origin` to `end`.  [MG Fig. 1]"""

    layer: Layer
    origin: Peer
    query: Count
    end: LabelField
    steps: Hops


class Walked(msgspec.Struct, frozen=True, gc=False, tag="walked"):
    """Where a walk has ended."""

    layer: Layer
    query: Count
    peer: Peer
    interest: Topics = ()


class Connect(msgspec.Struct, frozen=True, gc=False, tag="connect"):
    """Be my finger."""

    layer: Layer
    me: Peer


class ConnectOk(msgspec.Struct, frozen=True, gc=False, tag="connect-ok"):
    layer: Layer
    me: Peer


class Beat(msgspec.Struct, frozen=True, gc=False, tag="beat"):
    """A sign of life on a finger, with the place of the sender."""

    layer: Layer
    me: Peer
    finger: bool  # the receiver is a finger of the sender; otherwise the other way round


class Unlink(msgspec.Struct, frozen=True, gc=False, tag="unlink"):
    """The link of that direction is over, or was never there."""

    layer: Layer
    finger: bool  # the receiver was a finger of the sender


class Spread(msgspec.Struct, frozen=True, gc=False, tag="spread"):
    """Looks clockwise for room: the receiver is the `count`-th after `origin`.  (A-MAG-7)"""

    layer: Layer
    origin: NodeName
    start: LabelField
    count: Annotated[int, Meta(ge=1, le=HOPS_MAX)]


class SpreadBack(msgspec.Struct, frozen=True, gc=False, tag="spread-back"):
    """Room was found: the receiver moves up to grid point `place`, below the sender; those before it follow."""

    layer: Layer
    origin: NodeName
    start: LabelField
    place: LabelField
    step: LabelField  # a distance on the grid
    me: Peer  # the sender, where it is now
    successors: Peers  # and those after it


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
