"""Answers of a node that clients know from Mosquitto, and the strictness behind them."""

from __future__ import annotations

import pytest

from mqtt.desk import Desk, Talker
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import properties as props
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.primitives import binary, packet, text, u16, varint

BOTH = pytest.mark.parametrize("version", [p.V5, p.V311])


def ended(talker: Talker) -> int:
    """Return the reason of the DISCONNECT that is all that the client gets."""
    (last,) = talker.got
    assert isinstance(last, p.Disconnect)
    return last.reason


def subscribed(qos: int, **fields: object) -> tuple[Desk, Talker, int]:
    """Return a client that has got a message with this QoS, and the message's identifier."""
    desk = Desk(**fields)
    talker, writer = desk.welcome("reader"), desk.welcome("writer")
    talker.subscribe(p.Asked("t", qos))
    talker.got.clear()
    writer.publish("t", qos=2, id=1)
    number = talker.take(p.Publish).id
    assert number is not None
    return desk, talker, number


# Packets out of place


@pytest.mark.parametrize("kind", [p.CONNACK, p.SUBACK, p.UNSUBACK, p.PINGRESP, p.AUTH])
def test_a_packet_that_clients_never_send_is_refused_before_its_body_is_read(kind):
    talker = Desk().welcome()
    talker.raw(packet(kind << 4, b"\xff\xff\xff\xff\xff"))
    assert ended(talker) == reasons.PROTOCOL_ERROR


def test_packet_type_0_is_refused_before_its_length_is_known():
    talker = Desk().welcome()
    talker.raw(b"\x0a")
    assert ended(talker) == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("qos", [1, 2])
@BOTH
def test_an_acknowledgement_of_another_kind_than_the_message_needs_ends_the_connection(qos, version):
    desk = Desk()
    talker, writer = desk.welcome("reader", version), desk.welcome("writer")
    talker.subscribe(p.Asked("t", qos))
    talker.got.clear()
    writer.publish("t", qos=2, id=1)
    talker.send(p.Ack(p.PUBCOMP, talker.take(p.Publish).id))
    assert talker.closed == "protocol error"
    assert len(talker.got) == (version == p.V5)


def test_a_puback_after_a_pubrec_ends_the_connection():
    _, talker, number = subscribed(2)
    talker.send(p.Ack(p.PUBREC, number))
    assert talker.take(p.Ack).kind == p.PUBREL
    talker.send(p.Ack(p.PUBACK, number))
    assert ended(talker) == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("kind", [p.PUBACK, p.PUBREC, p.PUBCOMP])
def test_a_late_acknowledgement_does_not_end_the_connection(kind):
    talker = Desk().welcome()
    talker.send(p.Ack(kind, 99))
    assert talker.closed is None


@pytest.mark.parametrize(
    ("kind", "reason", "is_right"),
    [
        (p.PUBACK, 0x10, True),
        (p.PUBACK, 0x92, False),
        (p.PUBREC, 0x97, True),
        (p.PUBREC, 0xFF, False),
        (p.PUBREL, 0x92, True),
        (p.PUBREL, 0x80, False),
        (p.PUBCOMP, 0x92, True),
        (p.PUBCOMP, 0x20, False),
    ],
)
def test_an_acknowledgement_has_one_of_its_own_reason_codes(kind, reason, is_right):
    talker = Desk().welcome()
    talker.send(p.Ack(kind, 99, reason))
    assert (talker.closed is None) == is_right
    assert is_right or ended(talker) == reasons.PROTOCOL_ERROR


def test_dup_with_qos_0_makes_a_publish_malformed():
    talker = Desk().welcome()
    talker.raw(packet(p.PUBLISH << 4 | 0x08, text("t"), b"\x00"))
    assert ended(talker) == reasons.MALFORMED


# Properties


