"""Sidecars of real brokers as plain clients of 3.1.1; each broker is a process: amqtt, our own door, Mosquitto."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from live.lives import config, peer_address, run, until
from mqtt.attached import attach, client_of, is_ready, sidecars
from mqtt.brokers import Amqtt, Broker, Mosquitto, needs_mosquitto, running
from mqtt.sites import lone_door
from mqtt.talk import QUICK, Raw, vanish_all
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.echoes import PROBES

PLAIN: dict[str, Any] = {"broker_version": "3.1.1", "broker_echo": "match"}
LIMIT_S = 150.0  # brokers start, and machines are busy


@asynccontextmanager
async def places(kinds: str, folder: Path) -> AsyncIterator[list[int]]:
    """Ports of brokers, by kind: `a` an amqtt, `m` a Mosquitto, `d` a door of ours that is alone in its mesh."""
    make = {"a": Amqtt, "m": partial(Mosquitto, lines="max_queued_messages 0")}
    brokers: list[Broker] = [make[kind](folder, f"{kind}{index}") for index, kind in enumerate(kinds) if kind != "d"]
    ports = iter(one.port for one in brokers)
    several = [lone_door(f"door-{index}", folder) for index, kind in enumerate(kinds) if kind == "d"]
    async with running(brokers):
        try:
            for one in several:
                await one.start_node([])
            doors = iter(one.port for one in several)
            yield [next(doors if kind == "d" else ports) for kind in kinds]
        finally:
            for one in several:
                await one.kill_node()


def url(port: int) -> str:
    return f"mqtt://sidecar:secret@127.0.0.1:{port}"


async def client(port: int, name: str, *filters: str) -> Raw:
    return await client_of(port, name, *filters, version=p.V311, user="somebody")


class Reader:
    """Of everything at one broker, but for probes."""

    def __init__(self, raw: Raw) -> None:
        self.found: list[bytes] = []
        self.task = asyncio.create_task(self._read(raw))

    async def _read(self, raw: Raw) -> None:
        while True:
            one = await raw.message()
            if not one.topic.startswith(PROBES):
                self.found.append(one.payload)


@asynccontextmanager
async def readers(*ports: int) -> AsyncIterator[list[Reader]]:
    found = [Reader(await client(port, f"reader {port}", "#")) for port in ports]
    try:
        yield found
    finally:
        for one in found:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in found), return_exceptions=True)


@pytest.mark.parametrize("kinds", ["aad", pytest.param("mma", marks=needs_mosquitto)])
def test_in_a_triangle_of_plain_brokers_each_message_arrives_exactly_once_everywhere(kinds, tmp_path):
    async def work() -> None:
        async with (
            places(kinds, tmp_path) as ports,
            sidecars(*map(url, ports), **PLAIN) as nodes,
            readers(*ports) as all_,
        ):
            publishers = [await client(port, f"publisher {port}") for port in ports]
            sent: Counter[bytes] = Counter()
            for number in range(60):
                payload = b"alike" if number % 4 == 0 else b"%d" % number  # the same from everywhere, on one topic
                await publishers[number % 3].publish("t/alike" if number % 4 == 0 else f"t/{number % 7}/z", payload)
                sent[payload] += 1
            await until(lambda: all(len(one.found) >= 60 for one in all_))
            for index, one in enumerate(publishers):  # a loop would bring more before these
                await one.publish(f"t/{index}/z", b"last %d" % index)
                sent[b"last %d" % index] += 1
            await until(lambda: all(sum(one.startswith(b"last") for one in each.found) == 3 for each in all_))
            await asyncio.sleep(0.5)
            for one in all_:
                assert Counter(one.found) == sent
            for node in nodes:
                counters = node.mqtt.sidecar.bridge.counters
                assert counters["taken"] == 21
                assert counters["echoes"] == 42
                assert not counters["echoes missing"]

    run(work(), LIMIT_S)


@pytest.mark.parametrize("kinds", ["da", "ad", pytest.param("ma", marks=needs_mosquitto)])
def test_a_connection_that_breaks_brings_nothing_twice_into_the_mesh(kinds, tmp_path):
    """x's own reader may get again what was under way to x. amqtt forgets what was under way to us."""

    async def work() -> None:
        async with (
            places(kinds, tmp_path) as ports,
            sidecars(*map(url, ports), **PLAIN) as nodes,
            readers(*ports) as (x, y),
        ):
            here, there = [await client(port, f"publisher {port}") for port in ports]
            sidecar = nodes[0].mqtt.sidecar
            sent: Counter[bytes] = Counter()
            for number in range(40):
                await here.publish("t/1/z", b"here %d" % number)
                await there.publish("t/1/z", b"there %d" % number)
                sent += Counter([b"here %d" % number, b"there %d" % number])
                if number % 10 == 5:
                    await until(lambda: sidecar.bridge.is_up)
                    sidecar._stream.cut("test")
            await until(lambda: sidecar.bridge.is_up and sidecar.bridge.echoes.is_settled)
            await here.publish("t/1/z", b"last")
            await until(lambda: b"last" in y.found and sent.keys() <= set(x.found))
            if kinds[0] != "a":
                await until(lambda: sent.keys() <= set(y.found))
            await asyncio.sleep(0.5)
            assert max(Counter(y.found).values()) == 1
            assert not sidecar.bridge.counters["perhaps echoes"]
            await until(lambda: not any(len(node.mqtt.sidecar.bridge.echoes) for node in nodes))

    run(work(), LIMIT_S)


