"""What delivery reports to the node and its clients, besides the `Deliver` effect."""

from __future__ import annotations

import msgspec

from trellis.protocols.effects import Incarnation, NodeId, Topic

ClientId = tuple[str, int, int]
"""Client name, session and number of a publication, as its client gave them. Names with "$" are the node's own."""
CANARY = "$trellis/canary/"  # Nobody publishes on these topics. Nodes ask for their homes, to check that homes answer.


class Published(msgspec.Struct, frozen=True, gc=False):
    """A publication was accepted and has an identity. It is not acknowledged yet."""

    topic: Topic
    incarnation: Incarnation
    sequence: int
    client_id: ClientId | None


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """`copies` nodes hold the publication: those in `holders`."""

    topic: Topic
    incarnation: Incarnation
    sequence: int
    copies: int
    holders: tuple[NodeId, ...]
    client_id: ClientId | None


class NotAcknowledged(msgspec.Struct, frozen=True, gc=False):
    """The publication failed. It may still reach all, some or no subscribers.

    `sequence` is 0 if it was refused, and so never entered the mesh.
    """

    topic: Topic
    incarnation: Incarnation
    sequence: int
    reason: str
    client_id: ClientId | None


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """The subscription is complete: every message published on this topic from now on is owed to this node."""

    topic: Topic


class Lost(msgspec.Struct, frozen=True, gc=False):
    """The messages `first` to `last` of a publisher will never be delivered here. The node logs this."""

    topic: Topic
    origin: NodeId
    incarnation: Incarnation
    first: int
    last: int
    why: str


class Overflowed(msgspec.Struct, frozen=True, gc=False):
    """The window dropped `messages` messages for lack of space since the last report. The node logs this."""

    messages: int


class HomeTold(msgspec.Struct, frozen=True, gc=False):
    """The home of a canary topic has answered. If the home is sure, a publication there would be acknowledged now."""

    topic: Topic
    is_sure: bool


Outcome = HomeTold | Published | Acknowledged | NotAcknowledged | Confirmed | Lost | Overflowed
