"""What the classes of a node use of `Parts`: small interfaces, of which each class names the ones that it needs.

`OMenNode` passes one `Parts` to all of them. A class says in its own module, by a protocol such as `SurvivorParts`,
what it uses of it. So its text shows on what it depends, and the type check refuses anything else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import msgspec

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.links.links import Links
from trellis.protocols.omen.me import Me
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.ring import Ring


class Basics(Protocol):
    """Settings, time, our identity and our links."""

    config: OMenConfig
    ticks: int  # Periods since the start.
    me: Me
    links: Links


class Routing(Protocol):
    """The ring, and messages along it."""

    ring: Ring

    def route(
        self, position: int, message: msgspec.Struct, without: Collection[NodeId] = (), tries: int = 0
    ) -> Outcomes:
        """Send a message one step nearer to the first living node at or after a ring position."""
        ...


class Beliefs(Protocol):
    """Which nodes we take for dead."""

    def is_dead(self, node: NodeId, incarnation: int) -> bool:
        """Return whether we suspect this incarnation of a node, or a later one."""
        ...

    def believes_dead(self, node: NodeId) -> bool:
        """Return whether we suspect a node in any incarnation."""
        ...

    def is_quiet(self, node: NodeId) -> bool:
        """Return whether a node that we watch has missed periods and may hang."""
        ...

    def incarnation_of(self, node: NodeId) -> int:
        """Return the latest incarnation of a node that gossip or its record tells."""
        ...


class Subscribers(Protocol):
    """Subscribers of topics that we know by gossip."""

    def known_subscribers(self, bits: int, but: NodeId | None = None) -> list[NodeId]:
        """Return a few known subscribers of each of these topics."""
        ...