@pytest.mark.parametrize("kinds", ["da", "ad", pytest.param("ma", marks=needs_mosquitto)])
def test_a_sidecar_that_dies_finds_what_waited_and_what_comes_twice_is_bounded_and_counted(kinds, tmp_path):
    """amqtt forgets what is under way to a client that vanishes; what waits for it, it keeps."""

    async def work() -> None:
        async with (
            places(kinds, tmp_path) as ports,
            sidecars(*map(url, ports), inflight_max=8, **PLAIN) as nodes,
            readers(*ports) as (_, y),
        ):
            here, there = [await client(port, f"publisher {port}") for port in ports]
            for number in range(20):
                await here.publish("t/1/z", b"%d" % number)
                await there.publish("t/1/z", b"there %d" % number)
            life = nodes[0].life
            await nodes.pop(0).stop(in_order=False)
            for number in range(20, 40):
                await here.publish("t/1/z", b"%d" % number)
            given = MqttConfig(broker=url(ports[0]), inflight_max=8, **{**QUICK, **PLAIN, "want": ("#",)})
            again = LiveNode(config("s0", (peer_address(nodes[0]),), mqtt=given), life=life + 1)
            nodes.append(again)
            await again.start()
            await until(lambda: b"39" in y.found)
            await until(lambda: is_ready(again) and again.mqtt.sidecar.bridge.echoes.is_settled)
            sent = Counter([*(b"%d" % one for one in range(40)), *(b"there %d" % one for one in range(20))])
            if kinds[0] != "a":
                await until(lambda: Counter(y.found) >= sent)
            else:
                assert (sent - Counter(y.found)).total() <= 8
            twice = (Counter(y.found) - sent).total()
            assert twice <= 16
            assert twice <= again.mqtt.sidecar.bridge.counters["perhaps echoes"]

    run(work(), LIMIT_S)


def test_a_broker_that_is_killed_and_comes_back_empty_is_joined_again(tmp_path):
    async def work() -> None:
        async with (
            running([Amqtt(tmp_path, "x"), Amqtt(tmp_path, "y")]) as (x, y),
            sidecars(x.url, y.url, **PLAIN) as nodes,
        ):
            bridge = nodes[0].mqtt.sidecar.bridge
            async with readers(x.port, y.port) as (_, at_y):
                here, there = [await client(one.port, f"publisher {one.name}") for one in (x, y)]
                for number in range(10):
                    await here.publish("t/1/z", b"here %d" % number)
                    await there.publish("t/1/z", b"there %d" % number)
                await until(lambda: len(at_y.found) == 20)
                await x.kill()
                await until(lambda: not bridge.is_up)
                await there.publish("t/1/z", b"while it is away")
                await x.start()
                await until(lambda: bridge.counters["sessions begun"] == 2 and bridge.echoes.is_settled)
                async with readers(x.port) as (at_x,):
                    await there.publish("t/1/z", b"it is back")
                    await until(lambda: b"it is back" in at_x.found)
                    here = await client(x.port, "publisher again")
                    await here.publish("t/1/z", b"so am I")
                    await until(lambda: b"so am I" in at_y.found)
                assert max(Counter(at_y.found).values()) == 1

    run(work(), LIMIT_S)


@pytest.mark.parametrize("version", [pytest.param("5", marks=pytest.mark.slow), "3.1.1"])  # it is silent for 10 s at 5
def test_without_the_option_amqtt_is_refused_with_a_message_that_names_it(version, tmp_path, caplog):
    async def work() -> None:
        nodes: list[LiveNode] = []
        async with places("a", tmp_path) as (port,):
            try:
                node = await attach("s", url(port), nodes, broker_version=version)
                await until(lambda: "does not speak our version of MQTT" in caplog.text)
                assert 'broker_echo = "match"' in caplog.text
                assert not node.mqtt.sidecar.bridge.is_up
            finally:
                for node in nodes:
                    await node.stop(in_order=False)

    run(work())


def test_two_sidecars_beside_one_plain_broker_are_parted_with_a_clear_message(tmp_path, caplog):
    async def work() -> None:
        nodes: list[LiveNode] = []
        async with places("d", tmp_path) as (port,):
            try:
                first = await attach("s0", url(port), nodes, **PLAIN)
                await until(lambda: is_ready(first) and first.mqtt.sidecar.bridge.echoes.is_settled)
                await attach("s1", url(port), nodes, **PLAIN)
                await until(lambda: "keep one sidecar beside a broker" in caplog.text)
            finally:
                await vanish_all()
                for node in nodes:
                    await node.stop(in_order=False)

    run(work())
