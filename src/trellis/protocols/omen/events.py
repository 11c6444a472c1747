"""Churn events: which of them this node handles, and which it waits for others to handle.  [OM Alg. 5-6]

An event is in `doubt` until the node it is about is known to be gone (it is asked directly), then it is ours (`exe`) or
on `standby`, then `mending`, then `done`: kept for a while, so that late reports find it.

handleChurnEvent, processExeQ and processStandbyL are what `Coordinator` (churn.py) does with them; gcChurnEvent is
`finish` and `forget_old`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.me import life_of

DOUBT, EXE, STANDBY, MENDING, DONE = "doubt", "exe", "standby", "mending", "done"
# A node hears of churn in its own range of the ring alone, 2L nodes or so: hundreds of restarts of each within
# `keep_periods` would be needed to get here. More than that is somebody who makes names up.
EVENTS_MAX = 4_096


@dataclass(eq=False)
class Event:
    kind: str  # join or leave
    node: NodeId
    incarnation: int
    since: int  # the tick of its present state
    state: str = DOUBT
    reporters: dict[NodeId, tuple[Topic, ...]] = field(default_factory=dict)  # with the topics of their lost links
    pings: int = 0
    mend: int | None = None
    counted: frozenset[NodeId] = frozenset()  # whom its repair counted in
    waited: int = 0  # time-outs that it was out of range
    tries: int = 0  # repairs that gave up
    is_announced: bool = False  # the node itself has told us that it leaves in order
    is_yielded: bool = False  # another coordinator repairs the group of dead neighbors that this node belongs to
    is_late: bool = False  # whoever should have handled it did not
    is_handled: bool = False  # a nearer successor of the node has said that it knows of the event

    def move(self, state: str, tick: int) -> None:
        self.state, self.since = state, tick

    @property
    def is_open(self) -> bool:
        return self.state != DONE


class Events:
    def __init__(self, keep_periods: int) -> None:
        self.keep_periods = keep_periods
        self.events: dict[tuple[str, NodeId, int], Event] = {}  # kind, node, life

    def get(self, kind: str, node: NodeId, incarnation: int) -> Event | None:
        return self.events.get((kind, node, life_of(incarnation)))

    def add(self, kind: str, node: NodeId, incarnation: int, tick: int, state: str) -> Event:
        """The event; where all that we keep are repairs of our own, it is not kept."""
        event = Event(kind, node, incarnation, tick, state)
        if len(self.events) >= EVENTS_MAX:
            self._give_way()
        if len(self.events) < EVENTS_MAX:
            self.events[kind, node, life_of(incarnation)] = event
        return event

    def open(self) -> Iterator[Event]:
        """In the order of localtime: that in which this node heard of them."""
        return iter([event for event in self.events.values() if event.is_open])

    def drop(self, event: Event) -> None:
        self.events.pop((event.kind, event.node, life_of(event.incarnation)), None)

    def finish(self, event: Event, tick: int) -> None:
        event.move(DONE, tick)
        event.mend = None

    def _give_way(self) -> None:
        """One of them makes room: never a repair of ours, and of what is open what was there first stays."""
        events = self.events.values()
        for state, order in (DONE, events), (STANDBY, reversed(events)), (DOUBT, reversed(events)):
            event = next((event for event in order if event.state == state), None)
            if event is not None:
                self.drop(event)
                return

    def forget_old(self, tick: int) -> None:
        self.events = {
            key: event for key, event in self.events.items() if event.is_open or event.since > tick - self.keep_periods
        }
