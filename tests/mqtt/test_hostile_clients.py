"""Topic aliases and wills of clients that break the rules: each gets MQTT's reason for it, and nothing ends."""

from __future__ import annotations

from typing import Any

import pytest

from mqtt.desk import Desk
from trellis.protocols.mqtt import connections, reasons
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import properties as props
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.primitives import packet, text, u16, varint
from trellis.protocols.mqtt.topics import LEVELS_MAX


def still_works(desk: Desk) -> None:
    """Another client publishes and is answered; a third one gets it."""
    reader, writer = desk.welcome("reader"), desk.welcome("writer")
    reader.subscribe("t")
    reader.got.clear()
    writer.publish("t", b"after", qos=1, id=1)
    assert writer.take(p.Ack).reason == 0
    assert reader.payloads() == [b"after"]


def publish(topic: str, alias: int | None, *more: bytes) -> bytes:
    found = b"".join((bytes((props.ALIAS,)) + u16(alias) if alias is not None else b"", *more))
    return packet(p.PUBLISH << 4, text(topic), varint(len(found)) + found, b"payload")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (publish("t", 0), reasons.ALIAS_INVALID),
        (publish("", 0), reasons.ALIAS_INVALID),
        (publish("t", 33), reasons.ALIAS_INVALID),
        (publish("t", 65_535), reasons.ALIAS_INVALID),
        (publish("", 7), reasons.PROTOCOL_ERROR),  # nothing was said about 7
        (publish("", None), reasons.PROTOCOL_ERROR),
        (publish("a/+", 7), reasons.MALFORMED),
        (publish("t", 7, bytes((props.ALIAS,)) + u16(7)), reasons.PROTOCOL_ERROR),  # twice
    ],
)
def test_a_wrong_topic_alias_ends_the_connection_with_its_reason(sent, reason):
    desk = Desk()
    client = desk.welcome()
    client.raw(sent)
    assert client.take(p.Disconnect).reason == reason
    assert client.closed is not None
    still_works(desk)


def test_an_alias_is_of_one_connection_and_of_topics_that_were_taken():
    desk = Desk()
    reader = desk.welcome("reader")
    reader.subscribe("#")
    reader.got.clear()
    client = desk.welcome("c", expiry_s=600)
    client.raw(publish("t", 32) + publish("", 32) + publish("u", 32) + publish("", 32))
    assert [one.topic for one in reader.got] == ["t", "t", "u", "u"]
    client.drop()
    client = desk.welcome("c", clean_start=False, expiry_s=600)
    client.raw(publish("", 32))
    assert client.take(p.Disconnect).reason == reasons.PROTOCOL_ERROR
    still_works(desk)


def will(topic: str = "gone/c", **fields: Any) -> p.Will:
    return p.Will(**{"topic": topic, "payload": b"bye", "qos": 1, "retain": False, **fields})


@pytest.mark.parametrize("version", [p.V5, p.V311])
@pytest.mark.parametrize("topic", ["$SYS/x", "$mqtt/ask", "a/#", "+", "", "/".join("x" * (LEVELS_MAX + 1)), "x" * 600])
def test_a_will_on_a_topic_that_is_not_carried_is_refused_at_connect(topic, version):
    desk = Desk()
    client = desk.connect("c", version, will=will(topic))
    if version == p.V5:
        assert client.take(p.ConnAck).reason == reasons.TOPIC_INVALID
    else:
        assert not client.got  # 3.1.1 has no word for it
    assert client.closed == reasons.name(reasons.TOPIC_INVALID)
    assert not desk.host.sessions
    still_works(desk)


def test_a_will_with_more_properties_than_a_message_may_have_is_refused_at_connect():
    desk = Desk()
    client = desk.open()
    many = tuple((f"n{number}", "v") for number in range(props.USER_PROPERTIES_MAX + 1))
    client.raw(
        encode(p.V5, p.Connect(version=p.V5, client="c", clean_start=True, will=will(content=p.Content(user=many))))
    )
    assert client.take(p.ConnAck).reason == reasons.QUOTA
    client = desk.open()
    large = tuple((f"n{number}", "v" * 60_000) for number in range(5))
    hello = p.Connect(version=p.V5, client="c", clean_start=True, will=will(content=p.Content(user=large)))
    client.raw(encode(p.V5, hello))
    assert not client.got  # it is not read, so nobody knows which MQTT it speaks
    assert client.closed == reasons.name(reasons.TOO_LARGE)
    still_works(desk)


def test_a_will_with_a_property_that_belongs_elsewhere_is_malformed():
    desk = Desk()
    client = desk.open()
    found = bytes((props.ALIAS,)) + u16(1)
    body = [
        b"\x00\x04MQTT",
        bytes((5, 0x06)),
        u16(0),
        b"\x00",
        text("c"),
        varint(len(found)) + found,
        text("t"),
        u16(0),
    ]
    client.raw(packet(p.CONNECT << 4, *body))
    assert client.take(p.ConnAck).reason == reasons.PROTOCOL_ERROR
    still_works(desk)


def test_the_largest_will_that_is_taken_is_published():
    desk = Desk()
    reader = desk.welcome("reader")
    reader.subscribe("gone/#")
    reader.got.clear()
    content = p.Content(user=tuple((f"n{number}", "v" * 800) for number in range(props.USER_PROPERTIES_MAX)))
    client = desk.welcome("c", will=will(payload=b"x" * 60_000, content=content))
    client.drop()
    (found,) = [one for one in reader.got if isinstance(one, p.Publish)]
    assert found.content == content
    still_works(desk)


def test_wills_of_all_clients_take_no_more_memory_than_is_allowed(monkeypatch):
    monkeypatch.setattr(connections, "WILLS_BYTES_MAX", 100_000)
    desk = Desk()
    answers = []
    for number in range(10):
        late = will(payload=b"x" * 30_000, delay_s=600)
        client = desk.connect(f"c{number}", expiry_s=600, will=late)
        answers.append(client.take(p.ConnAck).reason)
        if not answers[-1]:
            client.drop()  # the will waits
    assert answers == [0] * 3 + [reasons.QUOTA] * 7
    desk.pass_time(700_000)
    assert desk.host.counters["wills"] == 3
    assert desk.connect("again", will=will(payload=b"x" * 30_000)).take(p.ConnAck).reason == 0
    still_works(desk)


def test_a_will_for_which_there_is_no_room_is_counted():
    desk = Desk(retained_max=1)
    desk.welcome("first").publish("full", b"x", retain=True)
    client = desk.welcome("c", will=will(retain=True))
    client.drop()
    assert (desk.host.counters["wills"], desk.host.counters["wills refused"]) == (1, 1)
    still_works(desk)
