"""Hosts on a mesh that delays, and keeps no order between topics: what delivery promises, and no more."""

from __future__ import annotations

from random import Random

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.effects import Check, Emit, ToClient, Unwant, Want
from trellis.protocols.mqtt.host import Host

CONFIG = MqttConfig(
    listen="127.0.0.1:0", spread_ms=1_000, ask_s=10, introduce_s=6, active_s=30, suback_s=60, subscriptions_max=2_000
)


class Mesh:
    """What delivery promises, and no more: a confirmed subscriber gets what is published later, once, in the order of
    each publisher and topic, after a delay; between topics there is no order."""

    def __init__(self, names: str, random: Random, delay_ms_max: int = 800, confirm_ms_max: int = 4_000) -> None:
        self.random, self.delay_ms_max, self.confirm_ms_max = random, delay_ms_max, confirm_ms_max
        self.now_ms, self.number = 1_000, 0
        self.hosts = {name: Host(name, 1, CONFIG) for name in names}
        self.confirmed: dict[tuple[str, str], bool] = {}
        self.last: dict[tuple[str, str, str], int] = {}  # no message overtakes an earlier one of its stream
        self.events: list[tuple[int, int, str, tuple]] = []
        self.got: dict[str, list[tuple[str, bytes]]] = {name: [] for name in names}
        self.subacks: dict[str, int] = dict.fromkeys(names, 0)
        self.copies = 0
        self.deaf = ""  # a node that gets nothing
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        host = self.hosts[name] = self.hosts.get(name) or Host(name, 1, CONFIG)
        host.at(self.now_ms, self.now_ms)
        host.start()
        host.opened(1)
        host.received(1, p.Connect(version=5, client=f"client of {name}", clean_start=True))
        self.carry_out(name)

    def at(self, delay_ms: int, kind: str, *what) -> None:
        self.number += 1
        self.events.append((self.now_ms + delay_ms, self.number, kind, what))

    def carry_out(self, name: str) -> None:
        host = self.hosts[name]
        while effects := host.take():
            for effect in effects:
                match effect:
                    case Check():
                        host.checked(1, True)
                    case Want(topic):
                        self.confirmed[name, topic] = False
                        self.at(self.random.randint(1, self.confirm_ms_max), "confirm", name, topic)
                    case Unwant(topic):
                        self.confirmed.pop((name, topic), None)
                    case Emit(topic, payload, number):
                        self.publish(name, topic, payload, number)
                    case ToClient(_, p.Publish() as packet):
                        self.got[name].append((packet.topic, packet.payload))
                    case ToClient(_, p.SubAck()):
                        self.subacks[name] += 1
        host.check()

    def publish(self, name: str, topic: str, payload: bytes, number: int) -> None:
        self.copies += topic.startswith("$mqtt/") and topic != "$mqtt/ask"
        others = 0
        for other in self.hosts:
            if self.confirmed.get((other, topic)):
                others += other != name
                key = (name, topic, other)
                due = max(self.last.get(key, 0) + 1, self.now_ms + self.random.randint(1, self.delay_ms_max))
                self.last[key] = due
                self.at(due - self.now_ms, "deliver", other, topic, name, payload)
        self.at(self.random.randint(1, self.delay_ms_max), "acknowledge", name, number, min(others, 1))

    def pass_time(self, ms: int) -> None:
        end = self.now_ms + ms
        while self.now_ms < end:
            self.now_ms += 20
            due = sorted(one for one in self.events if one[0] <= self.now_ms)
            self.events = [one for one in self.events if one[0] > self.now_ms]
            for _, _, kind, what in due:
                self.happen(kind, what)
            if self.now_ms % 200 == 0:
                for name, host in self.hosts.items():
                    host.at(self.now_ms, self.now_ms)
                    host.tick()
                    self.carry_out(name)

    def stop(self, name: str) -> None:
        """It is gone, and what it had with it."""
        del self.hosts[name]
        self.confirmed = {key: value for key, value in self.confirmed.items() if key[0] != name}
        self.events = [one for one in self.events if one[3][0] != name]

    def happen(self, kind: str, what: tuple) -> None:
        name = what[0]
        host = self.hosts[name]
        host.at(self.now_ms, self.now_ms)
        if kind == "confirm":
            if what in self.confirmed:
                self.confirmed[what] = True
                host.confirmed(what[1])
        elif kind == "deliver":
            if name != self.deaf:
                host.delivered(*what[1:])
        else:
            host.acknowledged(*what[1:])
        self.carry_out(name)

    def subscribe(self, name: str, *filters: str) -> None:
        self.hosts[name].received(1, p.Subscribe(1, tuple(p.Asked(one, 0) for one in filters)))
        self.carry_out(name)

    def send(self, name: str, topic: str, payload: bytes, retain: bool = False) -> None:
        self.hosts[name].at(self.now_ms, self.now_ms)
        self.hosts[name].received(1, p.Publish(topic=topic, payload=payload, retain=retain))
        self.carry_out(name)
