"""The interface between delivery and the overlay below it.

Delivery asks the overlay which links are up, which topics this node takes part in, and how to reach a topic's home.
`protocols/mesh/` implements this interface once for each overlay protocol.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from trellis.protocols.effects import Effects, Incarnation, NodeId, Topic
from trellis.protocols.topics import TopicTable


class Overlay(Protocol):
    """What delivery needs from an overlay protocol."""

    id: NodeId
    table: TopicTable
    has_homes: bool  # Whether the overlay has a ring, on which every topic has a home.
    # Whether the overlay may make this node take part in topics that it neither subscribes to nor publishes on.
    relays: bool

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of this node: it grows with every restart of the name."""
        ...

    @property
    def interest(self) -> int:
        """The topics that the overlay keeps this node connected on, as bits of `table`."""
        ...

    def neighbors(self) -> Mapping[NodeId, int]:
        """Return the neighbors, each with the topics that it takes part in, as bits of `table`."""
        ...

    def is_gone(self, node: NodeId) -> bool:
        """Return whether this node is believed to have crashed or left."""
        ...

    def subscribers(self, topic: Topic) -> int:
        """Return how many other subscribers of a topic are known. Called only if the overlay has no homes."""
        ...

    def is_home(self, topic: Topic) -> bool:
        """Return whether this node is the home of a topic."""
        ...

    def home_range(self) -> str:
        """Return a text that changes whenever the ring range that this node is home for may have changed."""
        ...

    def heir(self) -> NodeId | None:
        """Return the node that becomes home of our range if we crash or leave. None: there is none, or it is not known.

        If there is an heir, `home_range` returns the name of our predecessor on the ring.
        """
        ...

    def toward_home(self, topic: Topic, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        """Return effects that send `message` one step toward the topic's home.

        Nodes in `without` are avoided if there is another path.
        """
        ...

    def meet(self, names: Sequence[NodeId]) -> Effects:
        """Return effects that open a link to one of `names`: subscribers of a topic on which we have no neighbor."""
        ...
