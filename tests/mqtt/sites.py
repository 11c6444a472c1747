"""Sites for tests: a Mosquitto and a node beside it, each a process of its own, that can be killed and come back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from mqtt.brokers import Mosquitto
from trellis.fleet.processes import ANY, NodeProcess
from trellis.live.http_client import HttpClient
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing

QUICK = {"omen.period_ms": 200, "delivery.tick_ms": 200, "delivery.register_ms": 1_000, "delivery.registered_ms": 3_000}
QUICK |= {"delivery.confirm_ms": 500, "delivery.ask_ms": 300, "delivery.alone_ms": 3_000}
QUICK_DOOR = {"mqtt.suback_s": 60.0, "mqtt.spread_ms": 500, "mqtt.ask_s": 3.0, "mqtt.introduce_s": 6.0}


class Site:
    def __init__(self, name: str, folder: Path, broker: Mosquitto | None, mqtt: dict[str, object]) -> None:
        self.name, self.folder, self.broker, self.mqtt = name, folder, broker, mqtt
        self.node = NodeProcess(name, folder, name)

    async def start_node(self, seeds: list[str]) -> None:
        await self.node.start(
            {
                "cluster": "test",
                "listen": ANY,
                "client_listen": ANY,
                "admin_listen": ANY,
                "seeds": seeds,
                **QUICK,
                **QUICK_DOOR,
                **({"mqtt.broker": self.broker.url} if self.broker is not None else {}),
                **self.mqtt,
            }
        )

    @property
    def port(self) -> int:
        """Where clients of MQTT connect."""
        return self.broker.port if self.broker is not None else int(self.node.about["mqtt_listen"].rpartition(":")[2])

    async def kill_node(self) -> None:
        self.node.signal(signal.SIGKILL)
        if self.node.is_running:
            await self.node.ended()

    async def count(self, what: str) -> int:
        """One of the counters of `trellis_mqtt_total`."""
        client = HttpClient(self.node.about["admin_listen"])
        try:
            _, body = await client.get("/metrics", timeout_s=10.0)
        finally:
            client.close()
        for line in body.decode().splitlines():
            if f'{{what="{what.replace(" ", "_")}"}}' in line:
                return int(line.rpartition(" ")[2])
        return 0


def lone_door(name: str, folder: Path) -> Site:
    """A broker that is a node of ours, alone in its mesh."""
    return Site(name, folder, None, {"mqtt.listen": "127.0.0.1:0", "delivery.copies": 1})


@asynccontextmanager
async def sites(folder: Path, several: list[Mosquitto | None], **mqtt: object) -> AsyncIterator[list[Site]]:
    """Their brokers run already."""
    told = {f"mqtt.{key}": value for key, value in mqtt.items()}
    found = [Site(f"s{index}", folder, broker, told) for index, broker in enumerate(several)]
    try:
        for one in found:
            await one.start_node([found[0].node.about["listen"]] if one is not found[0] else [])
        yield found
    finally:
        for one in found:
            await one.kill_node()


class Publisher:
    """One message after the other, each acknowledged before the next. Never again what was not acknowledged: its fate
    is unknown."""

    def __init__(self, port: Callable[[], int], topic: str) -> None:
        self.port, self.topic = port, topic
        self.acknowledged: dict[int, float] = {}  # when
        self.number = 0
        self.is_over = False

    async def run(self, pause_s: float = 0.005) -> None:
        loop = asyncio.get_running_loop()
        while not self.is_over:
            with suppress(OSError, EOFError):
                async with talking(self.port(), "publisher") as talk:
                    while not self.is_over:
                        self.number += 1
                        number = self.number  # what is lost with the connection keeps its number
                        await talk.publish(self.topic, b"%d" % number)
                        self.acknowledged[number] = loop.time()
                        await asyncio.sleep(pause_s)
            await asyncio.sleep(0.05)


class Reader:
    """Notes every message, and comes back to its session."""

    def __init__(self, port: Callable[[], int], filter_: str, name: str) -> None:
        self.port, self.filter, self.name = port, filter_, name
        self.found: list[int] = []
        self.is_subscribed = False

    async def run(self) -> None:
        while True:
            with suppress(OSError, EOFError):
                async with talking(self.port(), self.name, expiry_s=600) as talk:
                    await talk.subscribe(self.filter)
                    self.is_subscribed = True
                    while True:
                        self.found.append(int(await talk.message()))
            await asyncio.sleep(0.05)


class Talk:
    """Raises EOFError where the connection ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.framing = reader, writer, Framing(1 << 20)
        self.packets: list[p.Packet] = []

    def send(self, packet: p.Packet) -> None:
        self.writer.write(encode(p.V5, packet))

    async def read(self) -> p.Packet:
        while not self.packets:
            data = await self.reader.read(65_536)
            if not data:
                raise EOFError
            self.framing.feed(data)
            self.packets += [decode(p.V5, first, body) for first, body in self.framing.packets()]
        return self.packets.pop(0)

    async def publish(self, topic: str, payload: bytes) -> None:
        self.send(p.Publish(topic=topic, payload=payload, qos=1, id=1))
        answer = await self.read()
        assert isinstance(answer, p.Ack), answer
        assert answer.reason in (0, 0x10), answer  # 0x10: nobody subscribes there yet

    async def subscribe(self, filter_: str) -> None:
        self.send(p.Subscribe(1, (p.Asked(filter_, 1),)))
        kept = []
        while not isinstance(found := await self.read(), p.SubAck):
            kept.append(found)
        self.packets[:0] = kept

    async def message(self) -> bytes:
        found = await self.read()
        assert isinstance(found, p.Publish), found
        if found.id is not None:
            self.send(p.Ack(p.PUBACK, found.id))
        return found.payload


@asynccontextmanager
async def talking(port: int, name: str, expiry_s: int = 0) -> AsyncIterator[Talk]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        talk = Talk(reader, writer)
        talk.send(p.Connect(version=p.V5, client=name, clean_start=not expiry_s, expiry_s=expiry_s))
        answer = await talk.read()
        assert isinstance(answer, p.ConnAck), answer
        if answer.reason:
            raise OSError(f"refused: {answer.reason}")
        yield talk
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
