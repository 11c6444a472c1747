"""The seam between delivery and the overlay below it: what delivery asks, whichever protocol keeps the links."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from trellis.protocols.effects import Effects, NodeId, Topic
from trellis.protocols.topics import TopicTable


class Overlay(Protocol):
    id: NodeId
    table: TopicTable
    has_homes: bool  # is there a ring with home locations of topics?
    relays: bool  # may it make this node take part in topics that nobody here asked for?

    @property
    def life(self) -> int:
        """Grows with every restart of this name."""
        ...

    @property
    def interest(self) -> int:
        """The topics that the overlay keeps this node connected on."""
        ...

    def neighbours(self) -> Mapping[NodeId, int]:
        """The links that are up, with the interests of their other ends."""
        ...

    def is_gone(self, node: NodeId) -> bool:
        """Is this node believed to be dead?"""
        ...

    def subscribers(self, topic: Topic) -> int:
        """How many others are known to want a topic. Asked only where there are no homes."""
        ...

    def is_home(self, topic: Topic) -> bool: ...

    def home_range(self) -> str:
        """Changes whenever the range of the ring that this node is home for may have changed."""
        ...

    def heir(self) -> NodeId | None:
        """Return the node that becomes home of our range if we end. None: there is none, or it cannot be told.

        Where there is one, `home_range` is the name of the node before us on the ring.
        """
        ...

    def toward_home(self, topic: Topic, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        """One step nearer to a topic's home location, not over these if there is any other way."""
        ...

    def meet(self, names: Sequence[NodeId]) -> Effects:
        """These subscribe to a topic on which we know nobody: link to one of them."""
        ...
