"""A host without sockets: packets cross as bytes, the mesh is one node that acknowledges when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.decode import decode, decode_from_client
from trellis.protocols.mqtt.effects import Check, Close, Emit, Pause, ToClient, Unwant, Want
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing, answered_in, version_of
from trellis.protocols.mqtt.host import Host
from trellis.protocols.mqtt.primitives import PacketError

WALL_MS = 1_800_000_000_000


class Talker:
    """A client: what it sends goes through the codec both ways."""

    def __init__(self, desk: Desk, number: int, version: int) -> None:
        self.desk, self.number, self.version = desk, number, version
        self.got: deque[p.Packet] = deque()
        self.closed: str | None = None
        self.framing = Framing(desk.host.config.packet_bytes_max)
        self.said_version = 0
        self.is_read = True

    def send(self, *packets: p.Packet) -> None:
        self.raw(b"".join(encode(self.version, one) for one in packets))

    def raw(self, data: bytes) -> None:
        """As the door does it."""
        host = self.desk.host
        self.framing.feed(data)
        try:
            for first, body in self.framing.packets():
                if self.closed is not None:
                    return
                if not self.said_version:
                    version = version_of(first, body)
                    self.said_version = answered_in(version)
                    if version not in p.VERSIONS:
                        raise PacketError(f"MQTT version {version}", reasons.VERSION)
                host.received(self.number, decode_from_client(self.said_version, first, body))
                self.desk.carry_out()
        except PacketError as error:
            host.failed(self.number, error, self.said_version)
        self.desk.carry_out()

    def drop(self) -> None:
        """The connection breaks."""
        self.closed = "broken"
        self.desk.host.closed(self.number)
        self.desk.carry_out()

    def take(self, kind: Any = object) -> Any:
        """The next packet, which is of this kind."""
        assert self.got, f"nothing came, though a {kind.__name__} should have"
        packet = self.got.popleft()
        assert isinstance(packet, kind), packet
        return packet

    def payloads(self) -> list[bytes]:
        found = [one.payload for one in self.got if isinstance(one, p.Publish)]
        self.got.clear()
        return found

    def subscribe(self, *asked: str | p.Asked, number: int | None = None) -> tuple[int, ...]:
        each = tuple(one if isinstance(one, p.Asked) else p.Asked(one, 1) for one in asked)
        self.send(p.Subscribe(77, each, number))
        if not any(isinstance(one, p.SubAck) for one in self.got):  # a wildcard: it spreads first
            self.desk.pass_time(200)
        return next(one for one in self.got if isinstance(one, p.SubAck)).reasons

    def publish(self, topic: str, payload: bytes = b"x", **fields: Any) -> None:
        self.send(p.Publish(topic=topic, payload=payload, **fields))


class Desk:
    def __init__(self, *, users: dict[str, bytes] | None = None, **fields: Any) -> None:
        self.host = Host("n", 1, MqttConfig(**{"listen": "127.0.0.1:0", "spread_ms": 1, **fields}))
        self.users = users
        self.left_ms: int | None = None  # a client's proof is good for so long
        self.talkers: dict[int, Talker] = {}
        self.wanted: set[str] = set()
        self.emitted: list[Emit] = []
        self.acknowledges = self.confirms = True
        self.refuses: Callable[[str], bool] = lambda topic: False  # topics on which the mesh takes no publication
        self.unanswered: list[int] = []
        self.now_ms = 1_000
        self.host.at(self.now_ms, WALL_MS)
        self.host.start()
        self.carry_out()

    def open(self, version: int = p.V5) -> Talker:
        talker = self.talkers[len(self.talkers)] = Talker(self, len(self.talkers), version)
        self.host.opened(talker.number)
        return talker

    def connect(self, client: str = "c", version: int = p.V5, **fields: Any) -> Talker:
        talker = self.open(version)
        talker.send(p.Connect(version=version, client=client, **{"clean_start": True, **fields}))
        return talker

    def welcome(self, client: str = "c", version: int = p.V5, **fields: Any) -> Talker:
        talker = self.connect(client, version, **fields)
        assert talker.take(p.ConnAck).reason == 0
        return talker

    def pass_time(self, ms: int) -> None:
        while ms > 0:
            step = min(ms, 200)
            self.now_ms += step
            ms -= step
            self.host.at(self.now_ms, WALL_MS + self.now_ms - 1_000)
            self.host.tick()
            self.carry_out()

    def acknowledge(self) -> None:
        numbers, self.unanswered = self.unanswered, []
        for number in numbers:
            self.host.acknowledged(number, 0 if number in self.host._questions else None)
        self.carry_out()

    def carry_out(self) -> None:
        while effects := self.host.take():
            for effect in effects:
                self._carry_out(effect)
        self.host.check()

    def _carry_out(self, effect: Any) -> None:
        match effect:
            case ToClient(number, packet):
                talker = self.talkers[number]
                if talker.closed is None:
                    framing = Framing(1 << 20)
                    version = talker.said_version if talker.said_version in p.VERSIONS else 4
                    framing.feed(encode(version, packet))
                    talker.got += [decode(version, first, body) for first, body in framing.packets()]
            case Close(number, why):
                assert why in ("", *reasons.NAMES.values())
                self.talkers[number].closed = why
            case Check(number, user, password):
                is_right = self.users is None or self.users.get(user or "") == password
                self.host.checked(number, is_right, user if self.users is not None else None, self.left_ms)
            case Want(topic):
                self.wanted.add(topic)
                if self.confirms:
                    self.host.confirmed(topic)
            case Unwant(topic):
                self.wanted.discard(topic)
            case Emit(topic, payload, number):
                if self.host.holds_back(effect):
                    return
                self.emitted.append(effect)
                if self.refuses(topic):
                    self.host.not_acknowledged(number, "8 publications wait for their copies", is_taken=False)
                    return
                if topic in self.wanted:
                    self.host.delivered(topic, "n", payload)
                if self.acknowledges:
                    self.host.acknowledged(number, 0 if number in self.host._questions else None)
                else:
                    self.unanswered.append(number)
            case Pause(number, is_reading):
                self.talkers[number].is_read = is_reading
