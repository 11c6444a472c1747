"""Effects: what a protocol node asks its driver to do. The drivers are the simulator and the live shell.

| effect                  | simulator                                   | live                       |
| ----------------------- | ------------------------------------------- | -------------------------- |
| `Send`                  | heap at now + drawn latency, or lost        | frame on the peer's stream |
| `SetTimer`              | heap at now + delay; order (time, sequence) | `loop.call_later`          |
| `LinkUp` / `LinkDown`   | the overlay graph that probes read          | dial / close               |
| `Deliver`               | counted by a probe                          | the subscriber's queue     |
| `Left`                  | the node is taken down                      | the process ends           |

The methods of a node return lists of effects. A driver carries them out in the order of the list. Durations are whole
milliseconds.
"""

from __future__ import annotations

from typing import NewType

import msgspec

NodeId = str  # The name of a node, unique in its cluster.
Topic = str
Incarnation = NewType("Incarnation", int)
"""Number that grows at every restart of a node's name, so that others can tell its runs apart."""


class Seed(msgspec.Struct, frozen=True, gc=False):
    """The address of a node of the mesh whose name is not known yet. It is never equal to a name."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Contact = NodeId | Seed  # A node that a newcomer can contact first.


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message to a peer. It may be lost."""

    to: Contact
    message: msgspec.Struct


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Call `on_timer(tag)` after the delay. If a timer with this tag is pending, replace it."""

    tag: str
    delay_ms: int


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """Cancel the timer with this tag. If none is pending, do nothing."""

    tag: str


class LinkUp(msgspec.Struct, frozen=True, gc=False):
    """Count `peer` among this node's overlay neighbors from now on. A link stands when both ends say so."""

    peer: NodeId


class LinkDown(msgspec.Struct, frozen=True, gc=False):
    """Do not count `peer` among this node's overlay neighbors any more."""

    peer: NodeId


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Deliver a publication to the application of this node."""

    topic: Topic
    origin: NodeId
    sequence: int
    payload: bytes = b""
    position: int = 0  # Its turn for durable subscribers of this node. 0: it is for none.


class Left(msgspec.Struct, frozen=True, gc=False):
    """Report that this node has left in order: no node depends on it any more, and the driver may stop it."""


Effect = Send | SetTimer | CancelTimer | LinkUp | LinkDown | Deliver | Left
Effects = list[Effect]
