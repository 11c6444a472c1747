"""A broker of MQTT 3.1.1 as the standard allows it, for one persistent client: slow, readable, in order.

Two pipes lead to the client and back; whoever tests moves packets through them one by one, cuts the connection (what is
in the pipes is gone, what is not acknowledged comes again), or makes the broker forget the session.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msgspec.structs import replace

from reference.mqtt import matches
from trellis.protocols.mqtt import packets as p

Key = tuple[str, bytes]
INFLIGHT_MAX = 3  # messages under way to the client; the others queue up


@dataclass
class PlainBroker:
    is_copying: bool = False  # a message for each filter that matches it  [MQTT 3.1.1, 3.3.5]
    is_amqtt: bool = False  # QoS of the filter; what waited bears RETAIN; retained messages at each connection
    denied: str = ""  # a topic on which the client may not publish: it is acknowledged, and that is all
    seen: list[Key] = field(default_factory=list)  # by a local reader of everything
    retained: dict[str, bytes] = field(default_factory=dict)
    to_client: list[p.Packet] = field(default_factory=list)  # pipes
    from_client: list[p.Packet] = field(default_factory=list)
    is_connected: bool = False
    filters: dict[str, int] = field(default_factory=dict)
    queue: list[p.Publish] = field(default_factory=list)
    inflight: dict[int, p.Publish] = field(default_factory=dict)
    lost: Counter[Key] = field(default_factory=Counter)  # of the client's messages and of their echoes
    has_session: bool = False
    number: int = 0

    def connect(self) -> p.ConnAck:
        present, self.has_session, self.is_connected = self.has_session, True, True
        for one in self.inflight.values():
            self.to_client.append(replace(one, dup=True))
        if self.is_amqtt:
            self.queue = [replace(one, retain=True) for one in self.queue]
        self.pump()
        if self.is_amqtt:
            self._send_retained(qos_max=0)
        return p.ConnAck(reason=0, session_present=present)

    def cut(self) -> None:
        for one in self.from_client:
            if isinstance(one, p.Publish):
                self.lost[one.topic, one.payload] += 1
        for one in self.to_client:
            if isinstance(one, p.Publish) and not one.qos:
                self.lost[one.topic, one.payload] += 1
        self.is_connected = False
        self.to_client.clear()
        self.from_client.clear()

    def forget(self) -> None:
        """The session: its filters, and what waits in it."""
        self.cut()
        self.has_session = False
        self.filters.clear()
        self.queue.clear()
        self.inflight.clear()

    def step(self) -> None:
        """Take in one packet of the client."""
        packet = self.from_client.pop(0)
        match packet:
            case p.Subscribe():
                self.filters |= {one.filter: one.qos for one in packet.asked}
                self.to_client.append(p.SubAck(packet.id, tuple(one.qos for one in packet.asked)))
                self._send_retained(qos_max=1)
            case p.Publish():
                if packet.topic == self.denied:
                    self.lost[packet.topic, packet.payload] += 1
                else:
                    self.publish(packet)
                if packet.id is not None:
                    self.to_client.append(p.Ack(p.PUBACK, packet.id))
            case p.Ack():
                self.inflight.pop(packet.id, None)
                self.pump()

    def publish(self, packet: p.Publish) -> None:
        """By anybody."""
        self.seen.append((packet.topic, packet.payload))
        if packet.retain:
            self.retained[packet.topic] = packet.payload
        granted = [qos for one, qos in self.filters.items() if matches(one, packet.topic)]
        for _ in granted if self.is_copying else granted[:1]:
            qos = max(granted) if self.is_amqtt else min(packet.qos, max(granted))
            self._deliver(p.Publish(topic=packet.topic, payload=packet.payload, qos=qos))

    def _deliver(self, one: p.Publish) -> None:
        if one.qos:
            self.queue.append(one)
            self.pump()
        elif self.is_connected:
            self.to_client.append(one)
        else:
            self.lost[one.topic, one.payload] += 1

    def _send_retained(self, qos_max: int) -> None:
        for topic, payload in self.retained.items():
            if payload and any(matches(one, topic) for one in self.filters):
                self._deliver(p.Publish(topic=topic, payload=payload, qos=qos_max, retain=True))

    def pump(self) -> None:
        while self.is_connected and self.queue and len(self.inflight) < INFLIGHT_MAX:
            self.number = self.number % 65_535 + 1
            one = replace(self.queue.pop(0), id=self.number)
            self.inflight[self.number] = one
            self.to_client.append(one)
