"""Clients of MQTT 3.1: the protocol's name is MQIsdp, its version 3."""

from __future__ import annotations

import pytest

from mqtt.desk import Desk, Talker
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.primitives import PacketError

NAME = b"\x00\x06MQIsdp\x03"


def connect(desk: Desk, flags: int, rest: bytes) -> Talker:
    """A CONNECT by hand: its flags, a keep alive of 60 s, and what follows."""
    talker = desk.open(p.V31)
    body = NAME + bytes((flags,)) + b"\x00\x3c" + rest
    talker.raw(bytes((0x10, len(body))) + body)
    return talker


def test_a_client_of_3_1_connects_subscribes_and_publishes():
    desk = Desk()
    client = connect(desk, 0x02, b"\x00\x01c")
    assert client.take(p.ConnAck) == p.ConnAck(reason=0)
    assert client.subscribe(p.Asked("a/#", 2)) == (2,)
    client.got.clear()
    client.publish("a/b", b"one", qos=1, id=1)
    assert sorted(type(one).__name__ for one in client.got) == ["Ack", "Publish"]
    client.got.clear()
    desk.welcome("other").publish("a/c", b"two", qos=2, id=1)
    (one,) = client.got
    assert (one.topic, one.qos) == ("a/c", 2)
    client.send(p.Ack(p.PUBREC, one.id))
    assert client.got.pop() == p.Ack(p.PUBREL, one.id)
    client.send(p.Disconnect())
    assert client.closed == ""


def test_a_session_goes_on_and_connack_has_no_word_for_it():
    """The byte that says so in 3.1.1 is unused in 3.1."""
    desk = Desk()
    first = desk.welcome("c", p.V31, clean_start=False)
    first.subscribe("a")
    first.drop()
    desk.welcome("other").publish("a", b"missed", qos=1, id=1)
    again = desk.connect("c", p.V31, clean_start=False)
    assert again.take(p.ConnAck) == p.ConnAck(reason=0, session_present=False)
    assert again.payloads() == [b"missed"]


def test_a_client_needs_a_name_and_may_have_one_of_more_than_23_letters():
    desk = Desk()
    for is_clean in (True, False):
        client = desk.connect("", p.V31, clean_start=is_clean)
        assert client.take(p.ConnAck).reason == 2  # identifier rejected
        assert client.closed == reasons.name(reasons.CLIENT_ID)
    desk.welcome("x" * 512, p.V31)
    assert desk.connect("x" * 513, p.V31).take(p.ConnAck).reason == 2


@pytest.mark.parametrize(
    ("flags", "rest", "expected"),
    [
        (0xC2, b"\x00\x01c", (None, None)),
        (0xC2, b"\x00\x01c\x00\x01u", ("u", None)),
        (0xC2, b"\x00\x01c\x00\x01u\x00\x01p", ("u", b"p")),
        (0x82, b"\x00\x01c", (None, None)),
    ],
)
def test_a_user_and_a_password_may_be_missing_though_flags_announce_them(flags, rest, expected):
    """The length of the packet counts for more than the flags."""
    packet = decode(p.V31, 0x10, NAME + bytes((flags,)) + b"\x00\x3c" + rest)
    assert isinstance(packet, p.Connect)
    assert (packet.user, packet.password) == expected
    with pytest.raises(PacketError):  # not so in 3.1.1, if anything is missing
        decode(p.V311, 0x10, b"\x00\x04MQTT\x04" + bytes((flags,)) + b"\x00\x3c" + rest[: 3 + 3 * (len(rest) > 6)])


def test_a_client_whose_password_is_missing_is_refused_where_passwords_are_wanted():
    desk = Desk(users={"u": b"p"})
    assert connect(desk, 0xC2, b"\x00\x01c\x00\x01u").take(p.ConnAck).reason == 5
    assert connect(desk, 0xC2, b"\x00\x01c\x00\x01u\x00\x01p").take(p.ConnAck).reason == 0


def test_bits_that_are_unused_in_3_1_are_not_looked_at():
    desk = Desk()
    client = connect(desk, 0x3B, b"\x00\x01c")  # the reserved flag; QoS and RETAIN of a will that is not there
    assert client.take(p.ConnAck).reason == 0
    client.raw(b"\x8a\x06\x00\x01\x00\x01a\x01")  # SUBSCRIBE with DUP
    assert client.take(p.SubAck).reasons == (1,)
    client.raw(b"\x38\x04\x00\x01ax")  # PUBLISH with DUP and QoS 0
    assert client.payloads() == [b"x"]
    client.raw(b"\xc1\x00")  # PINGREQ with RETAIN
    assert isinstance(client.take(), p.PingResp)
    client.publish("a", qos=2, id=7)
    client.got.clear()
    client.raw(b"\x6a\x02\x00\x07")  # PUBREL with DUP
    assert client.take(p.Ack) == p.Ack(p.PUBCOMP, 7)
    assert client.closed is None


def test_a_will_is_published():
    desk = Desk()
    reader = desk.welcome("reader")
    reader.subscribe("gone/+")
    reader.got.clear()
    client = connect(desk, 0x0E, b"\x00\x01c\x00\x06gone/c\x00\x03bye")
    assert client.take(p.ConnAck).reason == 0
    client.drop()
    assert reader.payloads() == [b"bye"]


def test_a_refused_subscription_is_0x80_and_a_refused_publication_on_a_topic_of_the_server_is_acknowledged():
    desk = Desk()
    client = desk.welcome("c", p.V31)
    assert client.subscribe("$other/x", "ok") == (0x80, 1)
    client.got.clear()
    client.publish("$SYS/x", qos=1, id=1)
    assert client.take(p.Ack) == p.Ack(p.PUBACK, 1)
