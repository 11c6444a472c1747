"""Probes of a sidecar: whether its broker sends what is published there, and whether another sidecar is beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from live.lives import config, run, until
from mqtt.attached import attach, client_of, sidecars
from mqtt.brokers import Mosquitto, needs_mosquitto, running
from mqtt.talk import doors, vanish_all
from trellis.live.doctor import check_broker
from trellis.live.findings import Finding
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import echoes, probes, reasons
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.echoes import PROBES
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing

PROBE = "trellis/probe/trellis-n"
OTHER = p.Publish(topic="trellis/probe/trellis-other", payload=b"their mark/1")
VERSIONS = [{}, {"broker_version": "3.1.1"}, {"broker_version": "3.1.1", "broker_echo": "match"}]


def attached(*, codes: tuple[int, ...] = (1, 0), **fields: Any) -> tuple[Bridge, p.Publish | None]:
    """Give a sidecar whose broker has answered its SUBSCRIBE with these codes, and its first probe."""
    one = Bridge("trellis-n", MqttConfig(broker="mqtt://b", **fields), "m")
    one.up(p.ConnAck(reason=0))
    (asked,) = [packet for packet in one.to_broker if isinstance(packet, p.Subscribe)]
    one.to_broker.clear()
    one.from_broker(p.SubAck(asked.id, codes))
    return one, (probes_of(one) or [None])[0]


def probes_of(one: Bridge) -> list[p.Publish]:
    """Take what the sidecar publishes for itself."""
    found = [packet for packet in one.to_broker if isinstance(packet, p.Publish)]
    one.to_broker.clear()
    return found


def passed(one: Bridge, from_ms: int, to_ms: int) -> list[p.Publish]:
    """Let time pass. Return what the sidecar publishes for itself meanwhile."""
    for now_ms in range(from_ms, to_ms + 1, 100):
        one.tick(now_ms)
    return probes_of(one)


# Without a broker


def test_a_sidecar_publishes_a_probe_to_itself_and_no_more_when_it_has_come_back():
    one, probe = attached()
    assert probe is not None
    assert (probe.topic, probe.qos) == (PROBE, 1)
    one.from_broker(p.Ack(p.PUBACK, probe.id))
    one.from_broker(p.Publish(topic=PROBE, payload=probe.payload))
    assert not passed(one, 0, 600_000)
    assert not one.is_unheard
    assert not one.to_host  # it does not enter the mesh


def test_a_broker_that_sends_no_probe_back_is_told_until_one_comes():
    one, probe = attached()
    one.from_broker(p.Ack(p.PUBACK, probe.id))
    again = passed(one, 0, 5_400)
    assert not one.is_unheard
    assert [packet.qos for packet in again] == [0]  # it does not wait in sessions of clients that are away
    again += passed(one, 5_500, 60_000)
    assert one.is_unheard
    assert len(again) == 15
    one.from_broker(p.Publish(topic=PROBE, payload=again[-1].payload))
    assert not one.is_unheard
    assert not passed(one, 60_100, 600_000)


def test_a_probe_of_an_earlier_life_does_not_stand_in_for_ours():
    one, _ = attached()
    one.from_broker(p.Publish(topic=PROBE, payload=b"earlier mark/1"))
    passed(one, 0, 6_000)
    assert one.is_unheard
    assert not one.leaves


@pytest.mark.parametrize(
    "allowed",
    [
        lambda one, probe: one.from_broker(p.Ack(p.PUBACK, probe.id, reasons.NOT_AUTHORIZED)),
        lambda one, probe: one.from_broker(p.Publish(topic="plant/x", payload=b"of a client")),
    ],
    ids=["it refuses the probe", "it sends messages of clients"],
)
def test_a_broker_with_narrow_rights_is_not_complained_about(allowed):
    """The sidecar may read what it takes, and has no right to probe."""
    one, probe = attached()
    allowed(one, probe)
    assert not passed(one, 0, 60_000)
    assert not one.is_unheard


def test_a_broker_that_refuses_the_filter_of_probes_is_not_complained_about():
    one, probe = attached(codes=(1, reasons.NOT_AUTHORIZED))
    assert probe is None
    assert not passed(one, 0, 60_000)
    assert not one.is_unheard
    assert not one.refused
    assert not one.counters["filters refused"]


def test_a_sidecar_that_takes_nothing_does_not_mind_that_it_reads_nothing():
    one, _ = attached(codes=(0,), take=(), want=("#",))
    passed(one, 0, 60_000)
    assert not one.is_unheard


def test_a_probe_may_be_behind_messages_that_the_mesh_has_not_taken():
    one, probe = attached()
    one.from_broker(p.Publish(topic=PROBE, payload=probe.payload))
    one.from_broker(OTHER)  # so that more are published
    one.from_broker(p.Publish(topic="t", payload=b"", qos=1, id=7))
    for now_ms in range(0, 60_000, 100):
        one.tick(now_ms)
        one.from_broker(OTHER)
    assert probes_of(one)
    assert not one.is_unheard
    one.from_host(p.Ack(p.PUBACK, 7), 60_000)
    passed(one, 60_000, 67_000)
    assert one.is_unheard


def test_a_broker_that_ends_connections_because_of_probes_gets_no_more_of_them():
    """Some end the connection of a client that publishes where it may not."""
    one = Bridge("trellis-n", MqttConfig(broker="mqtt://b"), "m")
    seen = []
    for _ in range(4):
        one.up(p.ConnAck(reason=0, session_present=True))
        one.from_broker(p.SubAck(1, (1, 0)))
        seen.append(len(probes_of(one)))
        one.down(is_closed=True)
    assert seen == [1, 1, 0, 0]


def test_the_packet_identifier_of_a_probe_of_version_5_is_used_once_at_a_time():
    one, probe = attached()
    one.from_host(p.Publish(topic="t", payload=b"alike in number", qos=1, id=probe.id), 0)
    assert not probes_of(one)
    one.from_broker(p.Ack(p.PUBACK, probe.id))
    assert [packet.payload for packet in probes_of(one)] == [b"alike in number"]
    one.down()
    one.up(p.ConnAck(reason=0, session_present=True))
    one.from_broker(p.SubAck(1, (1, 0)))
    again = probes_of(one)
    assert [(packet.topic, packet.qos) for packet in again] == [("t", 1), (PROBE, 0)]


def test_another_sidecar_at_a_broker_of_version_5_is_told_answered_and_forgotten_when_it_has_gone():
    one, probe = attached()
    one.from_broker(p.Publish(topic=PROBE, payload=probe.payload))
    passed(one, 0, 10_000)
    assert one.from_broker(OTHER)
    assert not one.leaves  # messages come twice, and do not go round
    assert not one.to_host
    (answer,) = probes_of(one)
    assert (answer.topic, answer.qos) == (PROBE, 0)
    one.from_broker(OTHER)
    assert not probes_of(one)  # else the two would answer each other for ever
    assert list(one.probes.others) == ["trellis-other"]
    assert one.counters["probes of others"] == 2
    assert len(passed(one, 10_000, 24_900)) == 3
    assert list(one.probes.others) == ["trellis-other"]
    passed(one, 25_000, 25_000)
    assert not one.probes.others


def test_names_of_other_sidecars_are_bounded():
    one, _ = attached()
    for number in range(1_000):
        one.from_broker(p.Publish(topic=f"{PROBES}{number:0<500}", payload=b""))
    assert len(one.probes.others) == 8
    assert max(map(len, one.probes.others)) == 128


def test_a_question_of_the_doctor_is_answered_and_is_no_other_sidecar():
    one, probe = attached()
    one.from_broker(p.Publish(topic=PROBE, payload=probe.payload))
    passed(one, 0, 10_000)
    for _ in range(100):
        one.from_broker(p.Publish(topic=f"{PROBES}trellis-doctor-7", payload=b"?"))
    assert len(probes_of(one)) == 1
    assert len(passed(one, 10_000, 60_000)) == 1  # to those that came while we were silent
    assert not one.probes.others
    assert not one.counters["probes of others"]


# With a broker


class Mute:
    """A broker that grants every subscription, acknowledges every publication, and sends nothing."""

    def __init__(self, version: int, narrow: bool = False) -> None:
        self.version, self.narrow = version, narrow

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing, version = Framing(1 << 16), self.version
        while data := await reader.read(65_536):
            framing.feed(data)
            for first, body in framing.packets():
                if first >> 4 == 1:
                    writer.write(encode(version, p.ConnAck(reason=0)))
                    continue
                match decode(version, first, body):
                    case p.Subscribe(number, asked):
                        writer.write(encode(version, p.SubAck(number, tuple(one.qos for one in asked))))
                    case p.Unsubscribe(number, filters):
                        writer.write(encode(version, p.UnsubAck(number, (0,) * len(filters))))
                    case p.Publish(id=number) if number is not None:
                        code = reasons.NOT_AUTHORIZED if self.narrow else 0
                        writer.write(encode(version, p.Ack(p.PUBACK, number, code)))
                    case p.PingReq():
                        writer.write(encode(version, p.PingResp()))
        writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()


def wrong(found: list[Finding]) -> str:
    return " ".join(f"{one.what} {one.remedy}" for one in found if one.level == "wrong")


def complaints(node: LiveNode) -> str:
    return " ".join(one.text for one in node.health.complaints())


@pytest.mark.parametrize("fields", VERSIONS, ids=str)
def test_a_broker_that_lets_a_sidecar_read_nothing_is_told_by_health_and_doctor(fields, monkeypatch):
    if fields:  # else as it is, so that one test sees how long it takes
        monkeypatch.setattr(probes, "UNHEARD_MS", 1_500)
        monkeypatch.setattr(echoes, "UNHEARD_MS", 1_500)

    async def work() -> None:
        nodes: list[LiveNode] = []
        version = p.V311 if fields else p.V5
        async with Mute(version).running() as url:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            node = await attach("n", url, nodes, **fields)
            try:
                await until(lambda: "does not send us what is published: our own message on" in complaints(node))
                assert "read and write trellis/probe/#" in complaints(node)
                assert loop.time() - begun < 10.0
                told = wrong(await check_broker(config("n", mqtt=MqttConfig(broker=url, **fields)), 2.0))
                assert "accepts the filters, and does not send what is published" in told
            finally:
                await node.stop(in_order=False)

    run(work())


def test_a_doctor_notes_that_it_may_not_probe_and_finds_nothing_wrong():
    async def work() -> None:
        async with Mute(p.V5, narrow=True).running() as url:
            found = await check_broker(config("n", mqtt=MqttConfig(broker=url)), 2.0)
            assert [one.level for one in found] == ["good", "note"]
            assert "it does not let us publish on trellis/probe/trellis-doctor-" in found[1].what

    run(work())


def test_two_sidecars_beside_one_broker_of_version_5_are_told_by_health_and_doctor():
    """Nothing else shows it: every message comes twice or more often."""

    async def work() -> None:
        async with doors("outer") as (outer,):
            url = f"mqtt://127.0.0.1:{outer.mqtt.port}"
            reader = await client_of(outer.mqtt.port, "reader", "plant/#")
            async with sidecars(url) as nodes:
                mine = config("s0", mqtt=MqttConfig(broker=url))
                assert not wrong(await check_broker(mine))
                assert not complaints(nodes[0])
                second = await attach("s1", url, nodes)
                await until(lambda: "Another sidecar, trellis-s1, is heard at the broker" in complaints(nodes[0]))
                await until(lambda: "Another sidecar, trellis-s0, is heard at the broker" in complaints(second))
                assert "Another sidecar, trellis-s1, is there" in wrong(await check_broker(mine))
                assert nodes[0].metrics()["mqtt sidecar probes of others"]
                for node in nodes:
                    assert not node.mqtt.sidecar.bridge.counters["taken"]  # probes do not enter the mesh
            assert not reader.found
            await vanish_all()

    run(work())


def ruled(folder: Path, name: str, *rights: str) -> Mosquitto:
    """Give a Mosquitto with these access rules."""
    rules = folder / f"{name}.rules"
    rules.write_text("\n".join(rights) + "\n")
    user = "user root\n" if os.geteuid() == 0 else ""  # else it may not read a file of root
    return Mosquitto(folder, name, f"{user}acl_file {rules}")


@needs_mosquitto
@pytest.mark.parametrize("fields", VERSIONS, ids=str)
def test_mosquitto_s_access_rules_are_told_where_they_let_a_sidecar_read_nothing(fields, tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "UNHEARD_MS", 1_500)
    monkeypatch.setattr(echoes, "UNHEARD_MS", 1_500)
    mute = ruled(tmp_path, "mute", "topic write #")
    narrow = ruled(tmp_path, "narrow", "topic readwrite plant/#", "topic readwrite trellis/probe/#")

    async def work() -> None:
        nodes: list[LiveNode] = []
        async with running([mute, narrow]):
            unheard = await attach("n", mute.url, nodes, **fields)
            heard = await attach("m", narrow.url, nodes, **fields)
            try:
                await until(lambda: "does not send us what is published" in complaints(unheard))
                await until(lambda: is_heard(heard.mqtt.sidecar.bridge))
                assert "does not send us" not in complaints(heard)
                asked = [(name, MqttConfig(broker=url, **fields)) for name, url in (("n", mute.url), ("m", narrow.url))]
                told = await asyncio.gather(*(check_broker(config(name, mqtt=one), 4.0) for name, one in asked))
                assert "does not send what is published" in wrong(told[0])
                assert not wrong(told[1])
            finally:
                for node in nodes:
                    await node.stop(in_order=False)

    run(work())


@needs_mosquitto
def test_mosquitto_s_access_rules_without_a_right_to_probe_are_not_complained_about(tmp_path):
    async def work() -> None:
        async with running([ruled(tmp_path, "x", "topic readwrite plant/#")]) as (one,):
            nodes: list[LiveNode] = []
            node = await attach("n", one.url, nodes, take=("plant/#",))
            try:
                await until(lambda: node.mqtt.sidecar.bridge.probes.is_forbidden)
                assert not wrong(await check_broker(config("n", mqtt=MqttConfig(broker=one.url)), 4.0))
            finally:
                await node.stop(in_order=False)

    run(work())


def is_heard(bridge: Bridge) -> bool:
    """Return whether a probe has come back."""
    return bridge.echoes.is_settled if bridge.echoes is not None else bridge.probes.is_heard
