"""An MQTT client in a few lines, for tests: raw packets over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from live.lives import config, peer_address
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing

QUICK = {"suback_s": 30.0, "spread_ms": 300, "ask_s": 2.0, "introduce_s": 6.0}


_OPEN: list[Raw] = []  # closed with the mesh


class Raw:
    """Packets out, packets in. Acknowledges nothing by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader, self.writer, self.version = reader, writer, version
        self.framing, self.found = Framing(1 << 20), []  # type: ignore[var-annotated]
        self.id = 0
        _OPEN.append(self)

    def send(self, *packets: p.Packet) -> None:
        self.writer.write(b"".join(encode(self.version, one) for one in packets))

    async def read(self) -> p.Packet | None:
        """The next packet; None at the end."""
        while not self.found:
            try:
                data = await self.reader.read(65_536)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self.framing.feed(data)
            self.found += [decode(self.version, first, body) for first, body in self.framing.packets()]
        return self.found.pop(0)

    async def publish(self, topic: str, payload: bytes, qos: int = 1, **fields: Any) -> int:
        """Returns the reason of its acknowledgement."""
        if not qos:
            self.send(p.Publish(topic=topic, payload=payload, **fields))
            return 0
        self.id += 1
        self.send(p.Publish(topic=topic, payload=payload, qos=qos, id=self.id, **fields))
        packet = await self.until(p.Ack)
        assert packet.id == self.id
        return packet.reason

    async def subscribe(self, *asked: str | p.Asked, number: int | None = None) -> tuple[int, ...]:
        self.id += 1
        each = tuple(one if isinstance(one, p.Asked) else p.Asked(one, 1) for one in asked)
        self.send(p.Subscribe(self.id, each, number))
        packet = await self.until(p.SubAck)
        assert packet.id == self.id
        return packet.reasons

    async def until(self, kind: type) -> Any:
        """The next packet of a kind; messages that come before it stay to be read."""
        kept = []
        while True:
            packet = await self.read()
            assert packet is not None, f"the stream ended before a {kind.__name__}"
            if isinstance(packet, kind):
                self.found[:0] = kept
                return packet
            kept.append(packet)

    async def message(self) -> p.Publish:
        """The next one, acknowledged."""
        packet = await self.read()
        assert isinstance(packet, p.Publish), packet
        if packet.qos:
            self.send(p.Ack(p.PUBACK, packet.id))
        return packet

    async def messages(self, count: int) -> list[bytes]:
        return [(await self.message()).payload for _ in range(count)]

    def vanish(self) -> None:
        self.writer.transport.abort()

    async def close(self) -> None:
        self.send(p.Disconnect())
        self.writer.close()


async def vanish_all() -> None:
    while _OPEN:
        _OPEN.pop().vanish()
    await asyncio.sleep(0)  # transports say that they are closed


async def dial(node: LiveNode, version: int = p.V5) -> Raw:
    assert node.mqtt is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", node.mqtt.port)
    return Raw(reader, writer, version)


async def connect(node: LiveNode, client: str = "", version: int = p.V5, **fields: Any) -> Raw:
    raw = await dial(node, version)
    given = {"clean_start": True, **fields}
    raw.send(p.Connect(version=version, client=client, **given))
    answer = await raw.read()
    assert isinstance(answer, p.ConnAck), answer
    assert answer.reason == 0, answer
    raw.answer = answer  # type: ignore[attr-defined]
    return raw


@asynccontextmanager
async def doors(*names: str, mqtt: dict[str, Any] | None = None, **fields: Any) -> AsyncIterator[list[LiveNode]]:
    """A mesh in this process in which every node has an MQTT door."""
    nodes: list[LiveNode] = []
    given = MqttConfig(listen="127.0.0.1:0", **{**QUICK, **(mqtt or {})})
    try:
        for name in names:
            node = LiveNode(config(name, tuple(peer_address(one) for one in nodes[:1]), mqtt=given, **fields))
            await node.start()
            nodes.append(node)
        yield nodes
        for node in nodes:
            assert not node.counters["bugs"]
            node.mesh.check()
            assert node.mqtt is not None
            node.mqtt.host.check()
    finally:
        await vanish_all()
        for node in nodes:
            await node.stop(in_order=False)
