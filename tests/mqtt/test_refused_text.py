"""Text that Mosquitto and its clients end a connection for: it is refused before it is acknowledged, or dropped."""

from __future__ import annotations

from typing import Any

import pytest

from live.lives import run, until
from mqtt.attached import client_of, sidecars
from mqtt.brokers import brokers, needs_mosquitto
from mqtt.desk import WALL_MS, Desk
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.envelope import Envelope, wrap
from trellis.protocols.wire import is_clean, name_fault

FORBIDDEN = ["\x01", "\n", "\x1f", "\x7f", "\x9f", "\ufdd0", "\ufdef", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff"]
ALLOWED = ["a b", "\xa0", "\u200b", "\ufdcf", "\ufdf0", "\ufffd", "\N{SNOWMAN}", "\ue000", "\U000e0001"]


@pytest.mark.parametrize("one", FORBIDDEN, ids=ascii)
@pytest.mark.parametrize("place", ["topic", "user name", "user value", "content type", "response topic"])
def test_a_publication_with_text_that_others_refuse_is_malformed_and_not_acknowledged(place: str, one: str):
    text = f"x{one}y"
    fields: dict[str, Any] = {
        "topic": {"topic": f"a/b/{text}"},
        "user name": {"content": p.Content(user=((text, "v"),))},
        "user value": {"content": p.Content(user=(("k", text),))},
        "content type": {"content": p.Content(content_type=text)},
        "response topic": {"content": p.Content(response_topic=text)},
    }[place]
    desk = Desk()
    client = desk.welcome()
    client.publish(fields.pop("topic", "a/b"), qos=1, id=7, **fields)
    assert client.take(p.Disconnect).reason == reasons.MALFORMED
    assert client.closed
    assert not client.got
    assert all(one.topic.startswith("$mqtt/") for one in desk.emitted)


@pytest.mark.parametrize("one", ALLOWED, ids=ascii)
def test_other_text_passes_unchanged(one: str):
    desk = Desk()
    client = desk.welcome()
    client.subscribe("a/b/+")
    client.got.clear()
    content = p.Content(user=((one, one),), content_type=one)
    client.publish(f"a/b/{one}", qos=1, id=7, content=content)
    found = next(packet for packet in client.got if isinstance(packet, p.Publish))
    assert (found.topic, found.content) == (f"a/b/{one}", content)


def test_a_will_with_text_that_others_refuse_is_refused_at_connect():
    desk = Desk()
    will = p.Will(topic="a/b", payload=b"x", qos=1, retain=False, content=p.Content(user=(("k", "1\n2"),)))
    assert desk.connect(will=will).take(p.ConnAck).reason == reasons.MALFORMED


def test_a_response_topic_with_wildcards_is_a_protocol_error():
    client = Desk().welcome()
    client.publish("a/b", qos=1, id=7, content=p.Content(response_topic="a/+"))
    assert client.take(p.Disconnect).reason == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("one", FORBIDDEN, ids=ascii)
def test_what_another_node_brings_with_such_text_does_not_reach_clients(one: str):
    """That node may be of an earlier release, or lie."""
    desk = Desk()
    client = desk.welcome()
    client.subscribe("a/b/#", "+/c")
    client.got.clear()
    for topic, content in (
        (f"a/b/{one}", p.PLAIN),
        ("a/b/x", p.Content(user=(("k", f"1{one}2"),))),
        ("a/b/x", p.Content(response_topic=one)),
        ("a/b/x", p.Content(response_topic="a/#")),
    ):
        desk.host.delivered("a/b", "z", wrap(Envelope(topic, b"bad", 1, False, "", 1, 1, WALL_MS, content=content)))
    assert desk.host.counters["garbage"] == 4
    desk.host.delivered("a/b", "z", wrap(Envelope("a/b/x", b"good", 1, False, "", 1, 2, WALL_MS)))
    desk.carry_out()
    assert client.payloads() == [b"good"]


@pytest.mark.parametrize("topic", ["a/\ufffe", "a/+", "a/b\n"])
def test_a_native_publication_on_a_topic_that_mqtt_does_not_have_does_not_reach_clients(topic: str):
    desk = Desk()
    client = desk.welcome()
    client.subscribe("a/#")
    client.got.clear()
    desk.host.deliveries.early[topic] = None  # as if its node had joined it for the wildcard
    desk.host.delivered(topic, "z", b"bad")
    desk.carry_out()
    assert not client.got
    assert desk.host.counters["garbage"] == 1


def test_native_clients_are_held_to_the_same_rule():
    assert all(name_fault(f"a/{one}") is not None for one in FORBIDDEN)
    assert all(name_fault(f"a/{one}") is None and is_clean(one) for one in ALLOWED)


@needs_mosquitto
def test_a_message_with_text_that_mosquitto_refuses_does_not_make_a_site_deaf(tmp_path):
    async def work() -> None:
        async with brokers(tmp_path, "x") as (broker,), sidecars(broker.url, listen="127.0.0.1:0") as (node,):
            reader = await client_of(broker, "reader", "#")
            for number, bad in enumerate((p.Content(user=(("k", "1\n2"),)), p.Content(user=(("k", "\ufffe"),)))):
                hostile = await client_of(node.mqtt.port, f"hostile {number}")
                hostile.send(p.Publish(topic="a/b", payload=b"bad", qos=1, id=1, content=bad))
                assert (await hostile.until(p.Disconnect)).reason == reasons.MALFORMED
            publisher = await client_of(node.mqtt.port, "publisher")
            await publisher.publish("a/b", b"good")
            assert (await reader.message()).payload == b"good"
            # A member of an earlier release does not refuse it.
            envelope = Envelope("a/b", b"bad", 1, False, "", 1, 1, 0, content=p.Content(user=(("k", "1\n2"),)))
            node.mqtt.host.delivered("a/b", "an older node", wrap(envelope))
            await publisher.publish("a/b", b"better")
            assert (await reader.message()).payload == b"better"
            await until(lambda: node.mqtt.host.counters["garbage"] >= 1)
            assert not node.mqtt.sidecar.bridge.counters["connections ended"]

    run(work())
