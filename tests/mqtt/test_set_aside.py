"""A message for which its receiver ends the connection each time: it is set aside, and the next ones go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from live.lives import run, until
from mqtt.attached import client_of, sidecars
from mqtt.desk import Desk, Talker
from mqtt.talk import doors
from mqtt.test_bridge import bridge, message, up
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.echoes import PROBES
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.suspicion import TIMES_MAX


def connection(one: Bridge, poison: bytes, reason: int | None) -> list[bytes]:
    """A connection to a broker that takes all messages but one: return what it took."""
    took: list[bytes] = []
    one.from_broker(p.SubAck(1, (1,)))
    while one.to_broker:
        packet = one.to_broker.pop(0)
        if not isinstance(packet, p.Publish):
            continue
        if packet.payload == poison:
            if reason is not None:
                assert not one.from_broker(p.Disconnect(reason))
            one.down(is_closed=reason is None)
            return took
        took.append(packet.payload)
        one.from_broker(p.Ack(p.PUBACK, packet.id))
    one.check()
    return took


@pytest.mark.parametrize("reason", [reasons.MALFORMED, reasons.PROTOCOL_ERROR, None])
def test_a_message_for_which_the_broker_ends_each_connection_is_set_aside(reason: int | None):
    one = bridge()
    for number in range(1, 7):
        one.from_host(message(number, b"%d" % number), 0)
    took = connection(one, b"3", reason)
    for _ in range(TIMES_MAX + 1):
        up(one, True)
        took += connection(one, b"3", reason)
    assert took == [b"1", b"2", b"4", b"5", b"6"]
    assert [packet.payload for packet in one.aside] == [b"3"]
    assert one.counters["set aside"] == 1
    assert {packet.id for packet in one.to_host} == {1, 2, 3, 4, 5, 6}


def test_a_suspect_is_sent_alone():
    one = bridge()
    for number in range(1, 4):
        one.from_host(message(number, b"%d" % number), 0)
    connection(one, b"1", None)
    up(one, True)
    assert [packet.id for packet in one.to_broker] == [1]
    one.from_broker(p.Ack(p.PUBACK, 1))
    assert [packet.id for packet in one.to_broker] == [1, 2, 3]


@pytest.mark.parametrize("reason", [reasons.TAKEN_OVER, reasons.SHUTTING_DOWN, reasons.BUSY, 0])
def test_a_broker_that_ends_connections_for_other_reasons_costs_no_message(reason: int):
    one = bridge()
    one.from_host(message(1), 0)
    for _ in range(3 * TIMES_MAX):
        connection(one, b"x", reason)
        up(one, True)
    assert not one.aside


def test_a_connection_that_we_leave_or_on_which_the_broker_answers_nothing_costs_no_message():
    one = bridge()
    one.from_host(message(1), 0)
    for _ in range(3 * TIMES_MAX):
        one.down(is_closed=True)  # it has not answered
        up(one, True)
        one.from_broker(p.SubAck(1, (1,)))
        one.down()  # we left it, as for its silence
        up(one, True)
    assert not one.aside


def test_a_sidecar_sets_aside_what_its_broker_does_not_take_and_says_so(caplog):
    got: list[bytes] = []
    count = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        framing, present = Framing(1 << 20), count > 1
        while data := await reader.read(65_536):
            framing.feed(data)
            for first, body in framing.packets():
                packet = decode(p.V5, first, body)
                match packet:
                    case p.Connect():
                        writer.write(encode(p.V5, p.ConnAck(reason=0, session_present=present)))
                    case p.Subscribe(number, asked):
                        writer.write(encode(p.V5, p.SubAck(number, (1,) * len(asked))))
                    case p.PingReq():
                        writer.write(encode(p.V5, p.PingResp()))
                    case p.Publish(payload=b"bad"):
                        writer.write(encode(p.V5, p.Disconnect(reasons.MALFORMED)))
                        writer.close()
                        return
                    case p.Publish(topic=topic) if topic.startswith(PROBES):
                        writer.write(encode(p.V5, replace(packet, qos=0, id=None)))
                    case p.Publish(payload=payload, id=number):
                        got.append(payload)
                        writer.write(encode(p.V5, p.Ack(p.PUBACK, number or 0)))
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            async with sidecars(url, listen="127.0.0.1:0") as (node,):
                publisher = await client_of(node.mqtt.port, "publisher")
                for payload in (b"one", b"bad", b"two", b"three"):
                    await publisher.publish("a/b", payload)
                await until(lambda: got == [b"one", b"two", b"three"])
                assert node.metrics()["mqtt sidecar set aside"] == 1
                assert "aside: topic a/b, 3 bytes" in caplog.text
                assert any("A message on a/b (3 bytes) was set aside" in one.text for one in node.health.complaints())
        finally:
            server.close()

    run(work())


def come_back(desk: Desk, **fields: Any) -> Talker:
    return desk.welcome("c", clean_start=False, expiry_s=600, **fields)


def leave(desk: Desk, client: Talker, how: str) -> None:
    if how == "closes":
        client.closed = "broken"
        desk.host.closed(client.number, True)
        desk.carry_out()
    elif how == "breaks":
        client.drop()
    else:
        client.send(p.Disconnect(reasons.MALFORMED if how == "says that it is malformed" else 0))


@pytest.mark.parametrize("how", ["closes", "says that it is malformed"])
def test_a_message_for_which_a_client_ends_each_connection_is_set_aside(how: str):
    desk = Desk()
    client = come_back(desk)
    client.subscribe("a/b")
    client.got.clear()
    other = desk.welcome("other")
    for payload in (b"bad", b"two", b"three"):
        other.publish("a/b", payload, qos=1, id=9)
    seen = []
    for _ in range(TIMES_MAX):
        seen.append(client.payloads())
        leave(desk, client, how)
        client = come_back(desk)
    assert seen == [[b"bad", b"two", b"three"], [b"bad"], [b"bad"]]
    assert desk.host.counters["set aside"] == 1
    assert client.payloads() == [b"two", b"three"]


@pytest.mark.parametrize("how", ["breaks", "leaves in order"])
def test_a_client_whose_connection_breaks_or_that_leaves_in_order_loses_nothing(how: str):
    desk = Desk()
    client = come_back(desk)
    client.subscribe("a/b")
    desk.welcome("other").publish("a/b", b"one", qos=1, id=9)
    for _ in range(3 * TIMES_MAX):
        leave(desk, client, how)
        client = come_back(desk)
    assert client.payloads() == [b"one"]
    assert not desk.host.counters["set aside"]


def test_messages_behind_a_suspect_keep_their_identifiers_when_they_are_sent_again():
    """Else the client could not know them again."""
    desk = Desk()
    client = come_back(desk)
    client.subscribe("a/b")
    client.got.clear()
    other = desk.welcome("other")
    for payload in (b"one", b"two", b"three"):
        other.publish("a/b", payload, qos=1, id=9)
    first = {one.payload: one.id for one in client.got}
    leave(desk, client, "closes")
    client = come_back(desk)
    other.publish("a/b", b"four", qos=1, id=9)
    assert [one.payload for one in client.got] == [b"one"]
    client.send(p.Ack(p.PUBACK, first[b"one"]))
    again = [(one.payload, one.id, one.dup) for one in client.got]
    assert again[:3] == [(payload, number, True) for payload, number in first.items()]
    assert [(payload, dup) for payload, _, dup in again[3:]] == [(b"four", False)]


def test_a_client_that_closes_its_socket_at_a_message_is_deaf_no_longer(caplog):
    async def work() -> None:
        async with doors("a") as (node,):
            fields = {"clean_start": False, "expiry_s": 600}
            client = await client_of(node.mqtt.port, "c", "a/b", **fields)
            publisher = await client_of(node.mqtt.port, "publisher")
            await publisher.publish("a/b", b"bad")
            await publisher.publish("a/b", b"good")
            for _ in range(TIMES_MAX):
                assert (await client.until(p.Publish)).payload == b"bad"
                while client.found:
                    client.found.pop()
                client.writer.close()
                await until(lambda: node.mqtt.host.sessions["c"].link is None)
                client = await client_of(node.mqtt.port, "c", **fields)
            assert (await client.message()).payload == b"good"
            assert "for client c aside: topic a/b, 3 bytes" in caplog.text
            assert any("client c does not take it" in one.text for one in node.health.complaints())

    run(work())
