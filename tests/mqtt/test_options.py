"""Options that limit what clients may do: versions, QoS, retained messages, size of payloads."""

from __future__ import annotations

import pytest

from mqtt.desk import Desk
from trellis.errors import InputError
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig

BOTH = pytest.mark.parametrize("version", [p.V5, p.V311])


def test_a_client_of_a_version_that_the_listener_does_not_speak_is_refused():
    desk = Desk(versions=("3.1.1",))
    assert desk.connect(version=p.V5).take(p.ConnAck).reason == reasons.VERSION
    assert desk.connect(version=p.V31).take(p.ConnAck).reason == 1
    assert desk.connect(version=p.V311).take(p.ConnAck).reason == 0


@BOTH
def test_a_payload_above_the_limit_reaches_nobody_and_the_client_stays(version):
    desk = Desk(payload_bytes_max=3)
    reader, writer = desk.welcome("reader"), desk.welcome("writer", version)
    reader.subscribe("t")
    reader.got.clear()
    for payload in (b"abc", b"abcd"):
        writer.publish("t", payload)
        writer.publish("t", payload, qos=1, id=1)
        code = reasons.QUOTA if len(payload) > 3 and version == p.V5 else 0
        assert writer.take(p.Ack).reason == code
    assert reader.payloads() == [b"abc", b"abc"]
    assert writer.closed is None
    will = p.Will(topic="t", payload=b"abcd", qos=0, retain=False)
    refused = desk.connect("third", version, will=will).take(p.ConnAck)
    assert refused.reason == (reasons.TOO_LARGE if version == p.V5 else 5)


@BOTH
def test_a_qos_above_the_greatest_one_ends_the_connection_and_a_subscription_gets_less(version):
    desk = Desk(qos_max=1)
    talker = desk.connect("c", version)
    assert talker.take(p.ConnAck).qos_max == (1 if version == p.V5 else None)
    assert talker.subscribe(p.Asked("t", 2)) == (1,)
    talker.publish("t", qos=2, id=1)
    assert talker.closed == "qos unsupported"
    will = p.Will(topic="t", payload=b"", qos=2, retain=False)
    refused = desk.connect("c", version, will=will)
    assert refused.closed == "qos unsupported"
    assert Desk().connect().take(p.ConnAck).qos_max is None


@BOTH
def test_without_retained_messages_a_client_can_neither_publish_nor_get_them(version):
    desk = Desk(retain_available=False)
    talker = desk.connect("c", version)
    assert talker.take(p.ConnAck).retain_available == (version != p.V5)
    talker.publish("t", qos=1, id=1, retain=True)
    assert talker.closed == "retain unsupported"
    will = p.Will(topic="t", payload=b"", qos=0, retain=True)
    assert desk.connect("c", version, will=will).closed == "retain unsupported"
    desk.host.state.config = MqttConfig(listen="127.0.0.1:0")  # as if another node had one
    desk.welcome("c").publish("t", retain=True)
    desk.host.state.config = MqttConfig(listen="127.0.0.1:0", retain_available=False)
    reader = desk.welcome("reader")
    reader.subscribe("t")
    assert not reader.payloads()


@pytest.mark.parametrize("wrong", [{"qos_max": 3}, {"qos_max": -1}, {"versions": ()}, {"payload_bytes_max": -1}])
def test_a_limit_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InputError):
        MqttConfig(listen="127.0.0.1:0", **wrong)
