"""An overlay as the mesh node drives it: the seam of delivery (`delivery/seam.py`), and its own inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trellis.protocols.delivery.seam import Overlay
from trellis.protocols.effects import Effects, Topic
from trellis.protocols.node import ProtocolNode

REVISIT_ROUNDS = 20  # of gossip, until a seed is spoken to again: halves that have forgotten each other meet there


class DrivenOverlay(Overlay, Protocol):
    """One adapter per overlay; `OMenOverlay`, `SpiderCastOverlay`, `VitisOverlay` and `MagnetOverlay` are these."""

    telling: frozenset[type]  # messages by which interests of neighbours may change
    relays: bool  # may it make this node take part in topics that nobody here asked for?

    @property
    def changes(self) -> int:
        """Another number when `interest` or `neighbours` may have changed without a link or a telling message."""
        ...

    @property
    def node(self) -> ProtocolNode: ...

    def subscribe(self, topics: Sequence[Topic]) -> Effects:
        """Take part in these as well, as one change. Those that it takes part in already change nothing."""
        ...

    def publish_on(self, topics: Sequence[Topic]) -> Effects:
        """The same for a publisher that does not subscribe, where that can be had for less."""
        ...

    def unsubscribe(self, topics: Sequence[Topic]) -> Effects:
        """Take part in these no more. The overlay may keep the node on them until it is mended, or as a relay."""
        ...

    def leave(self) -> Effects:
        """For good; `Left` comes when it is done."""
        ...
