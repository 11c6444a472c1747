"""Stock clients against the embedded door, across three nodes. Those that are not installed are skipped."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from typing import Any

import pytest

from live.lives import run, until
from mqtt.talk import doors
from trellis.live.shell import LiveNode

paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
needs_mosquitto = pytest.mark.skipif(
    not (shutil.which("mosquitto_pub") and shutil.which("mosquitto_sub")),
    reason="mosquitto_pub and mosquitto_sub are not installed (Debian: apt install mosquitto-clients)",
)


class Paho:
    """paho-mqtt with its own thread, as its users run it."""

    def __init__(self, node: LiveNode, name: str, version: int) -> None:
        from paho.mqtt.enums import CallbackAPIVersion

        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=version)
        self.messages: list[Any] = []
        self.granted: list[int] = []
        self.acknowledged: list[int] = []
        self.client.on_message = lambda client, data, message: self.messages.append(message)
        self.client.on_subscribe = lambda client, data, mid, codes, properties: self.granted.extend(
            code.value for code in codes
        )
        self.client.on_publish = lambda client, data, mid, code, properties: self.acknowledged.append(mid)
        assert node.mqtt is not None
        self.client.connect_async("127.0.0.1", node.mqtt.port, keepalive=30)
        self.client.loop_start()

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
def test_paho_across_three_nodes(version):
    async def work() -> None:
        async with doors("a", "b", "c") as nodes:
            clients = [Paho(node, f"c{index}", version) for index, node in enumerate(nodes)]
            try:
                await until(lambda: all(one.client.is_connected() for one in clients))
                for one, filter_ in zip(clients, ("#", "s/+/t", "s/ü/t"), strict=True):
                    one.client.subscribe(filter_, qos=1)
                await until(lambda: all(one.granted == [1] for one in clients))
                sent = [("s/ü/t", b""), ("s/x/t", bytes(256 << 10)), ("s/ü/t", b"second"), ("other", b"o")]
                sent += [(f"s/{number}/t", b"%d" % number) for number in range(30)]
                for topic, payload in sent:
                    clients[1].client.publish(topic, payload, qos=1)
                await until(lambda: len(clients[1].acknowledged) == len(sent))
                wanted = [sent, [one for one in sent if one[0] != "other"], [one for one in sent if "ü" in one[0]]]
                await until(
                    lambda: all(len(one.messages) >= len(each) for one, each in zip(clients, wanted, strict=True))
                )
                for one, each in zip(clients, wanted, strict=True):
                    assert sorted((found.topic, found.payload) for found in one.messages) == sorted(each)
                    of_one_topic = [found.payload for found in one.messages if found.topic == "s/ü/t"]
                    assert of_one_topic == [b"", b"second"]
            finally:
                for one in clients:
                    one.close()

    run(work())


@needs_mosquitto
@pytest.mark.parametrize("version", ["311", "5"])
def test_mosquitto_clients_across_three_nodes(version):
    async def work() -> None:
        async with doors("a", "b", "c") as nodes:
            ports = [str(node.mqtt.port) for node in nodes]
            options = ("-h", "127.0.0.1", "-V", version, "-q", "1")
            reader = await asyncio.create_subprocess_exec(
                "mosquitto_sub", *options, "-p", ports[0], "-t", "home/+/temp", "-C", "3", "-F", "%t %p %r",
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            try:
                host = nodes[0].mqtt.host
                await until(lambda: host.directory.is_ready("home/+"))
                for topic, text in (("home/hall/temp", "20"), ("home/hall", "no"), ("home/küche/temp", "21"),
                                    ("home/hall/temp", "22")):  # fmt: skip
                    publisher = await asyncio.create_subprocess_exec(
                        "mosquitto_pub", *options, "-p", ports[1], "-t", topic, "-m", text
                    )
                    assert await publisher.wait() == 0
                out, _ = await reader.communicate()
                assert sorted(out.decode().splitlines()) == [
                    "home/hall/temp 20 0",
                    "home/hall/temp 22 0",
                    "home/küche/temp 21 0",
                ]
            finally:
                with suppress(ProcessLookupError):
                    reader.kill()
                await reader.wait()

    run(work())
