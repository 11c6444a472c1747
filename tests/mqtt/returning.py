"""A model of nodes whose clients come, go and come back, on a mesh that may lose what nodes tell each other.

Each node has two MQTT clients. Every publication that was acknowledged is noted, with the clients that had been told
SUBACK before it was published: `missed` lists what these did not get, `twice` what they got more than once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.effects import Check, Emit, ToClient, Unwant, Want
from trellis.protocols.mqtt.host import Host
from trellis.protocols.mqtt.interests import QUESTIONS
from trellis.protocols.mqtt.topics import matches

CONFIG = MqttConfig(listen="127.0.0.1:0", spread_ms=1_000, ask_s=10, introduce_s=6, active_s=30, suback_s=600)
CLIENTS = (1, 2)
Place = tuple[str, int]  # a node and one of its connections


@dataclass
class Sent:
    publisher: str
    topic: str
    payload: bytes
    due: list[tuple[Place, str, int]]  # client, filter, and the subscription, that must get it once it is acknowledged
    is_acknowledged: bool = False


@dataclass
class Client:
    filters: dict[str, int] = field(default_factory=dict)  # confirmed -> when, as a number that never comes twice
    asked: dict[int, str] = field(default_factory=dict)  # packet identifier -> filter
    got: list[tuple[str, bytes]] = field(default_factory=list)
    id: int = 0


class Nodes:
    def __init__(self, names: str, random: Random, delay_ms_max: int = 800) -> None:
        self.names, self.random, self.delay_ms_max = names, random, delay_ms_max
        self.now_ms, self.count, self.life = 1_000, 0, 0
        self.loss = 0.0  # of what crosses `$mqtt/ask`; then it keeps no order either
        self.hosts: dict[str, Host] = {}
        self.clients: dict[Place, Client] = {}
        self.confirmed: dict[tuple[str, str], int] = {}  # -> the subscription; negative: not confirmed
        self.last: dict[tuple[str, str, str], int] = {}
        self.events: list[tuple[int, int, str, tuple[Any, ...]]] = []
        self.sent: list[Sent] = []
        self.by_number: dict[tuple[str, int, int], Sent] = {}  # node, connection, packet identifier
        for name in names:
            self.start(name)

    # Nodes and clients

    def start(self, name: str) -> None:
        self.life += 1
        host = self.hosts[name] = Host(name, self.life, CONFIG)
        host.at(self.now_ms, self.now_ms)
        host.start()
        for number in CLIENTS:
            self.connect(name, number)

    def connect(self, name: str, number: int) -> None:
        self.clients[name, number] = Client()
        host = self.hosts[name]
        host.at(self.now_ms, self.now_ms)
        host.opened(number)
        host.received(number, p.Connect(version=5, client=f"{name}{number}", clean_start=True))
        self.carry_out(name)

    def crash(self, name: str) -> None:
        del self.hosts[name]
        self.confirmed = {key: value for key, value in self.confirmed.items() if key[0] != name}
        self.events = [one for one in self.events if one[3][0] != name]
        for number in CLIENTS:
            self.clients[name, number] = Client()

    def reconnect(self, name: str, number: int) -> None:
        """The client's connection breaks, which ends its session; it comes back."""
        self.hosts[name].closed(number)
        self.carry_out(name)
        self.connect(name, number)

    def subscribe(self, name: str, number: int, filter_: str) -> None:
        client = self.clients[name, number]
        client.id += 1
        client.asked[client.id] = filter_
        self.receive(name, number, p.Subscribe(client.id, (p.Asked(filter_, 1),)))

    def unsubscribe(self, name: str, number: int, filter_: str) -> None:
        client = self.clients[name, number]
        client.filters.pop(filter_, None)
        client.asked = {key: one for key, one in client.asked.items() if one != filter_}
        self.receive(name, number, p.Unsubscribe(60_000, (filter_,)))

    def publish(self, name: str, number: int, topic: str) -> None:
        client = self.clients[name, number]
        client.id += 1
        due = [
            (place, filter_, since)
            for place, one in self.clients.items()
            for filter_, since in one.filters.items()
            if matches(filter_, topic)
        ]
        self.count += 1
        sent = Sent(name, topic, b"%d" % self.count, due)
        self.sent.append(sent)
        self.by_number[name, number, client.id] = sent
        self.receive(name, number, p.Publish(topic=topic, payload=sent.payload, qos=1, id=client.id))

    def receive(self, name: str, number: int, packet: p.Packet) -> None:
        self.hosts[name].at(self.now_ms, self.now_ms)
        self.hosts[name].received(number, packet)
        self.carry_out(name)

    def missed(self) -> list[tuple[Place, str, Sent]]:
        """Return what a client did not get although it was subscribed from before the publication until now."""
        return [
            (place, filter_, sent)
            for sent in self.sent
            if sent.is_acknowledged
            for place, filter_, since in sent.due
            if self.clients[place].filters.get(filter_) == since
            and (sent.topic, sent.payload) not in self.clients[place].got
        ]

    def twice(self) -> list[tuple[Place, tuple[str, bytes]]]:
        return [
            (place, one) for place, client in self.clients.items() for one in client.got if client.got.count(one) > 1
        ]

    # The mesh

    def at(self, delay_ms: int, kind: str, *what: Any) -> None:
        self.count += 1
        self.events.append((self.now_ms + delay_ms, self.count, kind, what))

    def carry_out(self, name: str) -> None:
        host = self.hosts[name]
        while effects := host.take():
            for effect in effects:
                match effect:
                    case Check(number):
                        host.checked(number, True)
                    case Want(topic):
                        self.count += 1
                        self.confirmed[name, topic] = -self.count
                        self.at(self.random.randint(1, 4_000), "confirm", name, topic, self.count)
                    case Unwant(topic):
                        self.confirmed.pop((name, topic), None)
                    case Emit(topic, payload, number):
                        self.spread(name, topic, payload, number)
                    case ToClient(number, packet):
                        self.told(name, number, packet)
        host.check()

    def told(self, name: str, number: int, packet: p.Packet) -> None:
        client = self.clients[name, number]
        match packet:
            case p.Publish():
                client.got.append((packet.topic, packet.payload))
                if packet.id is not None:
                    self.at(1, "puback", name, number, packet.id)
            case p.SubAck() if packet.id in client.asked:
                self.count += 1
                client.filters.setdefault(client.asked.pop(packet.id), self.count)
            case p.Ack(p.PUBACK):
                self.by_number[name, number, packet.id].is_acknowledged = not packet.reason

    def spread(self, name: str, topic: str, payload: bytes, number: int) -> None:
        """Each confirmed subscriber gets it once, in the order of its publisher on this topic."""
        others = 0
        for other in self.hosts:
            if self.confirmed.get((other, topic), -1) < 0:
                continue
            others += other != name
            key, delay_ms = (name, topic, other), self.random.randint(1, self.delay_ms_max)
            if self.loss and topic == QUESTIONS:
                if self.random.random() < self.loss:
                    continue
                due = self.now_ms + 4 * delay_ms
            else:
                due = self.last[key] = max(self.last.get(key, 0) + 1, self.now_ms + delay_ms)
            self.at(due - self.now_ms, "deliver", other, topic, name, payload)
        self.at(self.random.randint(1, self.delay_ms_max), "acknowledge", name, number, min(others, 1))

    def pass_time(self, ms: int) -> None:
        end = self.now_ms + ms
        while self.now_ms < end:
            self.now_ms += 20
            due = sorted(one for one in self.events if one[0] <= self.now_ms)
            self.events = [one for one in self.events if one[0] > self.now_ms]
            for _, _, kind, what in due:
                self.happen(kind, *what)
            if self.now_ms % 200 == 0:
                for name, host in self.hosts.items():
                    host.at(self.now_ms, self.now_ms)
                    host.tick()
                    self.carry_out(name)

    def happen(self, kind: str, name: str, *what: Any) -> None:
        host = self.hosts[name]
        host.at(self.now_ms, self.now_ms)
        if kind == "confirm":
            topic, subscription = what
            if self.confirmed.get((name, topic)) == -subscription:
                self.confirmed[name, topic] = subscription
                host.confirmed(topic)
        elif kind == "deliver":
            host.delivered(*what)
        elif kind == "puback":
            host.received(what[0], p.Ack(p.PUBACK, what[1]))
        else:
            host.acknowledged(*what)
        self.carry_out(name)
