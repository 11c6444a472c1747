"""Retained messages for new subscriptions: those of this node at once, and those of other nodes as they answer.

A subscription may match all retained messages, and a client may make a thousand such subscriptions in one packet. So
only `TURN_STEPS` steps of work are done at once. The rest waits for the next turn, and clients take turns as well.

C1  A subscription of a client waits at most once. If the client repeats it, its messages are sent again from the start.
C2  A retained message that a client got while its subscription waits is not sent again for that subscription.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.retained import Retained
from trellis.protocols.mqtt.session import Session, Subscription
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import is_sys

HOPE_MS = 30_000  # how long a new subscription gets retained messages of other nodes
HOPES_MAX = 10_000  # most subscriptions that get them
TURN_STEPS = 256  # work of one turn: messages that are sent or looked at
_SHARE = 64  # steps of one client before it is the next one's turn
_STEP_BYTES = 4_096  # a longer payload counts as several steps


@dataclass
class Hope:
    """A new subscription that gets retained messages of other nodes."""

    session: Session
    filter: str
    subscription: Subscription
    until_ms: int


@dataclass
class Due:
    """A new subscription that still gets retained messages of this node."""

    subscription: Subscription
    born: int
    walk: Iterator[Retained | None]


@dataclass
class Backlog:
    """The new subscriptions of a client, oldest first."""

    due: dict[str, Due] = field(default_factory=dict)
    # topics of retained messages that the client got in the meantime -> the count of subscriptions then
    given: dict[str, int] = field(default_factory=dict)


class Recollections:
    """Gives retained messages to new subscriptions."""

    def __init__(self, state: BrokerState, give: Callable[[Session, Retained, Subscription], None]) -> None:
        self.state, self._give = state, give
        self._hopes: OrderedDict[tuple[Session, str], Hope] = OrderedDict()  # in the order of their ends
        self._tree: FilterTree[Session, Hope] = FilterTree()  # the same subscriptions by filter
        self._backlogs: OrderedDict[Session, Backlog] = OrderedDict()
        self._born = 0  # number of subscriptions so far
        self._steps = TURN_STEPS  # steps that are left in this turn

    @property
    def has_more(self) -> bool:
        """Whether there is work for another turn."""
        return bool(self._backlogs)

    def subscribed(self, session: Session, filter_: str, subscription: Subscription) -> None:
        """A client has had its SUBACK: it gets retained messages."""
        self._born += 1
        due = self._backlogs.setdefault(session, Backlog()).due
        due.pop(filter_, None)  # C1
        store = self.state.sys_retained if is_sys(filter_) else self.state.retained
        due[filter_] = Due(subscription, self._born, store.walk(filter_))
        if is_sys(filter_):  # other nodes know nothing about this one
            return
        if self._hopes.pop((session, filter_), None) is not None or len(self._hopes) < HOPES_MAX:
            hope = Hope(session, filter_, subscription, self.state.now_ms + HOPE_MS)
            self._hopes[session, filter_] = hope
            self._tree.put(filter_, session, hope)

    def unsubscribed(self, session: Session, filter_: str) -> None:
        """A client has unsubscribed. If it subscribes again, it gets each retained message once from then on."""
        if self._hopes.pop((session, filter_), None) is not None:
            self._tree.remove(filter_, session)

    def told(self, kept: Retained) -> None:
        """Another node has told a retained message that is new here."""
        for session, hope in list(self._tree.matching(kept.message.topic)):
            if session.subscriptions.get(hope.filter) == hope.subscription:
                self._give(session, kept, hope.subscription)
                self.given(session, kept.message.topic)

    def given(self, session: Session, topic: str) -> None:
        """A client has got the retained message of a topic.  [C2]"""
        backlog = self._backlogs.get(session)
        if backlog is not None and len(backlog.given) < self.state.config.retained_max:
            backlog.given[topic] = self._born

    def go_on(self) -> None:
        """Do what is left of this turn's work."""
        while self._steps > 0 and self._backlogs:
            session, backlog = next(iter(self._backlogs.items()))
            self._serve(session, backlog, self._steps - _SHARE)
            if backlog.due:
                self._backlogs.move_to_end(session)
            else:
                del self._backlogs[session]

    def _serve(self, session: Session, backlog: Backlog, least: int) -> None:
        """Serve one client, until `least` steps are left of this turn."""
        while self._steps > max(least, 0) and backlog.due:
            filter_, due = next(iter(backlog.due.items()))
            self._steps -= 1
            if session.subscriptions.get(filter_) == due.subscription:
                for kept in due.walk:
                    if kept is not None and backlog.given.get(kept.message.topic, 0) < due.born:
                        self._steps -= len(kept.message.payload) // _STEP_BYTES
                        self._give(session, kept, due.subscription)
                    self._steps -= 1
                    if self._steps <= max(least, 0):
                        return
            del backlog.due[filter_]

    def turn(self) -> None:
        """Begin another turn."""
        self._steps = TURN_STEPS
        self.go_on()

    def tick(self) -> None:
        """End subscriptions that no longer get messages of other nodes, and begin another turn."""
        while self._hopes and next(iter(self._hopes.values())).until_ms <= self.state.now_ms:
            (session, filter_), _ = self._hopes.popitem(last=False)
            self._tree.remove(filter_, session)
        self.turn()

    def check(self) -> None:
        assert len(self._hopes) == self._tree.count <= HOPES_MAX
        assert all(backlog.due for backlog in self._backlogs.values())
