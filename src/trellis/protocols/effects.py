"""What a protocol node wants done. A driver carries it out: the simulator in virtual time, the live shell on sockets.

| effect                  | simulator                                   | live                       |
| ----------------------- | ------------------------------------------- | -------------------------- |
| `Send`                  | heap at now + drawn latency, or lost        | frame on the peer's stream |
| `SetTimer`              | heap at now + delay; order (time, sequence) | `loop.call_later`          |
| `LinkUp` / `LinkDown`   | the overlay graph that probes read          | dial / close               |
| `Deliver`               | counted by a probe                          | the subscriber's queue     |
| `Left`                  | the node is taken down                      | the process ends           |

Effects are carried out in the order they are given. Durations are whole milliseconds.
"""

from __future__ import annotations

from typing import NewType

import msgspec

NodeId = str  # a node's name
Topic = str
Incarnation = NewType("Incarnation", int)
"""Number that grows at every restart of a node's name, so that others can tell its runs apart."""


class Seed(msgspec.Struct, frozen=True, gc=False):
    """Where some node of the mesh listens whose name is not known yet. It is never equal to a name."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Contact = NodeId | Seed  # a node that a newcomer can speak to first


class Send(msgspec.Struct, frozen=True, gc=False):
    to: Contact
    message: msgspec.Struct


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """`on_timer(tag)` after the delay. Setting a tag that is pending replaces it."""

    tag: str
    delay_ms: int


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """Nothing happens where no such timer is pending."""

    tag: str


class LinkUp(msgspec.Struct, frozen=True, gc=False):
    """This node counts `peer` among its overlay neighbours from now on. A link stands when both ends say so."""

    peer: NodeId


class LinkDown(msgspec.Struct, frozen=True, gc=False):
    peer: NodeId


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand a publication to the application of this node."""

    topic: Topic
    origin: NodeId
    sequence: int
    payload: bytes = b""


class Left(msgspec.Struct, frozen=True, gc=False):
    """This node has left in order: nothing depends on it any more, and nothing more will be asked of it."""


Effect = Send | SetTimer | CancelTimer | LinkUp | LinkDown | Deliver | Left
Effects = list[Effect]
