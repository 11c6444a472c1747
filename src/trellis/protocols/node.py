"""A protocol node: a plain object that is told what happened and answers with effects.

It is given an identity, a seeded `random.Random` and a configuration. It never reads a clock, sleeps, opens a socket
or prints; time passes for it only through its timers. Chance comes from its `Random` alone, and nothing is drawn from
or sent in the order of a set: the same inputs give the same effects on every machine.

A node is composed of parts (peer sampling, failure detector, ring, ...). A part has the same inputs, its own messages,
and timers whose tags begin with its name and a slash, so that a node finds the part a timer belongs to.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from trellis.protocols.effects import Effects, NodeId, Topic


class ProtocolNode(Protocol):
    """What a driver needs to know of a node."""

    id: NodeId

    def start(self) -> Effects:
        """Called once, before anything else."""
        ...

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """A message of this system has come. Unknown and stale ones are normal life: ignored and counted."""
        ...

    def on_timer(self, tag: str) -> Effects: ...

    def on_peer_down(self, peer: NodeId) -> Effects:
        """The driver knows that `peer` is gone (a broken stream). Detectors of the node say it by themselves."""
        ...

    def subscribe(self, topic: Topic) -> Effects: ...

    def unsubscribe(self, topic: Topic) -> Effects: ...

    def leave(self) -> Effects:
        """Leave in order: what must be said to others is in the effects.

        Nothing is asked of the node afterwards, unless its system says that nodes `linger`: then it goes on until it
        gives `Left`.
        """
        ...

    def check(self) -> None:
        """Assert the node's own invariants. A broken one is our bug, never bad input."""
        ...
