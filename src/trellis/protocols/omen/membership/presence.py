"""Our own presence in the mesh: how we join it, and how we leave it.

| from            | to      | when                                                                                    |
| --------------- | ------- | --------------------------------------------------------------------------------------- |
| joining         | joined  | a coordinator has linked us (`JoinDone`), or all planned links are up (`planned.py`)    |
| joined          | joining | the planned links are up and do not cover all our topics                                |
| joining, joined | leaving | `leave` was called                                                                      |
| leaving         | left    | a coordinator has repaired around us, or no node is left to do so, or it takes too long |

A node that joins repeats `Join` to its ring successor until a coordinator has linked it. A node that starts with
neighbors has joined already. A node that leaves keeps its links until a successor has repaired around it. A join that
is not over when we leave may still end then, so `is_joining` is a fact of its own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from trellis.protocols.effects import Left, NodeId, Send
from trellis.protocols.omen.links.records import OwnRecord
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.messages import Finished, Join, JoinDone, Leaving
from trellis.protocols.omen.needs import Basics, Routing
from trellis.protocols.omen.signals import Outcomes

JOIN_PERIODS = 4  # Periods until a joiner repeats its request to the same successor.


class State(StrEnum):
    """The states of our presence."""

    JOINING = "joining"
    JOINED = "joined"
    LEAVING = "leaving"
    LEFT = "left"


class PresenceParts(Basics, Routing, Protocol):
    """What our join and leave use of the node."""

    own: OwnRecord
    is_joining: bool


class Presence:
    """Our own join and leave."""

    def __init__(self, parts: PresenceParts) -> None:
        self.parts, self.me, self.links, self.ring = parts, parts.me, parts.links, parts.ring
        self.leaving_since: int | None = None  # The tick at which `leave` was called.
        self.has_left = False
        self._asked: tuple[NodeId, int] = ("", 0)  # The successor that was sent the last `Join`, and the tick.

    @property
    def state(self) -> State:
        if self.has_left:
            return State.LEFT
        if self.leaving_since is not None:
            return State.LEAVING
        return State.JOINING if self.parts.is_joining else State.JOINED

    # Joining

    def ask_to_join(self, *, is_planned: bool) -> Outcomes:
        """Ask our successor to link us, if we have not joined yet. Called once per period.

        `is_planned`: planned links are awaited, so that a join is not needed yet.
        """
        tick, successor = self.parts.ticks, self.ring.successor
        if is_planned or tick <= 2 or successor == self.me.id or self.state != State.JOINING:
            return []
        asked, since = self._asked
        if asked == successor and tick - since < JOIN_PERIODS:
            return []
        self._asked = (successor, tick)
        return [Send(successor, Join(self.me.incarnation, self.me.topics))]

    def on_join_done(self, message: JoinDone) -> Outcomes:
        """Note that a coordinator has linked us."""
        if run_of(message.incarnation) == run_of(self.me.incarnation):
            self.parts.is_joining = False
        return []

    # Leaving

    def leave(self) -> Outcomes:
        """Announce that we leave.  [A-OMN-26]

        We close our links when a successor has repaired around us, or after `leave_periods_max`.
        """
        if self.leaving_since is not None:
            return []
        self.leaving_since = self.parts.ticks
        self.me.is_leaving = True
        self.me.leaving = self.me.interest
        return self._depart() if self._is_alone else self._announce()

    def tick(self) -> Outcomes:
        """Repeat that we leave, or leave if that takes too long. Called once per period."""
        if self.leaving_since is None:
            return []
        is_late = self.parts.ticks - self.leaving_since > self.parts.config.leave_periods_max
        return self._depart() if is_late or self._is_alone else self._announce()

    def on_repaired(self) -> Outcomes:
        """Leave, because a coordinator has repaired around us."""
        return self._depart(is_repaired=True) if self.leaving_since is not None else []

    @property
    def _is_alone(self) -> bool:
        """Return whether no node is left that could repair around us.

        The last of several nodes that leave together must not wait for the others, which have left already.
        """
        return not self.links.up() or not self.ring.successors

    def _announce(self) -> Outcomes:
        return [Send(peer, Leaving(self.parts.own.record)) for peer in self.ring.successors]

    def _depart(self, *, is_repaired: bool = False) -> Outcomes:
        """Close all links and leave. `is_repaired`: a coordinator has repaired around us, so no topic needs us.

        Deviation: in the paper a node that has left is noticed by its silence. Here it sends `Finished` to all nodes
        that it knows on the ring, if it was repaired around. They remove it from the ring at once. Otherwise messages
        to homes of topics would go to a node that has left. Another node that leaves would wait for their answers.
        """
        self.has_left = True
        effects: Outcomes = []
        for peer in list(self.links.links):
            effects += self.links.close(peer)
        over = Finished(self.me.id, self.me.incarnation, "leave")
        told = self.ring.tman.peers if is_repaired else ()
        return [*effects, *[Send(peer, over) for peer in told], Left()]
