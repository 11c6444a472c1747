"""The codec: what it writes it reads, what is malformed is one error, and a second codec agrees."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqtt.packets_drawn import packets
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing, answered_in, version_of
from trellis.protocols.mqtt.primitives import PacketError

VERSIONS = st.sampled_from(p.VERSIONS)
OF = {version: packets(version) for version in p.VERSIONS}
DRAWN = st.one_of([st.tuples(st.just(version), one) for version, one in OF.items()])
SEVERAL = st.one_of([st.tuples(st.just(version), st.lists(one, max_size=4)) for version, one in OF.items()])


def read(version: int, data: bytes, bytes_max: int = 1 << 20) -> list[p.Packet]:
    framing = Framing(bytes_max)
    framing.feed(data)
    return [decode(version, first, body) for first, body in framing.packets()]


@given(DRAWN)
def test_what_is_written_reads_the_same(drawn):
    version, packet = drawn
    assert read(version, encode(version, packet)) == [packet]


@given(SEVERAL, st.integers(1, 9))
@settings(max_examples=30)
def test_however_a_stream_is_cut_into_pieces_its_packets_are_the_same(drawn, size):
    version, several = drawn
    data = b"".join(encode(version, one) for one in several)
    framing, found = Framing(1 << 20), []
    for start in range(0, len(data), size):
        framing.feed(data[start : start + size])
        found += [decode(version, first, body) for first, body in framing.packets()]
    assert found == several
    assert not len(framing)


@given(DRAWN)
def test_the_other_codec_reads_what_we_write(drawn):
    mqtt5 = pytest.importorskip("mqtt5", reason="the mqtt5 package is not installed")
    version, packet = drawn
    if version == p.V5:
        data = encode(version, packet)
        theirs, count = mqtt5.read(memoryview(data))
        assert count == len(data)
        again = read(version, theirs.write())
        if isinstance(packet, p.Connect | p.ConnAck):  # they write defaults in their own way
            assert type(again[0]) is type(packet)
        elif not (isinstance(packet, p.Ack | p.Disconnect)):
            assert again == [packet]


@given(VERSIONS, st.integers(0, 255), st.binary(max_size=64))
@example(5, 0x30, b"\x00\x02\xff\xfe\x00ab")
@example(5, 0x30, b"\x00\x03\xed\xa0\x80\x00")
def test_any_bytes_are_a_packet_or_one_error(version, first, body):
    with suppress(PacketError):
        decode(version, first, body)


@given(DRAWN, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=3), st.integers(0, 9))
@settings(max_examples=150)
def test_a_damaged_packet_is_a_packet_or_one_error(drawn, damages, cut):
    version, packet = drawn
    data = bytearray(encode(version, packet))
    for at, value in damages:
        data[at % len(data)] = value
    with suppress(PacketError):
        read(version, bytes(data[: len(data) - cut]), 4_096)
        version_of(data[0], bytes(data[2:]))


@pytest.mark.parametrize("length", [b"\xff\xff\xff\x7f", b"\x80\x80\x80\x01", b"\xe8\x07"])
def test_a_packet_over_the_limit_is_refused_by_its_length_alone(length):
    framing = Framing(1_000)
    framing.feed(b"\x30" + length)
    with pytest.raises(PacketError) as error:
        list(framing.packets())
    assert error.value.reason == reasons.TOO_LARGE


MALFORMED = {
    "[MQTT-1.5.4-1] text that is not UTF-8": (5, 0x30, b"\x00\x02\xc3\x28\x00"),
    "[MQTT-1.5.4-1] a surrogate": (4, 0x30, b"\x00\x03\xed\xa0\x80"),
    "[MQTT-1.5.4-2] U+0000": (4, 0x30, b"\x00\x01\x00"),
    "[MQTT-2.1.3-1] reserved flags": (4, 0xC1, b""),
    "[MQTT-2.1.3-1] PUBREL without its flag": (4, 0x60, b"\x00\x01"),
    "[MQTT-2.1.3-1] SUBSCRIBE without its flag": (4, 0x80, b"\x00\x01\x00\x01a\x00"),
    "[MQTT-2.2.1-3] packet identifier 0": (4, 0x32, b"\x00\x01a\x00\x00"),
    "[MQTT-3.1.2-3] CONNECT's reserved flag": (4, 0x10, b"\x00\x04MQTT\x04\x03\x00\x00\x00\x01a"),
    "[MQTT-3.1.2-11] will QoS without a will": (4, 0x10, b"\x00\x04MQTT\x04\x0a\x00\x00\x00\x01a"),
    "[MQTT-3.1.2-12] will QoS 3": (4, 0x10, b"\x00\x04MQTT\x04\x1e\x00\x00\x00\x01a\x00\x01w\x00\x00"),
    "[MQTT-3.1.2-13] will retain without a will": (4, 0x10, b"\x00\x04MQTT\x04\x22\x00\x00\x00\x01a"),
    "[3.1.1 MQTT-3.1.2-22] password without user": (4, 0x10, b"\x00\x04MQTT\x04\x42\x00\x00\x00\x01a\x00\x00"),
    "[MQTT-3.3.1-2] DUP with QoS 0": (4, 0x38, b"\x00\x01a"),
    "[MQTT-3.3.1-4] QoS 3": (4, 0x36, b"\x00\x01a\x00\x01"),
    "[MQTT-3.8.3-2] SUBSCRIBE without filters": (4, 0x82, b"\x00\x01"),
    "[MQTT-3.8.3-5] reserved options": (5, 0x82, b"\x00\x01\x00\x00\x01a\x40"),
    "[MQTT-3.8.3-5] QoS 3 asked for": (5, 0x82, b"\x00\x01\x00\x00\x01a\x03"),
    "retain handling 3": (5, 0x82, b"\x00\x01\x00\x00\x01a\x30"),
    "[3.1.1 MQTT-3-8.3-4] options of 5": (4, 0x82, b"\x00\x01\x00\x01a\x04"),
    "[MQTT-3.10.3-2] UNSUBSCRIBE without filters": (4, 0xA2, b"\x00\x01"),
    "a property twice": (5, 0x30, b"\x00\x01a\x04\x01\x01\x01\x01"),
    "a property of another packet": (5, 0x30, b"\x00\x01a\x05\x11\x00\x00\x00\x01"),
    "topic alias 0": (5, 0x30, b"\x00\x01a\x03\x23\x00\x00"),
    "receive maximum 0": (5, 0x10, b"\x00\x04MQTT\x05\x02\x00\x00\x03\x21\x00\x00\x00\x01a"),
    "properties longer than the packet": (5, 0x30, b"\x00\x01a\x7f\x01"),
    "bytes after the end": (4, 0x40, b"\x00\x01\x00"),
    "AUTH in 3.1.1": (4, 0xF0, b""),
    "packet type 0": (5, 0x00, b""),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_packet_is_refused(case):
    with pytest.raises(PacketError):
        decode(*MALFORMED[case])


def test_a_length_has_no_more_bytes_than_it_needs():
    framing = Framing(1_000)
    framing.feed(b"\xc0\x80\x00")
    with pytest.raises(PacketError):  # [MQTT-1.5.5-1]
        list(framing.packets())


@pytest.mark.parametrize(
    ("first", "body", "reason"),
    [
        (0x30, b"\x00\x01a", reasons.PROTOCOL_ERROR),
        (0x10, b"\x00\x06MQIsdp\x04\x02\x00\x00\x00\x01a", reasons.VERSION),
        (0x10, b"\x00\x06MQIsdp\x05\x02\x00\x00\x00\x01a", reasons.VERSION),
        (0x10, b"\x00\x06MQIsdp", reasons.PROTOCOL_ERROR),
        (0x10, b"\x00\x04MQTT\x03\x02\x00\x00\x00\x01a", reasons.VERSION),
        (0x10, b"\x00\x04HTTP\x04", reasons.PROTOCOL_ERROR),
        (0x10, b"", reasons.PROTOCOL_ERROR),
    ],
)
def test_a_stream_begins_with_a_connect_of_mqtt(first, body, reason):
    with pytest.raises(PacketError) as error:
        version_of(first, body)
    assert error.value.reason == reason


@pytest.mark.parametrize(("version", "form"), [(3, 3), (4, 4), (5, 5), (2, 5), (6, 5), (0x83, 4), (0x84, 4)])
def test_an_unknown_version_is_answered_in_the_newest_form_and_a_bridge_in_that_of_311(version, form):
    assert answered_in(version) == form
