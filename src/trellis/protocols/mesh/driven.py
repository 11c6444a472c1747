"""The interface of an overlay that a mesh node drives: that of delivery (`delivery/seam.py`), and its own methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trellis.protocols.delivery.seam import Overlay
from trellis.protocols.effects import Effects, Topic
from trellis.protocols.node import ProtocolNode

# Rounds of gossip between two contacts with a seed. There, parts of a mesh meet that have forgotten each other.
REVISIT_ROUNDS = 20


class DrivenOverlay(Overlay, Protocol):
    """An overlay below a mesh node.

    `trellis.protocols.overlays` lists the adapters that implement it.
    """

    telling: frozenset[type]  # messages by which interests of neighbors may change
    relays: bool  # Whether it may make this node take part in topics that nobody here asked for.

    @property
    def changes(self) -> int:
        """Return a number that changes when `interest` or `neighbors` may have changed.

        Changes by a link or by a message in `telling` need not change the number.
        """
        ...

    @property
    def node(self) -> ProtocolNode:
        """Return the node of the overlay's protocol."""
        ...

    def subscribe(self, topics: Sequence[Topic]) -> Effects:
        """Take part in these topics as well, as one change. Topics that it takes part in already change nothing."""
        ...

    def publish_on(self, topics: Sequence[Topic]) -> Effects:
        """Take part in these topics to publish on them, without a subscription.

        An overlay may do less for this than for `subscribe`, or just the same.
        """
        ...

    def unsubscribe(self, topics: Sequence[Topic]) -> Effects:
        """Stop taking part in these topics.

        The overlay may keep the node on them until it is repaired, or as a relay.
        """
        ...

    def leave(self) -> Effects:
        """Leave the overlay for good. It returns `Left` when that is done."""
        ...
