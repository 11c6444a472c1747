"""Sites of plain 3.1.1 brokers that make one mesh, without sockets: every packet moves when the test says so."""

from __future__ import annotations

from collections import Counter

from reference.mqtt311 import Key, PlainBroker
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.echoes import PROBES

STEPS_MAX = 3_000  # a mesh that is quiet by then has no loops


class Site:
    def __init__(self, name: str, broker: PlainBroker, config: MqttConfig) -> None:
        self.name, self.broker, self.config = name, broker, config
        self.lives = 0
        self.ids = 0
        self.past: Counter[str] = Counter()  # what earlier lives counted
        self.begin()

    def begin(self) -> None:
        """A new life of the sidecar, which knows nothing."""
        if self.lives:
            self.past += self.bridge.counters
        self.lives += 1
        self.bridge = Bridge(f"trellis-{self.name}", self.config, f"life {self.lives}")
        self.unanswered: list[int] = []  # publications in the mesh, not yet acknowledged

    @property
    def counters(self) -> Counter[str]:
        return self.past + self.bridge.counters


class World:
    """All sites want everything."""

    def __init__(self, brokers: list[PlainBroker], config: MqttConfig) -> None:
        self.sites = [Site(f"s{index}", broker, config) for index, broker in enumerate(brokers)]
        self.config, self.now_ms = config, 0
        self.published: list[Counter[Key]] = [Counter() for _ in brokers]  # by clients of each broker
        self.entered: list[Counter[Key]] = [Counter() for _ in brokers]  # the mesh, from each site

    def publish(self, index: int, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.published[index][topic, payload] += 1
        self.sites[index].broker.publish(p.Publish(topic=topic, payload=payload, qos=1, retain=retain))

    def cut(self, index: int, *, forget: bool = False) -> None:
        site = self.sites[index]
        site.bridge.down()
        if forget:
            site.broker.forget()
        else:
            site.broker.cut()

    def die(self, index: int) -> None:
        """kill -9 of the sidecar. What was on its way to its broker is lost: nothing is promised to a dead node."""
        self.sites[index].broker.cut()
        self.sites[index].begin()

    def connect(self, index: int) -> None:
        site = self.sites[index]
        if not site.broker.is_connected:
            answer = site.broker.connect()
            if not answer.session_present:
                site.unanswered.clear()
            site.bridge.up(answer, self.now_ms)
            self._carry(index)

    def to_broker(self, index: int) -> None:
        if self.sites[index].broker.from_client:
            self.sites[index].broker.step()

    def to_sidecar(self, index: int) -> None:
        site = self.sites[index]
        if site.broker.to_client:
            assert site.bridge.from_broker(site.broker.to_client.pop(0)), site.bridge.leaves
            self._carry(index)

    def answer(self, index: int) -> None:
        """The mesh acknowledges the oldest publication of a site."""
        site = self.sites[index]
        if site.unanswered:
            site.bridge.from_host(p.Ack(p.PUBACK, site.unanswered.pop(0)), self.now_ms)
            self._carry(index)

    def tick(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        for index, site in enumerate(self.sites):
            site.bridge.tick(self.now_ms)
            assert not site.bridge.leaves
            self._carry(index)

    def _carry(self, index: int) -> None:
        site = self.sites[index]
        site.bridge.check()
        out, site.bridge.to_broker = site.bridge.to_broker, []
        site.broker.from_client += out
        inward, site.bridge.to_host = site.bridge.to_host, []
        for packet in inward:
            if isinstance(packet, p.Publish):
                self._enter(index, packet)

    def _enter(self, index: int, packet: p.Publish) -> None:
        """A message into the mesh, which gives it to the others."""
        assert not packet.retain
        self.entered[index][packet.topic, packet.payload] += 1
        if packet.id is not None:
            self.sites[index].unanswered.append(packet.id)
        for other, site in enumerate(self.sites):
            if other != index:
                site.ids = site.ids % 65_535 + 1
                given = p.Publish(topic=packet.topic, payload=packet.payload, qos=1, id=site.ids)
                site.bridge.from_host(given, self.now_ms)
                self._carry(other)

    def settle(self) -> None:
        """Everybody is connected, and everything moves until nothing does, and no echo is waited for."""
        for index in range(len(self.sites)):
            self.connect(index)
        for _ in range(STEPS_MAX):
            if not self._is_moving() and all(one.echoes.is_settled and not one.echoes for one in self._bridges()):
                return
            if not self._is_moving():
                self.tick(500)
            for index in range(len(self.sites)):
                self.to_broker(index)
                self.to_sidecar(index)
                self.answer(index)
        raise AssertionError("it goes on and on")

    def _bridges(self) -> list[Bridge]:
        return [site.bridge for site in self.sites]

    def _is_moving(self) -> bool:
        return any(one.broker.to_client or one.broker.from_client or one.unanswered for one in self.sites)

    def seen(self, index: int) -> Counter[Key]:
        """By a reader of everything at one broker, but for probes."""
        return Counter(key for key in self.sites[index].broker.seen if not key[0].startswith(PROBES))
