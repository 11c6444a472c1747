"""Sidecars of real brokers: a triangle that loops with plain bridges, crashes, and brokers that speak no MQTT 5."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from live.lives import config, peer_address, run, until
from mqtt.attached import attach, client_of, sidecars
from mqtt.brokers import brokers, free_port, needs_mosquitto
from mqtt.sites import lone_door
from mqtt.talk import QUICK, Raw, connect, doors
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.framing import Framing


async def triangle(folder: Path, count: int) -> None:
    # Mosquitto drops what waits for a client beyond 1000 messages, unless it is told not to.
    lines = "max_queued_messages 0"
    async with brokers(folder, "x", "y", "z", lines=lines) as three, sidecars(*(one.url for one in three)) as nodes:
        readers = [await client_of(one, f"reader of {one.name}", "#") for one in three]
        publishers = [await client_of(one, f"publisher of {one.name}") for one in three]
        sent = [(f"t/{number % 40}/{number}", b"%d" % number) for number in range(count)]

        async def publish(index: int) -> None:
            raw, mine = publishers[index], sent[index::3]
            for start in range(0, len(mine), 20):
                part = mine[start : start + 20]
                for number, (topic, payload) in enumerate(part, 1):
                    raw.send(p.Publish(topic=topic, payload=payload, qos=1, id=number))
                for _ in part:
                    await raw.until(p.Ack)

        async def read(raw: Raw) -> list[bytes]:
            return await raw.messages(count)

        found = await asyncio.gather(*(read(one) for one in readers), *(publish(index) for index in range(3)))
        for got in found[:3]:
            assert Counter(got) == Counter(payload for _, payload in sent)
        await asyncio.sleep(1.0)  # a loop would bring more
        for raw in readers:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(raw.read(), 0.1)
        assert all(not one.mqtt.sidecar.bridge.counters["sent again"] for one in nodes)


@needs_mosquitto
def test_in_a_triangle_of_brokers_each_message_arrives_exactly_once_everywhere(tmp_path):
    run(triangle(tmp_path, 600))


@needs_mosquitto
@pytest.mark.slow
def test_in_a_triangle_of_brokers_ten_thousand_messages_arrive_exactly_once_everywhere(tmp_path):
    run(triangle(tmp_path, 10_000), 600)


def test_a_sidecar_beside_our_own_door_works_like_one_beside_mosquitto():
    """The door is a broker as well: what its clients publish reaches another mesh, once."""

    async def work() -> None:
        async with AsyncExitStack() as stack:
            (outer,) = await stack.enter_async_context(doors("outer"))
            url = f"mqtt://127.0.0.1:{outer.mqtt.port}"
            (inner,) = await stack.enter_async_context(sidecars(url, listen="127.0.0.1:0"))
            reader, publisher = await connect(outer, "r"), await connect(inner, "p")
            await reader.subscribe("a/b")
            await publisher.publish("a/b", b"out of the mesh")
            found = await reader.message()
            assert found.payload == b"out of the mesh"
            assert [name for name, _ in found.content.user] == ["trellis-id"]
            await reader.publish("a/b", b"into the mesh")
            assert (await reader.message()).payload == b"into the mesh"
            await until(lambda: inner.mqtt.sidecar.bridge.counters["taken"] == 1)
            assert await reader.publish("a/b", b"", content=p.Content(user=(("trellis-id", "x/1/1"),))) == 0
            await until(lambda: inner.mqtt.sidecar.bridge.counters["kept out"] == 1)

    run(work())


def test_a_sidecar_beside_our_own_door_in_a_process_of_its_own(tmp_path):
    """Two brokers that are doors of ours, each a process; a mesh of two sidecars makes one of them."""

    async def work() -> None:
        sites = [lone_door(name, tmp_path) for name in ("x", "y")]
        try:
            for one in sites:
                await one.start_node([])
            x, y = (one.port for one in sites)
            async with sidecars(f"mqtt://127.0.0.1:{x}", f"mqtt://127.0.0.1:{y}") as nodes:
                readers = [await client_of(port, f"reader at {port}", "t/#") for port in (x, y)]
                publishers = [await client_of(port, f"publisher at {port}") for port in (x, y)]
                for number in range(100):
                    assert await publishers[number % 2].publish(f"t/{number % 7}/z", b"%d" % number) == 0
                for reader in readers:
                    found = await reader.messages(100)
                    assert sorted(found, key=int) == [b"%d" % number for number in range(100)]
                await asyncio.sleep(0.5)  # a loop would bring more
                for reader in readers:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(reader.read(), 0.05)
                assert all(one.mqtt.sidecar.bridge.counters["taken"] == 50 for one in nodes)
                await sites[1].kill_node()  # a broker that loses everything
                await until(lambda: not nodes[1].mqtt.sidecar.bridge.is_up)
                await publishers[0].publish("t/1/z", b"while it is away")
                address = f"127.0.0.1:{y}"
                sites[1].mqtt["mqtt.listen"] = address
                await sites[1].start_node([])
                reader = await client_of(y, "new reader", "t/#")
                await until(lambda: nodes[1].mqtt.sidecar.bridge.is_up)
                await publishers[0].publish("t/1/z", b"it is back")
                while (await reader.message()).payload != b"it is back":
                    pass
        finally:
            for one in sites:
                await one.kill_node()

    run(work(), 120)


@needs_mosquitto
def test_a_broker_that_dies_and_comes_back_gets_what_it_missed(tmp_path):
    lines = f"persistence true\npersistence_location {tmp_path}/\nautosave_interval 1\n"

    async def work() -> None:
        async with brokers(tmp_path, "x", "y", lines=lines) as (x, y), sidecars(x.url, y.url) as nodes:
            publisher = await client_of(x, "p")
            for number in range(20):
                await publisher.publish("t/1", b"%d" % number)
            sidecar = nodes[1].mqtt.sidecar
            sidecar.port = free_port()  # it comes back when there is somebody to read
            await y.kill()
            await until(lambda: not sidecar.bridge.is_up)
            for number in range(20, 40):
                await publisher.publish("t/1", b"%d" % number)
            await y.start()
            reader = await client_of(y, "r", "t/#")
            sidecar.port = y.port
            await publisher.publish("t/1", b"40")
            found = [int((await reader.message()).payload)]
            while found[-1] != 40:
                found.append(int((await reader.message()).payload))
            assert found == list(range(found[0], 41))
            assert found[0] <= 20  # the broker may have died before it acknowledged those

    run(work())


@needs_mosquitto
def test_a_sidecar_that_dies_leaves_its_messages_at_the_broker(tmp_path):
    """kill -9 of the sidecar: what it had not acknowledged comes again, at most the receive maximum twice."""

    async def work() -> None:
        async with brokers(tmp_path, "x", "y") as (x, y), sidecars(x.url, y.url, inflight_max=10) as nodes:
            reader = await client_of(y, "r", "t/#")
            publisher = await client_of(x, "p")
            for number in range(30):
                await publisher.publish("t/1", b"%d" % number)
            await nodes[0].stop(in_order=False)
            for number in range(30, 60):
                await publisher.publish("t/1", b"%d" % number)
            life = nodes.pop(0).life
            given = MqttConfig(broker=x.url, **{**QUICK, "want": ("#",)})
            again = LiveNode(config("s0", (peer_address(nodes[0]),), mqtt=given), life=life + 1)
            await again.start()
            nodes.append(again)
            seen: Counter[bytes] = Counter()
            while len(seen) < 60:
                seen[(await reader.message()).payload] += 1
            twice = sum(count - 1 for count in seen.values())
            assert twice <= 10
            assert twice <= again.mqtt.sidecar.bridge.counters["sent again"]

    run(work())


@needs_mosquitto
def test_a_sidecar_learns_from_mosquitto_s_log_what_its_clients_want(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    lines = "log_dest topic\nlog_type subscribe\nlog_type unsubscribe\nlog_type notice\n"

    async def work() -> None:
        async with (
            brokers(tmp_path, "x", "y", lines=lines) as (x, y),
            sidecars(x.url, y.url, want=(), learn=True) as nodes,
        ):
            reader = await client_of(y, "r", "home/+/temp")
            host = nodes[1].mqtt.host
            await until(lambda: host.directory.is_ready("home/+"))
            publisher = await client_of(x, "p")
            await publisher.publish("home/hall/temp", b"21")
            await publisher.publish("away/hall/temp", b"no")
            await publisher.publish("home/hall/temp", b"22")
            assert await reader.messages(2) == [b"21", b"22"]
            assert not nodes[0].mqtt.host.interests.patterns
            reader.send(p.Unsubscribe(9, ("home/+/temp",)))
            await until(lambda: not host.interests.patterns)

    run(work())


@needs_mosquitto
def test_brokers_of_3_1_1_that_honour_the_bridge_bit_can_be_joined(tmp_path):
    async def work() -> None:
        async with (
            brokers(tmp_path, "x", "y") as (x, y),
            sidecars(x.url, y.url, broker_version="3.1.1"),
        ):
            readers = [await client_of(one, f"reader of {one.name}", "#") for one in (x, y)]
            publishers = [await client_of(one, f"publisher of {one.name}") for one in (x, y)]
            for number in range(20):
                await publishers[number % 2].publish(f"t/{number}", b"%d" % number)
            for reader in readers:
                found = await reader.messages(20)
                assert sorted(found, key=int) == [b"%d" % number for number in range(20)]
                with pytest.raises(TimeoutError):  # a loop would bring more
                    await asyncio.wait_for(reader.read(), 0.5)

    run(work())


def test_a_broker_of_3_1_1_that_echoes_is_refused_with_a_clear_message(caplog):
    """Whatever it makes of the bridge bit, here it sends a bridge its own messages."""

    async def echoing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing = Framing(1 << 16)
        writer.write(b"\x20\x02\x00\x00")
        while data := await reader.read(1_000):
            framing.feed(data)
            for first, body in framing.packets():
                if first >> 4 == p.PUBLISH:
                    writer.write(bytes((first, len(body))) + body)
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(echoing, "127.0.0.1", 0)
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        nodes: list[LiveNode] = []
        try:
            node = await attach("s", url, nodes, broker_version="3.1.1")
            await until(lambda: "does not honour the bridge bit" in caplog.text)
            assert 'broker_echo = "match"' in caplog.text
            assert not node.mqtt.sidecar.bridge.is_up
        finally:
            for node in nodes:
                await node.stop(in_order=False)
            server.close()

    run(work())


def test_a_broker_that_closes_the_connection_at_connect_is_refused_with_a_clear_message(caplog):
    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(closing, "127.0.0.1", 0)
        nodes: list[LiveNode] = []
        try:
            await attach("s", f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}", nodes)
            await until(lambda: "perhaps it does not speak our version of MQTT" in caplog.text)
        finally:
            for node in nodes:
                await node.stop(in_order=False)
            server.close()

    run(work())


def test_a_broker_that_speaks_no_mqtt_5_is_refused_with_a_clear_message(caplog):
    async def old_broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x20\x02\x00\x01")
        await writer.drain()
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(old_broker, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        nodes: list[LiveNode] = []
        try:
            node = await attach("s", f"mqtt://127.0.0.1:{port}", nodes)
            await until(lambda: "does not speak our version of MQTT" in caplog.text)
            assert not node.mqtt.sidecar.bridge.is_up
        finally:
            for node in nodes:
                await node.stop(in_order=False)
            server.close()

    run(work())
