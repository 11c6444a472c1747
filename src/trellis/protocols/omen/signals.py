"""Signals: what the parts of a node tell the node, in the lists that they return.

There is one way for parts to speak: a part returns outcomes. An outcome is an effect, which the driver carries out, or
a signal, which `OMenNode` passes to the part that has to react. A message of the node to itself is a signal as well. A
part keeps no notes for another part, and sets no flag of another part.

`SignalQueue` keeps signals until the node handles them. Their order is fixed, because what is handled first changes
what later parts see:

| rank | signal                      | from      | handled by                                                |
| ---- | --------------------------- | --------- | --------------------------------------------------------- |
| 0    | `LinkLost`                  | links     | `Survivor`: reports a departure, or opens the link again  |
| 1    | `RecordChanged`             | links, me | `OwnRecord`: renews our record, once for all changes      |
| 2    | `PeerDown`, `PeerRestarted` | detector  | `Coordinator`: suspects the node, and begins an event     |
| 3    | `TopicsLeftByNeighbor`      | links     | `Interest`: looks for another neighbor on these topics    |
| 4    | `ToSelf`                    | any part  | the handler of the message                                |
| 5    | `RepairDone`                | repairs   | `Coordinator` and `Interest`: end the event, leave topics |

All signals of the lowest rank are handled together, before those that they cause. Messages to ourselves are handled one
by one.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec

from trellis.protocols.effects import Effect, NodeId

Why = Literal["silent", "restarted", "stranger", "closed", "refused"]


class LinkLost(msgspec.Struct, frozen=True):
    """A link was lost, or was asked for and did not come up. The values are the peer's, as it told them last."""

    peer: NodeId
    incarnation: int
    interest: int
    why: Why
    successors: tuple[NodeId, ...]
    was_up: bool
    degree: int = 0


class RecordChanged(msgspec.Struct, frozen=True, gc=False):
    """Our record is out of date: our neighbors, topics or incarnation have changed."""


class PeerDown(msgspec.Struct, frozen=True, gc=False):
    """A node that we watch on the ring does not answer."""

    peer: NodeId


class PeerRestarted(msgspec.Struct, frozen=True, gc=False):
    """A node that we watch on the ring answers from a later run."""

    peer: NodeId


class TopicsLeftByNeighbor(msgspec.Struct, frozen=True, gc=False):
    """A neighbor left topics before it knew that we had them. We may have counted on that neighbor."""

    topics: int


class ToSelf(msgspec.Struct, frozen=True, gc=False):
    """A message of this node to itself."""

    message: msgspec.Struct


class RepairDone(msgspec.Struct, frozen=True, gc=False):
    """A repair or join is done."""

    number: int


Signal = LinkLost | RecordChanged | PeerDown | PeerRestarted | TopicsLeftByNeighbor | ToSelf | RepairDone
Outcome = Effect | Signal
Outcomes = list[Outcome]

RANKS: dict[type, int] = {
    LinkLost: 0,
    RecordChanged: 1,
    PeerDown: 2,
    PeerRestarted: 2,
    TopicsLeftByNeighbor: 3,
    ToSelf: 4,
    RepairDone: 5,
}


class SignalQueue:
    """The signals that the node has not handled yet."""

    def __init__(self) -> None:
        self._waiting: list[deque[Signal]] = [deque() for _ in range(max(RANKS.values()) + 1)]

    def add(self, signal: Signal) -> None:
        """Add a signal behind the others of its rank. An equal change of the record, or end, is kept once."""
        waiting = self._waiting[RANKS[type(signal)]]
        if not isinstance(signal, RecordChanged | RepairDone) or signal not in waiting:
            waiting.append(signal)

    def take(self) -> list[Signal]:
        """Take out the signals to handle next, in the order in which they came; repairs in the order of numbers."""
        for waiting in self._waiting:
            if waiting:
                if isinstance(waiting[0], ToSelf):
                    return [waiting.popleft()]
                signals = list(waiting)
                waiting.clear()
                return sorted(signals, key=lambda one: one.number if isinstance(one, RepairDone) else 0)
        return []
