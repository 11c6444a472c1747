"""What one client can make a node remember or count is bounded, and whoever is beyond a limit is told so."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from live.lives import config, run, until
from mqtt.desk import Desk
from mqtt.talk import connect, dial, doors
from trellis.live.admin import exposition
from trellis.live.frames import Refused, pack_control
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.directory import Directory
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.envelope import Ask, Copy, Envelope, Introduce
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.primitives import text, varint
from trellis.protocols.mqtt.topics import LEVELS_MAX

DEEP = "/".join("x" * (LEVELS_MAX + 1))
NOT_DEEP = "/".join("x" * LEVELS_MAX)


# Levels


def test_filters_of_thousands_of_levels_are_refused_and_take_no_memory():
    desk = Desk()
    desk.welcome()
    tracemalloc.start()
    try:
        for number in range(40):
            client = desk.welcome()
            client.send(p.Subscribe(1, (p.Asked(f"{number}" + "/" * 32_700, 1),)))
            assert client.take(p.Disconnect).reason == reasons.MALFORMED
            client.framing = Framing(1 << 10)  # as the connection ends
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1 << 20
    assert not desk.host.tree.count


@pytest.mark.parametrize("version", [p.V5, p.V311])
@pytest.mark.parametrize("filter_", [DEEP, NOT_DEEP + "/#", f"$share/g/{NOT_DEEP}"])
@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
def test_a_filter_of_more_than_201_levels_makes_its_packet_malformed(version, filter_, kind):
    client = Desk().welcome(version=version)
    assert client.subscribe(NOT_DEEP) == (1,)
    client.got.clear()
    asked = p.Subscribe(1, (p.Asked(filter_, 1),)) if kind == "subscribe" else p.Unsubscribe(1, (filter_,))
    client.send(asked)
    assert client.closed == "malformed"
    assert [one.reason for one in client.got] == ([reasons.MALFORMED] if version == p.V5 else [])


def test_a_topic_of_more_than_201_levels_makes_its_packet_malformed():
    desk = Desk()
    new, old = desk.welcome("new"), desk.welcome("old", p.V311)
    new.publish(NOT_DEEP, qos=1, id=1)
    assert new.take(p.Ack).reason == 0
    new.publish(DEEP, qos=1, id=2)
    assert new.take(p.Disconnect).reason == reasons.MALFORMED
    old.publish(DEEP, qos=1, id=1)
    assert old.closed == "malformed"
    refused = desk.connect("third", will=p.Will(topic=DEEP, payload=b"", qos=0, retain=False))
    assert refused.take(p.ConnAck).reason == reasons.TOPIC_INVALID


def test_many_long_filters_of_one_client_are_refused_before_they_take_much_memory():
    desk = Desk(subscriptions_max=100)
    client = desk.welcome()
    codes = [client.subscribe(f"{number}/{NOT_DEEP[:-2]}")[0] for number in range(40) if not client.got.clear()]
    assert codes[:5] == [1] * 5
    assert codes[-1] == reasons.QUOTA
    client.send(p.Unsubscribe(1, (f"0/{NOT_DEEP[:-2]}",)))
    client.got.clear()
    assert client.subscribe(f"new/{NOT_DEEP[:-2]}") == (1,)


@pytest.mark.parametrize(("version", "code"), [(p.V5, reasons.QUOTA), (p.V311, 0x80)])
def test_filters_of_all_clients_together_take_no_more_memory_than_is_allowed(version, code):
    desk = Desk(filters_bytes=100_000)
    answers = []
    for number in range(20):
        client = desk.welcome(f"c{number}", version, expiry_s=600, clean_start=True)
        for each in range(2):
            answers.append(client.subscribe(f"{number}/{each}/" + "x/" * 20))
            client.got.clear()
    assert answers[:14] == [(1,)] * 14
    assert answers[-20:] == [(code,)] * 20
    assert desk.host.state.filter_bytes <= 100_000
    assert desk.host.counters["filters beyond memory"] == answers.count((code,))
    client = desk.welcome("c0", version, clean_start=True)  # its old session ends, and makes room
    assert client.subscribe("0/0/" + "x/" * 20, "0/1/" + "x/" * 20) == (1, 1)
    client.got.clear()
    assert client.subscribe("0/0/" + "x/" * 20) == (1,), "one that is there already takes no more"


def test_properties_of_messages_that_wait_for_a_client_count_as_memory():
    desk = Desk(queue_bytes=100_000)
    reader = desk.welcome("r", receive_max=1)
    reader.subscribe("t")
    reader.got.clear()
    writer = desk.welcome("w")
    content = p.Content(user=tuple((f"name{one}", "x" * 100) for one in range(50)), correlation=b"y" * 1_000)
    for number in range(1, 100):
        writer.publish("t", b"1", qos=1, id=number, content=content)
    (session,) = [one for one in desk.host.sessions.values() if one.client == "r"]
    assert len(session.queue) < 100_000 // (50 * 100)
    assert session.dropped == 98 - len(session.queue)


def test_what_other_nodes_tell_has_no_more_levels_either():
    desk = Desk()
    client = desk.welcome()
    client.subscribe("#", "x/#")
    directory: Directory = desk.host.directory
    strange = directory.counters["strange"]
    directory.on_said("$mqtt/all", "m", Introduce((DEEP,)))
    directory.on_said("$mqtt/all", "m", Copy("x/x", Envelope(DEEP, b"", 0, False, "", 1, 1, 1)))
    directory.on_said("$mqtt/ask", "m", Ask(1, 2, (DEEP + "/#", "a/#/b", "x/+"), (1, 2, 3), 3))
    assert directory.counters["strange"] == strange + 2
    assert not desk.host.interests.known
    assert list(directory.holders.nodes["m"].patterns) == ["x/+"]


# Labels of metrics


def bad_packets() -> list[bytes]:
    """Packets that are wrong in ever new words."""
    connect = encode(p.V5, p.Connect(version=p.V5, client="c", clean_start=True))
    options = [b"\x82" + varint(3 + 4) + b"\0\1\0\0\1a" + bytes((one,)) for one in range(3, 256)]
    properties = [b"\x82" + varint(5 + 4) + b"\0\1" + b"\2" + bytes((one, 0)) + b"\0\1a\1" for one in range(60, 120)]
    kinds = [bytes((one,)) + b"\0" for one in range(0xE1, 0xF0)]
    sizes = [b"\x30" + varint((1 << 20) + one) for one in range(20)]
    return [connect + one for one in [*options, *properties, *kinds, *sizes]]


def test_bad_packets_make_no_new_series_of_metrics():
    async def work() -> None:
        async with doors("a") as (node,):
            assert node.mqtt is not None
            packets = bad_packets()
            before = exposition(node).count("trellis_mqtt_total{")
            for start in range(0, len(packets), 50):
                raws = [await dial(node) for _ in packets[start : start + 50]]
                for raw, packet in zip(raws, packets[start : start + 50], strict=True):
                    raw.writer.write(packet)
                for raw in raws:
                    while await raw.read() is not None:
                        pass
                    raw.writer.close()
            closed = {key: count for key, count in node.mqtt.counters.items() if key.startswith(("closed ", "cut "))}
            assert sum(closed.values()) >= len(packets)
            assert {key.split(" ", 1)[1] for key in closed} <= set(reasons.NAMES.values())
            assert exposition(node).count("trellis_mqtt_total{") == before

    run(work())


def test_a_peer_cannot_invent_names_of_counters():
    async def work() -> None:
        words = [f"word {number}" for number in range(20)]
        spoken = []

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            spoken.append(words[len(spoken) % len(words)])
            writer.write(pack_control(Refused(spoken[-1], "because")))
            await reader.read()
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        seed = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        node = LiveNode(config("a", (seed,)))
        await node.start()
        try:
            await until(lambda: node.transport.counters["refused other"] >= 2)
            told = [key for key in node.transport.counters if key.startswith("refused ")]
            assert told == ["refused other"]
        finally:
            await node.stop(in_order=False)
            server.close()

    run(work())


# What is answered


def test_a_connect_with_many_user_properties_is_taken():
    """They mean nothing to us; only the size of the packet is bounded."""
    user = b"".join(b"\x26" + text(f"name {number}") + text("value") for number in range(2_000))
    properties = varint(len(user)) + user
    body = text("MQTT") + b"\x05\x02\x00\x3c" + properties + text("c")
    talker = Desk().open()
    talker.raw(b"\x10" + varint(len(body)) + body)
    assert talker.take(p.ConnAck).reason == 0


@pytest.mark.parametrize("version", [p.V5, p.V311])
def test_a_malformed_connect_is_answered_where_the_standard_has_an_answer(version):
    body = text("MQTT") + bytes((version, 0x03, 0, 60)) + b"\0" * (version == p.V5) + text("c")
    talker = Desk().open(version)
    talker.raw(b"\x10" + varint(len(body)) + body)
    if version == p.V5:
        assert talker.take(p.ConnAck).reason == reasons.MALFORMED
    assert not talker.got
    assert talker.closed == "malformed"


@pytest.mark.parametrize("version", [p.V5, p.V311])
@pytest.mark.parametrize("packet", [b"\x82", b"\xa2"], ids=["SUBSCRIBE", "UNSUBSCRIBE"])
def test_a_filter_without_letters_ends_the_connection(version, packet):
    desk = Desk()
    client = desk.welcome(version=version)
    body = b"\0\1" + b"\0" * (version == p.V5) + text("a/b") + b"\1" * (packet == b"\x82")
    body += text("") + b"\1" * (packet == b"\x82")
    client.raw(packet + varint(len(body)) + body)
    if version == p.V5:
        assert client.take(p.Disconnect).reason == reasons.MALFORMED
    assert not client.got
    assert client.closed == "malformed"
    assert not desk.host.tree.count


def test_a_client_that_goes_on_sending_sees_why_it_is_disconnected():
    """A socket that is closed while bytes come resets the connection: the client's next packet fails instead."""

    async def work() -> None:
        async with doors("a", mqtt={"inflight_max": 5}) as (node,):
            client = await connect(node, "c")
            for number in range(1, 11):
                client.send(p.Publish(topic="t", payload=b"x", qos=2, id=number))
                await client.writer.drain()
                await asyncio.sleep(0.02)
            said = [packet async for packet in _all(client)]
            assert isinstance(said[-1], p.Disconnect)
            assert said[-1].reason == reasons.RECEIVE_MAX

    run(work())


async def _all(client):
    while (packet := await client.read()) is not None:
        yield packet
