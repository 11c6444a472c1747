"""The MQTT client that every system gets: 3.1.1, persistent sessions, QoS 1, and reconnections as the standard says.

It is the version that all systems speak. A client keeps its name, asks for its old session (`clean session` is 0), and
dials again after a lost connection. It then repeats, in order and marked DUP, each publication that was not
acknowledged (MQTT-4.4.0-1). It subscribes again if the broker has forgotten its session. It does not look for another
broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Ended,
    Event,
    Publishing,
    Received,
    Subscribing,
)
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing

KEEP_ALIVE_S = 10
_PING_S = 3.0
_WAIT_S = 5.0  # for a connection, and for its CONNACK
_PAUSE_S = 0.1  # before a connection is tried again
_UNDER_WAY_MAX = 20  # publications without an acknowledgement: as many as Mosquitto takes by default
_PACKET_BYTES_MAX = 1 << 22


class Client:
    """One client of one broker, over all its connections. `note` takes down what it sees."""

    def __init__(
        self, name: str, node: str, address: tuple[str, int], note: Callable[[Event], None],
        filters: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.name, self.node, self.address, self.note, self.filters = name, node, address, note, filters
        self.waiting: deque[tuple[str, str, bytes]] = deque()  # message, topic, payload: not sent yet
        self.under_way: dict[int, tuple[str, str, bytes]] = {}  # by packet identifier, in the order of publication
        self.is_subscribed = not filters
        self._identifier = 0
        self._sessions = 0
        self._wire: _Wire | None = None  # while connected
        self._task: asyncio.Task[None] | None = None

    @property
    def session(self) -> str:
        return self.name if self._sessions <= 1 else f"{self.name}#{self._sessions}"

    @property
    def is_idle(self) -> bool:
        """Whether every publication was acknowledged."""
        return not self.waiting and not self.under_way

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End for good, without a word to the broker."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._wire is not None:
            self._wire.abort()

    def publish(self, message: str, topic: str, payload: bytes) -> None:
        self.note(Publishing(_now(), self.session, message, topic, 1))
        self.waiting.append((message, topic, payload))
        self._pump()

    async def _run(self) -> None:
        while True:
            wire = _Wire(self._take)
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_WAIT_S):
                    await asyncio.get_running_loop().create_connection(lambda: wire, *self.address)  # noqa: B023
                    wire.send(p.Connect(version=p.V311, client=self.name, clean_start=False, keep_alive_s=KEEP_ALIVE_S))
                    await wire.is_answered.wait()
                if self._wire is wire:
                    await wire.watch()
            wire.abort()
            if self._wire is wire:
                self._wire = None
                self.note(Away(_now(), self.session, True))
            await asyncio.sleep(_PAUSE_S)

    def _connected(self, wire: _Wire, is_present: bool) -> None:
        """Go on with the old session, or begin a new one. A publisher goes on either way: it has all that it needs."""
        self._wire = wire
        now = _now()
        is_new = not self._sessions or (not is_present and bool(self.filters))
        if is_new:
            if self._sessions:
                self.note(Ended(now, self.session))
            self._sessions += 1
            self.note(Connected(now, self.session, self.name, self.node, speaks="mqtt"))
        else:
            self.note(Back(now, self.session, self.node))
        if self.filters and (is_new or not self.is_subscribed):
            self._identifier = self._identifier % 65_535 + 1
            for one in self.filters:
                self.note(Subscribing(now, self.session, one))
            wire.send(p.Subscribe(self._identifier, tuple(p.Asked(one, 1) for one in self.filters)))
        for identifier, (_, topic, payload) in self.under_way.items():
            wire.send(p.Publish(topic=topic, payload=payload, qos=1, id=identifier, dup=True))
        self._pump()

    def _pump(self) -> None:
        if self._wire is None:
            return
        while self.waiting and len(self.under_way) < _UNDER_WAY_MAX:
            self._identifier = self._identifier % 65_535 + 1
            while self._identifier in self.under_way:
                self._identifier = self._identifier % 65_535 + 1
            one = self.waiting.popleft()
            self.under_way[self._identifier] = one
            self._wire.send(p.Publish(topic=one[1], payload=one[2], qos=1, id=self._identifier))

    def _take(self, wire: _Wire, packet: p.Packet) -> None:
        """Take a packet at once: a broker may send what waits in the session right behind its CONNACK."""
        now = _now()
        match packet:
            case p.ConnAck():
                if not packet.reason:
                    self._connected(wire, packet.session_present)
                wire.is_answered.set()
            case p.Publish():
                message = packet.payload.partition(b" ")[0].decode("ascii", "replace")
                self.note(Received(now, self.session, message, packet.topic))
                if packet.id is not None:
                    wire.send(p.Ack(p.PUBACK, packet.id))
            case p.Ack():
                done = self.under_way.pop(packet.id, None)
                if done is not None:
                    self.note(Acknowledged(now, self.session, done[0]))
                self._pump()
            case p.SubAck():
                for filter_, reason in zip(self.filters, packet.reasons, strict=False):
                    self.note(Confirmed(now, self.session, filter_, reason < 0x80))
                self.is_subscribed = all(reason < 0x80 for reason in packet.reasons)
            case _:
                pass


class _Wire(asyncio.Protocol):
    """One connection: bytes to packets and back."""

    def __init__(self, take: Callable[[_Wire, p.Packet], None]) -> None:
        loop = asyncio.get_running_loop()
        self.is_answered, self.is_lost = asyncio.Event(), asyncio.Event()
        self.heard = loop.time()
        self._take, self._framing = take, Framing(_PACKET_BYTES_MAX)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost.set()
        self.is_answered.set()

    def data_received(self, data: bytes) -> None:
        self.heard = asyncio.get_running_loop().time()
        self._framing.feed(data)
        for first, body in self._framing.packets():
            self._take(self, decode(p.V311, first, body))

    def send(self, packet: p.Packet) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(p.V311, packet))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def watch(self) -> None:
        """Return when the connection is lost, or when the broker has said nothing for the keep-alive time."""
        loop = asyncio.get_running_loop()
        while not self.is_lost.is_set() and loop.time() - self.heard < KEEP_ALIVE_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PING_S):
                    await self.is_lost.wait()
            self.send(p.PingReq())


def _now() -> float:
    return asyncio.get_running_loop().time()
