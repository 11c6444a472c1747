"""The interface of a protocol node: an object whose methods are called on events and return effects.

A node gets an identity, a seeded `random.Random` and a configuration. It never reads a clock, sleeps, opens a socket or
prints. It notices time only through its timers. All random numbers come from its `Random`, and it never draws from a
set or sends in the order of a set. So the same inputs give the same effects on every machine.

A node is composed of parts (peer sampling, failure detector, ring, ...). A part has methods of the same names and
messages of its own. The tags of its timers begin with its name and a slash, so that the node finds the part to which a
timer belongs.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from trellis.protocols.effects import Effects, NodeId, Topic


class ProtocolNode(Protocol):
    """The methods of a node that its driver calls."""

    id: NodeId

    def start(self) -> Effects:
        """Start the node. The driver calls this once, before all other methods."""
        ...

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Handle a message of this protocol. Unknown and outdated messages are ignored and counted."""
        ...

    def on_timer(self, tag: str) -> Effects:
        """Handle the end of a timer that was set with `tag`."""
        ...

    def on_peer_down(self, peer: NodeId) -> Effects:
        """Handle the end of `peer`, which the driver knows from a broken stream.

        A node's own failure detectors do not call this.
        """
        ...

    def subscribe(self, topic: Topic) -> Effects:
        """Add a topic to the node's interest."""
        ...

    def unsubscribe(self, topic: Topic) -> Effects:
        """Remove a topic from the node's interest."""
        ...

    def leave(self) -> Effects:
        """Leave in order. The effects have the messages that other nodes need.

        The driver calls no method afterwards, unless nodes of the protocol `linger`. Such a node goes on until it
        returns `Left`.
        """
        ...

    def check(self) -> None:
        """Assert the node's own invariants. If one does not hold, that is our bug, and not caused by bad input."""
        ...
