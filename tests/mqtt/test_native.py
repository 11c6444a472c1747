"""Clients of `trellis.connect` and MQTT clients on the same topics: each gets payloads, and nothing of the inside."""

from __future__ import annotations

import pytest

import trellis
from live.lives import client_address, run, until, within
from mqtt.talk import connect, doors
from trellis.live import received, talk
from trellis.live.client import ClientError
from trellis.live.received import Message, Mqtt, Reader
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.envelope import MAGIC, Envelope, Kept, Recall, wrap

CONTENT = p.Content(content_type="text/plain", user=(("unit", "C"),), correlation=b"7")


def test_a_native_subscriber_gets_the_payload_of_an_mqtt_client_and_no_talk_of_listeners():
    async def work() -> None:
        async with doors("a", "b") as (a, b), trellis.connect(client_address(b)) as native:
            await native.subscribe("home/hall")
            reader = await connect(b, "reader")  # its listener asks on the topic what is retained, and others answer
            await reader.subscribe("home/hall/#")
            writer = await connect(a, "writer")
            await writer.publish("home/hall/temp", b"21", retain=True, content=CONTENT)
            late = await connect(b, "late")
            await late.subscribe("home/hall/#")
            await writer.publish("home/hall", b"")
            await writer.publish("home/hall", b"bare", qos=0)
            messages = [await within(anext(native)) for _ in range(3)]
            assert [(one.topic, one.origin, one.payload) for one in messages] == [
                ("home/hall", "a", b"21"), ("home/hall", "a", b""), ("home/hall", "a", b"bare"),
            ]  # fmt: skip
            assert messages[0].mqtt == Mqtt("home/hall/temp", 1, True, "writer", CONTENT)
            assert [(one.mqtt.topic, one.mqtt.qos, one.mqtt.retain) for one in messages[1:]] == [
                ("home/hall", 1, False), ("home/hall", 0, False),
            ]  # fmt: skip

    run(work())


def test_a_native_publication_comes_to_mqtt_and_native_clients_as_it_was_given():
    """Also one that looks like an envelope, or like talk of listeners."""
    forged = Envelope("other/x", b"forged", 1, True, "c", 1, 1, 1)
    payloads = [b"21", b"", MAGIC, MAGIC + b"garbage", wrap(Recall()), wrap(forged), b"last"]

    async def work() -> None:
        async with (
            doors("a", "b") as (a, b),
            trellis.connect(client_address(a)) as writer,
            trellis.connect(client_address(b)) as native,
        ):
            reader = await connect(b, "reader")
            await reader.subscribe("home/hall", "other/x")
            await native.subscribe("home/hall")
            for payload in payloads:
                await writer.publish("home/hall", payload)
            found = [await reader.message() for _ in payloads]
            assert [(one.topic, one.payload, one.retain) for one in found] == [
                ("home/hall", payload, False) for payload in payloads
            ]
            messages = [await within(anext(native)) for _ in payloads]
            assert [(one.payload, one.mqtt) for one in messages] == [(payload, None) for payload in payloads]

    run(work())


@pytest.mark.parametrize("topic", ["$mqtt/all", "$anything"])
def test_a_native_client_cannot_subscribe_to_topics_of_the_mesh(topic):
    async def work() -> None:
        async with doors("a") as (a,), trellis.connect(client_address(a)) as client:
            with pytest.raises(ClientError, match="belong to the mesh"):
                await client.subscribe(topic)
            client._send(talk.Subscribe(topic))  # one that does not ask itself
            with pytest.raises(ClientError, match="belong to the mesh"):
                await within(anext(client))
            assert topic not in a.client_port.wanted

    run(work())


def test_what_a_sidecar_publishes_again_comes_once(monkeypatch):
    monkeypatch.setattr(received, "SEEN_MAX", 2)
    reader = Reader()

    def read(number: int, client: str = "$sidecar/s") -> Message | None:
        envelope = Envelope("t/x", b"p", 1, False, client, 1, number, 1)
        return reader.read(talk.Message("t/x", "s", number, wrap(envelope)))

    assert [read(one) is not None for one in (1, 1, 2, 1, 3, 3, 1)] == [True, False, True, False, True, False, True]
    assert read(9, "c") == read(9, "c")
    assert read(9, "c") is not None


def test_what_only_begins_like_an_envelope_stays_as_it_is():
    reader = Reader()
    for payload in (b"text", MAGIC, MAGIC + b" garbage"):
        assert reader.read(talk.Message("t", "n", 1, payload)) == Message("t", "n", 1, payload)
    assert reader.read(talk.Message("t", "n", 1, wrap(Recall()))) is None
    assert reader.read(talk.Message("t", "n", 1, wrap(Kept((), ())))) is None


def test_a_native_topic_with_wildcard_letters_reaches_native_clients_alone():
    async def work() -> None:
        async with (
            doors("a") as (a,),
            trellis.connect(client_address(a)) as writer,
            trellis.connect(client_address(a)) as native,
        ):
            reader = await connect(a, "reader")
            await reader.subscribe("v1/+", "#")
            await native.subscribe("v1/+")
            assert await writer.publish("v1/+", b"native")
            assert (await within(anext(native))).payload == b"native"
            await (await connect(a, "writer")).publish("v1/y", b"mqtt")
            assert (await reader.message()).payload == b"mqtt"
            assert a.mqtt is not None
            assert "v1/+" not in a.mqtt.host.interests.known

    run(work())


def test_a_wildcard_gets_native_messages_from_when_its_node_has_joined_the_topic():
    """A filter that names the overlay topic gets the first one as well."""

    async def work() -> None:
        async with doors("a", "b") as (a, b), trellis.connect(client_address(a)) as writer:
            reader, named = await connect(b, "reader"), await connect(b, "named")
            await reader.subscribe("n/#")
            await writer.publish("n/oven", b"opens the topic")
            assert b.mqtt is not None
            await until(lambda: b.mqtt.host.directory.is_confirmed("n/oven"))
            await named.subscribe("n/press/#")
            for topic in ("n/oven", "n/press"):
                await writer.publish(topic, topic.encode())
            got = [(await reader.message()).payload]
            if got == [b"opens the topic"]:
                got = [(await reader.message()).payload]
            assert got == [b"n/oven"]
            assert (await named.message()).payload == b"n/press"

    run(work())
