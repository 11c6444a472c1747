"""Stock clients across three nodes: embedded doors, and sidecars. Those that are not installed are skipped.

Wildcards, QoS 1, payloads of 256 KiB and of nothing, topics in UTF-8, clients that vanish.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from live.lives import run, until
from mqtt.brokers import needs_mosquitto
from mqtt.talk import doors
from mqtt.three import AMQTT, KINDS, three_places
from trellis.protocols.mqtt.echoes import PROBES

paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
needs_clients = pytest.mark.skipif(
    not (shutil.which("mosquitto_pub") and shutil.which("mosquitto_sub")),
    reason="mosquitto_pub and mosquitto_sub are not installed (Debian: apt install mosquitto-clients)",
)
LARGE = bytes(256 << 10)
LIMIT_S = 120.0


class Paho:
    """paho-mqtt with its own thread, as its users run it."""

    def __init__(self, port: int, name: str, version: int, *, stays: bool = False, will: str = "") -> None:
        from paho.mqtt.enums import CallbackAPIVersion
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        clean = {} if version == paho.MQTTv5 else {"clean_session": not stays}
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=version, **clean)
        self.client.username_pw_set("somebody", "secret")  # amqtt wants a name; the others let everybody in
        self.messages: list[Any] = []
        self.granted: list[int] = []
        self.acknowledged: list[int] = []
        self.client.on_message = lambda client, data, message: self._heard(message)
        self.client.on_subscribe = lambda client, data, mid, codes, properties: self.granted.extend(
            code.value for code in codes
        )
        self.client.on_publish = lambda client, data, mid, code, properties: self.acknowledged.append(mid)
        if will:
            self.client.will_set(will, b"gone", qos=1)
        lasting: dict[str, Any] = {}
        if version == paho.MQTTv5 and stays:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 600
            lasting = {"clean_start": False, "properties": properties}
        self.client.connect_async("127.0.0.1", port, keepalive=30, **lasting)
        self.client.loop_start()

    def _heard(self, message: Any) -> None:
        if not message.topic.startswith(PROBES):
            self.messages.append(message)

    @property
    def found(self) -> list[tuple[str, bytes]]:
        return [(one.topic, one.payload) for one in self.messages]

    async def publish(self, *sent: tuple[str, bytes]) -> None:
        """Each acknowledged."""
        before = len(self.acknowledged)
        for topic, payload in sent:
            self.client.publish(topic, payload, qos=1)
        await until(lambda: len(self.acknowledged) == before + len(sent))

    async def subscribe(self, filter_: str) -> None:
        before = len(self.granted)
        self.client.subscribe(filter_, qos=1)
        await until(lambda: len(self.granted) > before)
        assert self.granted[-1] == 1

    async def vanish(self) -> None:
        """No DISCONNECT: the socket is gone, and so is the thread."""
        self.client._thread_terminate = True  # paho would dial again
        sock = self.client.socket()
        assert sock is not None
        with suppress(OSError):
            sock.shutdown(2)
        await asyncio.to_thread(self.client.loop_stop)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        *((kind, version) for kind in ("embedded", "sidecars of doors") for version in (paho.MQTTv311, paho.MQTTv5)),
        (AMQTT, paho.MQTTv311),
        pytest.param("sidecars of mosquitto", paho.MQTTv311, marks=needs_mosquitto),
        pytest.param("sidecars of mosquitto", paho.MQTTv5, marks=needs_mosquitto),
    ],
)
def test_paho_across_three_nodes(version, kind, tmp_path):
    async def work() -> None:
        async with three_places(kind, tmp_path) as ports:
            clients = [Paho(port, f"c{index}", version) for index, port in enumerate(ports)]
            try:
                await until(lambda: all(one.client.is_connected() for one in clients))
                for one, filter_ in zip(clients, ("#", "s/+/t", "s/ü/t"), strict=True):
                    await one.subscribe(filter_)
                sent = [("s/ü/t", b""), ("s/x/t", LARGE), ("s/ü/t", b"second"), ("other", b"o"), ("s/日本/t", b"\xff")]
                sent += [(f"s/{number}/t", b"%d" % number) for number in range(30)]
                await clients[1].publish(*sent)
                wanted = [sent, [one for one in sent if one[0] != "other"], [one for one in sent if "ü" in one[0]]]
                await until(
                    lambda: all(len(one.messages) >= len(each) for one, each in zip(clients, wanted, strict=True))
                )
                for one, each in zip(clients, wanted, strict=True):
                    assert sorted(one.found) == sorted(each)
                    assert [payload for topic, payload in one.found if topic == "s/ü/t"] == [b"", b"second"]
            finally:
                for one in clients:
                    one.close()

    run(work(), LIMIT_S)


def test_a_paho_client_of_3_1_talks_to_one_of_5():
    async def work() -> None:
        async with doors("a") as (node,):
            old, new = Paho(node.mqtt.port, "old", paho.MQTTv31), Paho(node.mqtt.port, "new", paho.MQTTv5)
            try:
                await until(lambda: old.client.is_connected() and new.client.is_connected())
                await old.subscribe("from/+")
                await new.subscribe("to/+")
                await old.publish(("to/new", b"one"), ("from/old", b"mine"))
                await new.publish(("from/new", b"two"))
                await until(lambda: len(old.messages) >= 2 and new.messages)
                assert sorted(old.found) == [("from/new", b"two"), ("from/old", b"mine")]
                assert new.found == [("to/new", b"one")]
            finally:
                old.close()
                new.close()

    run(work(), LIMIT_S)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5], ids=["3.1.1", "5"])
def test_a_paho_client_that_vanishes_leaves_its_will_and_finds_what_it_missed(version, kind, tmp_path):
    async def work() -> None:
        async with three_places(kind, tmp_path) as ports:
            publisher, watcher = Paho(ports[0], "p", version), Paho(ports[1], "w", version)
            reader = Paho(ports[2], "r", version, stays=True, will="wills/r")
            again: Paho | None = None
            try:
                await until(lambda: all(one.client.is_connected() for one in (publisher, watcher, reader)))
                await reader.subscribe("s/+/t")
                await watcher.subscribe("wills/#")
                await publisher.publish(("s/1/t", b"before"))
                await until(lambda: reader.found == [("s/1/t", b"before")])
                await reader.vanish()
                await until(lambda: watcher.found == [("wills/r", b"gone")])
                missed = [(f"s/{number}/t", b"%d" % number) for number in range(20)]
                await publisher.publish(*missed)
                again = Paho(ports[2], "r", version, stays=True)
                await until(lambda: again is not None and len(again.found) >= 20)
                found = (
                    again.found if ("s/1/t", b"before") not in again.found else again.found[1:]
                )  # its PUBACK was lost
                assert sorted(found) == sorted(missed)
            finally:
                for one in (publisher, watcher, again):
                    if one is not None:
                        one.close()

    run(work(), LIMIT_S)


async def mosquitto_sub(port: int, version: str, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "mosquitto_sub", "-h", "127.0.0.1", "-V", version, "-q", "1", "-p", str(port), "-F", "%t %l %r", *options,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def mosquitto_pub(port: int, version: str, topic: str, *options: str) -> None:
    publisher = await asyncio.create_subprocess_exec(
        "mosquitto_pub", "-h", "127.0.0.1", "-V", version, "-q", "1", "-p", str(port), "-t", topic, *options
    )
    assert await publisher.wait() == 0


async def next_line(reader: asyncio.subprocess.Process) -> str:
    assert reader.stdout is not None
    return (await reader.stdout.readline()).decode().strip()


async def end(reader: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        reader.send_signal(signal.SIGKILL)
    await reader.wait()


@needs_clients
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", ["311", "5"])
def test_mosquitto_clients_across_three_nodes(version, kind, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(LARGE)

    async def work() -> None:
        async with three_places(kind, tmp_path) as ports:
            reader = await mosquitto_sub(ports[0], version, "-t", "home/+/temp", "-t", "ready")
            try:
                while True:  # mosquitto_sub does not say when it is subscribed
                    await mosquitto_pub(ports[1], version, "ready", "-m", "?")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(1.0):
                            assert await next_line(reader) == "ready 1 0"
                            break
                await published(ports, version, large)
                found: list[str] = []
                while len(found) < 4:
                    line = await next_line(reader)
                    found += [line] if not line.startswith("ready") else []
                wanted = [*(f"home/hall/temp {size} 0" for size in (0, 2, len(LARGE))), "home/küche/temp 2 0"]
                assert sorted(found) == sorted(wanted)
            finally:
                await end(reader)

    async def published(ports: list[int], version: str, large: Path) -> None:
        await mosquitto_pub(ports[1], version, "home/hall/temp", "-m", "20")
        await mosquitto_pub(ports[2], version, "home/hall", "-m", "no")
        await mosquitto_pub(ports[2], version, "home/küche/temp", "-m", "21")
        await mosquitto_pub(ports[1], version, "home/hall/temp", "-n")
        await mosquitto_pub(ports[2], version, "home/hall/temp", "-f", str(large))

    run(work(), LIMIT_S)


@pytest.mark.parametrize("kind", [*KINDS, AMQTT])
def test_aiomqtt_across_three_nodes(kind, tmp_path):
    aiomqtt = pytest.importorskip("aiomqtt", reason="aiomqtt is not installed (pip install aiomqtt)")

    async def work() -> None:
        async with three_places(kind, tmp_path) as ports:
            named = {"username": "somebody", "password": "secret"}
            clients = [aiomqtt.Client("127.0.0.1", port, identifier=f"c{port}", **named) for port in ports]
            async with clients[0] as publisher, clients[1] as first, clients[2] as second:
                await first.subscribe("s/+/t", qos=1)
                await second.subscribe("s/ü/#", qos=1)
                for payload in (b"", LARGE, b"last"):
                    await publisher.publish("s/ü/t", payload, qos=1)
                for reader in (first, second):
                    found = []
                    async for message in reader.messages:
                        found.append(bytes(message.payload))
                        if len(found) == 3:
                            break
                    assert found == [b"", LARGE, b"last"]

    run(work(), LIMIT_S)
