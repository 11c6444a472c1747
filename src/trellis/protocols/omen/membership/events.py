"""Churn events: the joins and departures that this node knows of, and the state of each.  [OM Alg. 5-6]

An event is about one run of a node, so a departure that is reported twice is one event. These are the states:

    `standby`   another node is to handle the event; we take over if it does not
    `doubt`     we are to handle it, and probe the node to find out whether it has departed
    `exe`       we are to handle it, and the departure or join is certain; it waits for its view (`views.py`)
    `repairing` our repair is under way
    `done`      the departure is repaired; kept for `keep_periods`, so that late reports find it. Joins are dropped then

| from              | to        | when                                                                           |
| ----------------- | --------- | ------------------------------------------------------------------------------ |
| -                 | standby   | we hear of it, and another node is the coordinator                             |
| -                 | exe       | the node asks us to join, or tells us that it leaves, and we are coordinator   |
| -                 | done      | another node tells us that it is repaired                                      |
| standby           | doubt     | we take it over, and the departure is not certain                              |
| standby           | exe       | we take it over, and it is certain                                             |
| standby           | standby   | a time-out, while the node is out of our range                                 |
| standby, doubt    | -         | the node is alive; on standby also after several time-outs                     |
| doubt             | exe       | the node does not answer, our own detector suspects it, or it says it leaves   |
| exe               | repairing | its view is ready, or was waited for long enough                               |
| exe, repairing    | standby   | another coordinator repairs the group of its node; or a join is no longer ours |
| repairing         | exe       | the repair gave up                                                             |
| repairing         | done      | the repair of a departure is done; a join is dropped instead                   |
| any but repairing | done      | another coordinator has finished it                                            |
| done              | standby   | a survivor reports that the repair has not covered                             |
| done              | -         | `keep_periods` are over, or the node has refuted its suspicion since           |

`Coordinator` (coordinator.py) has handleChurnEvent, processExeQ and processStandbyL. gcChurnEvent is `finish` and
`forget_old`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.me import run_of


class EventState(StrEnum):
    """The states of an event."""

    STANDBY = "standby"
    DOUBT = "doubt"
    EXE = "exe"
    REPAIRING = "repairing"
    DONE = "done"


STANDBY, DOUBT, EXE, REPAIRING, DONE = EventState
TRANSITIONS = {
    STANDBY: (STANDBY, DOUBT, EXE, DONE),
    DOUBT: (EXE, DONE),
    EXE: (STANDBY, REPAIRING, DONE),
    REPAIRING: (STANDBY, EXE, DONE),
    DONE: (STANDBY, DONE),
}
# Most events that are kept. A node hears only of churn in its own range of the ring, which has about 2L nodes. Each of
# them would have to restart hundreds of times within `keep_periods` to reach this limit. So a peer that causes more
# events invents names.
EVENTS_MAX = 4_096


@dataclass(eq=False)
class Event:
    """A join or departure of one run of a node."""

    kind: str  # join or leave; a crash is a leave too
    node: NodeId
    incarnation: int
    since: int  # The tick at which its present state began.
    state: EventState = DOUBT
    reporters: dict[NodeId, tuple[Topic, ...]] = field(default_factory=dict)  # survivor -> topics of its lost link
    pings: int = 0  # Probes sent since it is in doubt.
    repair: int | None = None  # Number of its repair while that is under way.
    counted: frozenset[NodeId] = frozenset()  # Nodes whose answers its finished repair has used.
    waited: int = 0  # Time-outs on standby at which the node was out of our range.
    tries: int = 0  # Repairs that gave up.
    is_announced: bool = False  # The node itself has told us that it leaves.
    is_yielded: bool = False  # Another coordinator repairs the group of departed neighbors that has this node.
    is_late: bool = False  # We have taken it over after a time-out.
    is_handled: bool = False  # A nearer successor of the node has said that it knows of the event.

    def move(self, state: EventState, tick: int) -> None:
        """Enter a state. `TRANSITIONS` must allow it."""
        assert state in TRANSITIONS[self.state], f"{self.kind} of {self.node}: from {self.state} to {state}"
        self.state, self.since = state, tick

    @property
    def is_open(self) -> bool:
        return self.state != DONE


class Events:
    """All events that this node keeps, at most `EVENTS_MAX`."""

    def __init__(self, keep_periods: int) -> None:
        self.keep_periods = keep_periods
        self.events: dict[tuple[str, NodeId, int], Event] = {}  # By kind, node and run.

    def get(self, kind: str, node: NodeId, incarnation: int) -> Event | None:
        """Return the event of this run of the node, whatever the refutations in `incarnation` and in the event."""
        return self.events.get((kind, node, run_of(incarnation)))

    def add(self, kind: str, node: NodeId, incarnation: int, tick: int, state: EventState) -> Event:
        """Create an event, keep it, and return it. If all kept events are repairs of our own, it is not kept."""
        event = Event(kind, node, incarnation, tick, state)
        if len(self.events) >= EVENTS_MAX:
            self._make_room()
        if len(self.events) < EVENTS_MAX:
            self.events[kind, node, run_of(incarnation)] = event
        return event

    def open(self) -> Iterator[Event]:
        """Return the events that are not done, in the order in which this node heard of them (localtime)."""
        return iter([event for event in self.events.values() if event.is_open])

    def departure(self, node: NodeId, incarnation: int) -> Event | None:
        """Return the event of this departure, or None if it is a new one.

        A finished event is dropped if the node has refuted its suspicion since. It came back from a pause, for example,
        in the same run. Later repairs may have counted on it, so its departure now is another one.
        """
        event = self.get("leave", node, incarnation)
        if event is not None and event.state == DONE and incarnation > event.incarnation:
            self.drop(event)
            return None
        if event is not None:
            event.incarnation = max(event.incarnation, incarnation)
        return event

    def was_announced(self, node: NodeId, incarnation: int) -> bool:
        """Return whether this node has told us that it leaves."""
        event = self.get("leave", node, incarnation)
        return event is not None and event.is_announced

    def drop(self, event: Event) -> None:
        self.events.pop((event.kind, event.node, run_of(event.incarnation)), None)

    def finish(self, event: Event, tick: int) -> None:
        """Mark an event as done."""
        event.move(DONE, tick)
        event.repair = None

    def _make_room(self) -> None:
        """Drop one event to make room for another: the oldest done one, else the newest on standby, or in doubt.

        An event that waits for our repair, or whose repair is under way, is never dropped.
        """
        events = self.events.values()
        for state, order in (DONE, events), (STANDBY, reversed(events)), (DOUBT, reversed(events)):
            event = next((event for event in order if event.state == state), None)
            if event is not None:
                self.drop(event)
                return

    def forget_old(self, tick: int) -> None:
        """Forget events that were done more than `keep_periods` ago."""
        self.events = {
            key: event for key, event in self.events.items() if event.is_open or event.since > tick - self.keep_periods
        }
