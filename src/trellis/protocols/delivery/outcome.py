"""What a node tells its clients, beside `Deliver`."""

from __future__ import annotations

import msgspec

from trellis.protocols.effects import NodeId, Topic

ClientId = tuple[str, int, int]
"""A client, its session, and its own number of the publication. Names that begin with "$" belong to the node itself."""
CANARY = "$trellis/canary/"  # topics on which nobody publishes: nodes ask for their homes, to see whether these answer


class Published(msgspec.Struct, frozen=True, gc=False):
    """The identity of a publication that was taken in. It is not acknowledged yet."""

    topic: Topic
    life: int
    sequence: int
    client_id: ClientId | None


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """`copies` nodes hold the publication."""

    topic: Topic
    life: int
    sequence: int
    copies: int
    holders: tuple[NodeId, ...]
    client_id: ClientId | None


class NotAcknowledged(msgspec.Struct, frozen=True, gc=False):
    """It may reach all, some or none. `sequence` is 0 where it was not even taken in."""

    topic: Topic
    life: int
    sequence: int
    reason: str
    client_id: ClientId | None


class Confirmed(msgspec.Struct, frozen=True, gc=False):
    """What is published on this topic from now on is promised to this subscriber."""

    topic: Topic


class Lost(msgspec.Struct, frozen=True, gc=False):
    """These messages of a publisher will never be handed over here: to be logged."""

    topic: Topic
    origin: NodeId
    life: int
    first: int
    last: int
    why: str


class Overflowed(msgspec.Struct, frozen=True, gc=False):
    """So many messages were dropped from the window for want of room since this was said last: to be logged."""

    messages: int


class HomeTold(msgspec.Struct, frozen=True, gc=False):
    """The home of a canary's topic has answered. A publication there would be acknowledged now if the home is sure."""

    topic: Topic
    is_sure: bool


Outcome = HomeTold | Published | Acknowledged | NotAcknowledged | Confirmed | Lost | Overflowed
