"""Events on standby: when this node takes one over because its coordinator does not finish it.  [OM Alg. 5]

An event on standby is taken over in three cases: we have become the coordinator of its node, a time-out is over and the
node is in our range, or no nearer successor has said in time that it handles the event (`helper_tries`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trellis.protocols.effects import NodeId, Send, SetTimer
from trellis.protocols.omen.membership.events import STANDBY, Event, Events
from trellis.protocols.omen.messages import Churn
from trellis.protocols.omen.needs import Basics, Beliefs, Routing
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.ring import clockwise, identifier
from trellis.reached import reached


class StandbyParts(Basics, Beliefs, Routing, Protocol):
    """What events on standby use of the node."""

    events: Events

    def is_in_range(self, node: NodeId) -> bool:
        """Return whether fewer than L living nodes are between a node and us on the ring."""
        ...


class Standby:
    """Watches events on standby, and takes them over (processStandbyL)."""

    def __init__(
        self, parts: StandbyParts, doubt: Callable[[Event], Outcomes], execute: Callable[[Event], Outcomes]
    ) -> None:
        """`doubt` handles an event that was taken over and is not certain, `execute` one that is certain."""
        self.parts, self._doubt, self._execute = parts, doubt, execute

    def begin(self, event: Event) -> Outcomes:
        """Take over a departure that our own detector has noticed, unless a successor nearer to the node handles it.

        All nearer successors are told of the departure, and those that handle it answer. The time-out grows with their
        number, so that the nearest one takes over first. Without this, we would wait for a coordinator that hangs until
        it is suspected. A node that is out of range, or has no `helper_tries`, does nothing here.
        """
        parts, config = self.parts, self.parts.config
        if not config.helper_tries:
            return []
        position = identifier(event.node)
        nearer = [one for one in parts.ring.tman.peers if one != event.node and self.is_nearer(one, event.node)]
        awake = sorted(
            (one for one in nearer if not parts.is_quiet(one)), key=lambda one: clockwise(position, identifier(one))
        )
        if len(nearer) >= config.resilience:
            return []
        told: Outcomes = [Send(one, Churn("leave", event.node, event.incarnation)) for one in awake]
        wait_ms = max(1, len(awake) * config.helper_tries * config.ask_ms)
        return [*told, SetTimer(f"standby/{event.node}", wait_ms)]

    def overdue(self, node: NodeId) -> Outcomes:
        """Take over a departure because no nearer successor has said that it handles it (timer of `begin`)."""
        effects: Outcomes = []
        for event in self.parts.events.open():
            if event.kind == "leave" and event.node == node and event.state == STANDBY and not event.is_handled:
                event.is_late = True
                effects += self._take_over(event)
        return effects

    def is_nearer(self, one: NodeId, node: NodeId) -> bool:
        """Return whether `one` comes before us among the successors of `node`."""
        position = identifier(node)
        return clockwise(position, identifier(one)) < clockwise(position, self.parts.ring.identifier)

    def look(self, event: Event) -> Outcomes:
        """Take over an event on standby if it is ours by now, or if it is late and its node is in our range."""
        parts = self.parts
        patience = parts.config.standby_periods + (parts.config.ready_wait if event.kind == "join" else 0)
        late = parts.ticks - event.since > patience
        # Deviation: [OM Alg. 5, handleChurnEvent, l. 3] takes over the events of a coordinator when it leaves. We look
        # at every tick whether we are the coordinator by now, which also holds if its departure was never reported.
        is_ours = parts.ring.is_coordinator(event.node) and (late or not event.is_yielded)
        if is_ours or (late and parts.is_in_range(event.node)):
            event.is_late, event.is_yielded = late, False  # It no longer waits for the repair of a group.
            return self._take_over(event)
        if late:  # A-OMN-15: out of range. Wait for another time-out, and drop the event after several of them.
            event.move(STANDBY, parts.ticks)
            event.waited += 1
            if event.waited > 3 or event.kind == "join":  # A joiner asks again itself.
                parts.events.drop(event)
        return []

    def _take_over(self, event: Event) -> Outcomes:
        """Handle an event that was on standby. Probe the node first unless its departure is certain."""
        reached("a standby takes over a repair")
        if not self.parts.ring.is_coordinator(event.node):
            reached("the second standby takes over a repair")
        is_certain = event.kind == "join" or event.is_announced
        if not is_certain and not self.parts.is_dead(event.node, event.incarnation):
            return self._doubt(event)
        return self._execute(event)
