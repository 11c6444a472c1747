"""A model of nodes whose clients share a subscription: who got what, and what may have come twice.

Members acknowledge what they get after a while. Members come and go, and nodes crash. Every receipt is noted with its
connection, so that it is known whether the connection lasted until the acknowledgement was sent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import msgspec

from mqtt.delayed import CONFIG, Delayed
from trellis.protocols.mqtt import packets as p

PUBLISHER = 99  # the connection of a node's client that only publishes
DELAY_MS = 500  # of a message between nodes, at most
TELL_MS = 2 * DELAY_MS + 400  # a node has told the others what its members acknowledged so long ago, at the latest


@dataclass
class Receipt:
    node: str
    connection: int
    payload: bytes
    at_ms: int
    acknowledged_ms: int | None = None  # when the member's PUBACK reached its node
    ended_ms: int | None = None  # when its connection ended
    crashed_ms: int | None = None  # when its node crashed


class Sharing(Delayed):
    config = msgspec.structs.replace(CONFIG, share_takeover_s=15.0, sys_interval_s=0)

    def __init__(self, names: str, random: Random) -> None:
        super().__init__(names, random, DELAY_MS, 1_000)
        self.receipts: list[Receipt] = []
        self.subacks: set[tuple[str, int]] = set()
        self.members: dict[tuple[str, int], None] = {}
        self.sent: dict[tuple[str, int], bytes] = {}  # node and packet identifier -> payload
        self.acknowledged: dict[bytes, int] = {}  # publications -> when
        self.numbers = 0
        self.slow = 0.0  # share of messages that their members take long to acknowledge
        for name in names:
            self.begin(name)
        self.pass_time(30_000)

    def begin(self, name: str) -> None:
        self.start_host(name)
        self.open(name, PUBLISHER)

    def open(self, name: str, number: int) -> None:
        host = self.hosts[name]
        host.at(self.now_ms, self.now_ms)
        host.opened(number)
        host.received(number, p.Connect(version=5, client=f"{name}{number}", clean_start=True))
        self.carry_out(name)

    def join(self, name: str, filter_: str = "$share/g/x/#") -> tuple[str, int]:
        """A new client of a node asks to be a member."""
        self.numbers += 1
        place = (name, 100 + self.numbers)
        self.open(*place)
        self.receive(*place, p.Subscribe(1, (p.Asked(filter_, 1),)))
        self.members[place] = None
        return place

    def unsubscribe(self, place: tuple[str, int], filter_: str = "$share/g/x/#") -> None:
        del self.members[place]
        self.receive(*place, p.Unsubscribe(2, (filter_,)))

    def vanish(self, place: tuple[str, int]) -> None:
        """A member's connection breaks, and with it ends its session."""
        self.members.pop(place, None)
        for one in self.receipts:
            if (one.node, one.connection) == place and one.ended_ms is None:
                one.ended_ms = self.now_ms
        self.hosts[place[0]].at(self.now_ms, self.now_ms)
        self.hosts[place[0]].closed(place[1])
        self.carry_out(place[0])

    def crash(self, name: str) -> None:
        for one in self.receipts:
            if one.node == name and one.crashed_ms is None:
                one.crashed_ms = self.now_ms
        self.members = {place: None for place in self.members if place[0] != name}
        self.stop(name)

    def leave(self, name: str) -> None:
        """A node shuts down in order, and is gone when the mesh has what it said."""
        for one in self.receipts:
            if one.node == name and one.ended_ms is None:
                one.ended_ms = self.now_ms
        self.members = {place: None for place in self.members if place[0] != name}
        self.hosts[name].at(self.now_ms, self.now_ms)
        self.hosts[name].shut_down()
        self.carry_out(name)
        self.stop(name)

    def publish(self, name: str, topic: str = "x/1") -> bytes:
        self.numbers += 1
        payload = b"%d" % self.numbers
        self.sent[name, self.numbers % 65_535] = payload
        self.receive(name, PUBLISHER, p.Publish(topic=topic, payload=payload, qos=1, id=self.numbers % 65_535))
        return payload

    def told(self, name: str, number: int, packet: p.Packet) -> None:
        match packet:
            case p.SubAck():
                self.subacks.add((name, number))
            case p.Publish():
                self.receipts.append(Receipt(name, number, packet.payload, self.now_ms))
                longest_ms = 40_000 if self.random.random() < self.slow else 300
                self.at(self.random.randint(1, longest_ms), "puback", name, number, packet.id)
            case p.Ack(p.PUBACK, identifier) if packet.reason < 0x80:
                self.acknowledged[self.sent[name, identifier]] = self.now_ms

    def happen(self, kind: str, name: str, *what: object) -> None:
        if kind == "puback":
            session = self.hosts[name].by_connection.get(what[0])
            out = session.flying.get(what[1]) if session is not None else None
            if out is not None:
                one = next(
                    each
                    for each in self.receipts
                    if (each.node, each.connection, each.payload) == (name, what[0], out.payload)
                )
                one.acknowledged_ms = self.now_ms
        super().happen(kind, name, *what)

    # Verdicts

    def lost(self) -> list[bytes]:
        got = {one.payload for one in self.receipts}
        return [payload for payload in self.acknowledged if payload not in got]

    def unsure(self, one: Receipt) -> bool:
        """Return whether a receipt may be followed by another one, since nobody could know of the first."""
        if one.ended_ms is not None and (one.acknowledged_ms is None or one.acknowledged_ms >= one.ended_ms):
            return True
        if one.crashed_ms is None:
            return False
        return one.acknowledged_ms is None or one.crashed_ms - one.acknowledged_ms <= TELL_MS

    def twice(self) -> list[bytes]:
        """Return what came to more than one member, without a reason."""
        sure = Counter(one.payload for one in self.receipts if not self.unsure(one))
        return [payload for payload, count in sure.items() if count > 1]
