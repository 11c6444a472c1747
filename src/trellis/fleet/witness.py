"""A ledger that also writes the history of its run, for `trellis judge`.

The ledger judges during the run, from what it remembers. The judge reads the history afterwards, and shares no code
with the ledger. So each of the two can find a fault of the other.
"""

from __future__ import annotations

import time
from typing import Literal

from trellis.fleet.ledger import Incarnation, Ledger
from trellis.judge.history import (
    Acknowledged,
    Confirmed,
    Connected,
    Disturbed,
    Down,
    Ended,
    History,
    Publishing,
    Received,
    Refused,
    Settled,
    Subscribing,
    Unsubscribing,
    Up,
)


class Witness(Ledger):
    """A ledger with a history. Each client of the fleet is a session, named after the incarnation of its node."""

    speaks: Literal["native", "mqtt"] = "native"

    def __init__(self, copies: int = 2, *, may_repeat: bool = False) -> None:
        super().__init__(copies, may_repeat=may_repeat)
        self.history = History()
        self._begun = time.monotonic()

    def born(self, node: str) -> Incarnation:
        incarnation = super().born(node)
        self.history.add(Up(self._now(), node))
        self.history.add(Connected(self._now(), _session(incarnation), node, node, speaks=self.speaks))
        return incarnation

    def asked(self, subscriber: Incarnation, topic: str) -> None:
        self.history.add(Subscribing(self._now(), _session(subscriber), topic))

    def confirmed(self, subscriber: Incarnation, topic: str) -> None:
        super().confirmed(subscriber, topic)
        self.history.add(Confirmed(self._now(), _session(subscriber), topic))

    def unsubscribed(self, node: str, topic: str) -> None:
        self.history.add(Unsubscribing(self._now(), _session(self.incarnation(node)), topic))
        super().unsubscribed(node, topic)

    def died(self, node: str, now: float) -> None:
        incarnation = self.incarnation(node)
        super().died(node, now)
        if incarnation in self._born:
            self.history.add(Ended(self._now(), _session(incarnation)))
        self.history.add(Down(self._now(), node))

    def publish(self, node: str, topic: str, now: float) -> int:
        number = super().publish(node, topic, now)
        self.history.add(Publishing(self._now(), _session(self.incarnation(node)), str(number), topic))
        return number

    def acknowledge(self, number: int, holders: tuple[str, ...], now: float) -> None:
        origin = self.publications[number].origin
        super().acknowledge(number, holders, now)
        self.history.add(Acknowledged(self._now(), _session(origin), str(number), holders))

    def refuse(self, number: int, why: str) -> None:
        publication = self.publications.get(number)
        super().refuse(number, why)
        if publication is not None:
            self.history.add(Refused(self._now(), _session(publication.origin), str(number), why))

    def deliver(self, subscriber: Incarnation, topic: str, number: int, sequence: int, now: float) -> None:
        super().deliver(subscriber, topic, number, sequence, now)
        self.history.add(Received(self._now(), _session(subscriber), str(number), topic))

    def disturbed(self, kind: str, nodes: tuple[str, ...], seconds: float) -> None:
        self.history.add(Disturbed(self._now(), self._now() + seconds, kind, nodes))

    def settled(self) -> None:
        self.history.add(Settled(self._now()))

    def _now(self) -> float:
        return round(time.monotonic() - self._begun, 6)


def _session(incarnation: Incarnation) -> str:
    return f"{incarnation[0]}#{incarnation[1]}"
