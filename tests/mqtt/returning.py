"""A model of nodes whose clients come, go and come back, on a mesh that may lose what nodes tell each other.

Each node has two MQTT clients. Every publication that was acknowledged is noted, with the clients that had been told
SUBACK before it was published: `missed` lists what these did not get, `twice` what they got more than once, and
`disordered` what they got after a later message of the same publisher on the same topic.

Messages wait for predecessors for a shorter time (`hold_ms`) than these take at most: what is owed must be waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from mqtt.delayed import Delayed
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.topics import matches

CONFIG = MqttConfig(
    listen="127.0.0.1:0", spread_ms=1_000, ask_s=10, introduce_s=6, active_s=30, suback_s=600, hold_ms=100
)
CLIENTS = (1, 2)
Place = tuple[str, int]  # a node and one of its connections


@dataclass
class Sent:
    publisher: Place
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


class Nodes(Delayed):
    config = CONFIG

    def __init__(self, names: str, random: Random, delay_ms_max: int = 800) -> None:
        super().__init__(names, random, delay_ms_max)
        self.clients: dict[Place, Client] = {}
        self.sent: list[Sent] = []
        self.by_number: dict[tuple[str, int, int], Sent] = {}  # node, connection, packet identifier
        for name in names:
            self.start(name)

    # Nodes and clients

    def start(self, name: str) -> None:
        self.start_host(name)
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
        self.stop(name)
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
        sent = Sent((name, number), topic, b"%d" % self.count, due)
        self.sent.append(sent)
        self.by_number[name, number, client.id] = sent
        self.receive(name, number, p.Publish(topic=topic, payload=sent.payload, qos=1, id=client.id))

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

    def disordered(self) -> list[tuple[Place, str, bytes]]:
        publishers = {one.payload: one.publisher for one in self.sent}
        found: list[tuple[Place, str, bytes]] = []
        for place, client in self.clients.items():
            last: dict[tuple[Place, str], int] = {}
            for topic, payload in client.got:
                if payload in publishers:
                    key = publishers[payload], topic
                    if int(payload) < last.get(key, 0):
                        found.append((place, topic, payload))
                    last[key] = max(last.get(key, 0), int(payload))
        return found

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