@pytest.mark.parametrize(
    ("first", "head", "reason"),
    [
        (p.PUBACK << 4, u16(9) + b"\x00", reasons.PROTOCOL_ERROR),
        (p.DISCONNECT << 4, b"\x00", reasons.PROTOCOL_ERROR),
        (p.PUBLISH << 4, text("t"), reasons.PROTOCOL_ERROR),
        (p.SUBSCRIBE << 4 | 2, u16(9), reasons.MALFORMED),
        (p.UNSUBSCRIBE << 4 | 2, u16(9), reasons.MALFORMED),
    ],
)
def test_a_known_property_in_the_wrong_packet_has_the_reason_that_mosquitto_gives(first, head, reason):
    for found, expected in (
        (bytes((props.ASSIGNED,)) + text("x"), reason),  # known, whole
        (bytes((props.ASSIGNED,)), reasons.MALFORMED),  # its value is missing
        (b"\x7f\x01", reasons.MALFORMED),  # unknown
    ):
        talker = Desk().welcome()
        talker.raw(packet(first, head, varint(len(found)) + found))
        assert ended(talker) == expected


def test_an_empty_response_topic_is_a_protocol_error():
    talker = Desk().welcome()
    talker.publish("t", content=p.Content(response_topic=""))
    assert ended(talker) == reasons.PROTOCOL_ERROR
    will = p.Will(topic="t", payload=b"", qos=0, retain=False, content=p.Content(response_topic=""))
    assert Desk().connect(will=will).take(p.ConnAck).reason == reasons.PROTOCOL_ERROR


# CONNECT


@pytest.mark.parametrize("name", [b"to\0p", b"to\xed\xa0\x80", b"to\x01p", b"to\x7fp"])
def test_a_client_name_with_forbidden_characters_is_an_invalid_client_identifier(name):
    talker = Desk().open()
    talker.raw(packet(p.CONNECT << 4, text("MQTT"), b"\x05\x02", u16(10), b"\x00", binary(name)))
    assert talker.take(p.ConnAck).reason == reasons.CLIENT_ID
    talker = Desk().open(p.V311)
    talker.raw(packet(p.CONNECT << 4, text("MQTT"), b"\x04\x02", u16(10), binary(name)))
    assert not talker.got
    assert talker.closed is not None


@pytest.mark.parametrize(("name", "version"), [("MQTT", 6), ("MQTT", 2), ("MQIsdp", 2)])
def test_an_unknown_version_of_mqtt_is_refused_in_the_form_of_version_5(name, version):
    talker = Desk().open()
    talker.raw(packet(p.CONNECT << 4, text(name), bytes((version, 2)), u16(10), text("c")))
    assert talker.take(p.ConnAck).reason == reasons.VERSION
    assert talker.closed == "version"


@pytest.mark.parametrize("name", ["", "MQT", "MQTTT", "HTTP"])
def test_another_protocol_gets_no_answer(name):
    talker = Desk().open()
    talker.raw(packet(p.CONNECT << 4, text(name), b"\x04\x02", u16(10), text("c")))
    assert not talker.got
    assert talker.closed is not None


def test_a_client_that_accepts_no_packet_as_large_as_connack_is_disconnected_without_a_packet():
    desk = Desk()
    talker = desk.connect(packet_bytes_max=2)
    connack = talker.take(p.ConnAck)  # the driver finds that it is too large
    desk.host.too_large(talker.number, connack)
    desk.carry_out()
    assert not talker.got
    assert talker.closed == "too large"
    assert not desk.host.sessions


def test_a_disconnect_is_never_larger_than_the_client_accepts():
    talker = Desk().welcome(packet_bytes_max=20)
    talker.publish("a/+")
    (told,) = talker.got
    assert told == p.Disconnect(reasons.MALFORMED)
    talker = Desk().welcome(packet_bytes_max=200)
    talker.publish("a/+")
    assert talker.take(p.Disconnect).text


# NO_MATCHING


@pytest.mark.parametrize(("qos", "size", "reason"), [(1, 1, reasons.NO_MATCHING), (2, 1, 0), (1, 100_000, 0)])
def test_a_publisher_is_told_that_nobody_subscribes_in_puback_only_and_only_of_one_publication(qos, size, reason):
    """Not of several parts or copies: another node may have one of them."""
    desk = Desk()
    desk.host.state.payload_bytes_max = 40_000
    desk.acknowledges = False
    talker = desk.welcome()
    talker.publish("t", bytes(size), qos=qos, id=1)
    for number in desk.unanswered:
        desk.host.acknowledged(number, 0)
    desk.carry_out()
    assert talker.take(p.Ack).reason == reason


def test_connack_holds_a_greatest_qos():
    told = p.ConnAck(reason=0, qos_max=1)
    assert bytes((props.QOS_MAX, 1)) in encode(p.V5, told)
