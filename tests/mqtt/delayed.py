"""Hosts on a mesh that delays, and keeps no order between topics: what delivery promises, and no more."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.effects import Check, Emit, ToClient, Unwant, Want
from trellis.protocols.mqtt.host import Host
from trellis.protocols.mqtt.interests import QUESTIONS

CONFIG = MqttConfig(
    listen="127.0.0.1:0", spread_ms=1_000, ask_s=10, introduce_s=6, active_s=30, suback_s=60, subscriptions_max=2_000
)


class Delayed:
    """A confirmed subscriber gets what is published later, once, in the order of each publisher and topic, after a
    delay; between topics there is no order. What crosses `$mqtt/ask` may be lost, and then keeps no order either."""

    config = CONFIG

    def __init__(self, names: str, random: Random, delay_ms_max: int = 800, confirm_ms_max: int = 4_000) -> None:
        self.names, self.random = names, random
        self.delay_ms_max, self.confirm_ms_max = delay_ms_max, confirm_ms_max
        self.now_ms, self.count = 1_000, 0
        self.loss = 0.0  # of what crosses `$mqtt/ask`
        self.deaf = ""  # a node that gets nothing
        self.copies = 0  # messages that crossed a directory
        self.hosts: dict[str, Host] = {}
        self.lives: Counter[str] = Counter()
        self.confirmed: dict[tuple[str, str], int] = {}  # -> the subscription; negative: not confirmed
        self.last: dict[tuple[str, str, str], int] = {}  # no message overtakes an earlier one of its stream
        self.events: list[tuple[int, int, str, tuple[Any, ...]]] = []

    # Nodes

    def start_host(self, name: str) -> Host:
        self.lives[name] += 1
        host = self.hosts[name] = Host(name, self.lives[name], self.config)
        host.at(self.now_ms, self.now_ms)
        host.start()
        return host

    def stop(self, name: str) -> None:
        """It is gone, and what it had with it."""
        del self.hosts[name]
        self.confirmed = {key: value for key, value in self.confirmed.items() if key[0] != name}
        self.events = [one for one in self.events if one[3][0] != name]

    def receive(self, name: str, number: int, packet: p.Packet) -> None:
        self.hosts[name].at(self.now_ms, self.now_ms)
        self.hosts[name].received(number, packet)
        self.carry_out(name)

    def told(self, name: str, number: int, packet: p.Packet) -> None:
        """A client of `name` gets a packet."""
        raise NotImplementedError("each model of clients says what they do with a packet")

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
                        self.at(self.random.randint(1, self.confirm_ms_max), "confirm", name, topic, self.count)
                    case Unwant(topic):
                        self.confirmed.pop((name, topic), None)
                    case Emit(topic, payload, number):
                        self.spread(name, topic, payload, number)
                    case ToClient(number, packet):
                        self.told(name, number, packet)
        host.check()

    def spread(self, name: str, topic: str, payload: bytes, number: int) -> None:
        """Each confirmed subscriber gets it once, in the order of its publisher on this topic."""
        self.copies += topic.startswith("$mqtt/") and topic != QUESTIONS
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
            if name != self.deaf:
                host.delivered(*what)
        elif kind == "puback":
            host.received(what[0], p.Ack(p.PUBACK, what[1]))
        else:
            host.acknowledged(*what)
        self.carry_out(name)


class Mesh(Delayed):
    """One client at each node, which takes everything with QoS 0."""

    def __init__(self, names: str, random: Random, delay_ms_max: int = 800, confirm_ms_max: int = 4_000) -> None:
        super().__init__(names, random, delay_ms_max, confirm_ms_max)
        self.got: dict[str, list[tuple[str, bytes]]] = {name: [] for name in names}
        self.subacks: dict[str, int] = dict.fromkeys(names, 0)
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        host = self.start_host(name)
        host.opened(1)
        host.received(1, p.Connect(version=5, client=f"client of {name}", clean_start=True))
        self.carry_out(name)

    def told(self, name: str, number: int, packet: p.Packet) -> None:
        if isinstance(packet, p.Publish):
            self.got[name].append((packet.topic, packet.payload))
        self.subacks[name] += isinstance(packet, p.SubAck)

    def subscribe(self, name: str, *filters: str) -> None:
        self.receive(name, 1, p.Subscribe(1, tuple(p.Asked(one, 0) for one in filters)))

    def send(self, name: str, topic: str, payload: bytes, retain: bool = False) -> None:
        self.receive(name, 1, p.Publish(topic=topic, payload=payload, retain=retain))
