"""Messages with QoS 2 to subscribers: each exactly once, also over reconnections."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt.desk import Desk, Talker
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons

VERSIONS = pytest.mark.parametrize("version", [p.V311, p.V5])


def reader(desk: Desk, version: int = p.V5, **fields: int) -> Talker:
    lasting = {"expiry_s": 1_000} if version == p.V5 else {}
    return desk.welcome("reader", version, clean_start=False, **lasting, **fields)


def subscribed(version: int = p.V5, **fields: int) -> tuple[Desk, Talker, Talker]:
    """A desk, a reader with QoS 2, and a writer."""
    desk = Desk(**fields)
    talker = reader(desk, version)
    assert talker.subscribe(p.Asked("t", 2)) == (2,)
    talker.got.clear()
    return desk, talker, desk.welcome("writer")


def write(writer: Talker, *payloads: bytes) -> None:
    for number, payload in enumerate(payloads, 1):
        writer.publish("t", payload, qos=2, id=number)
        writer.send(p.Ack(p.PUBREL, number))


def publishes(talker: Talker) -> list[tuple[int | None, bytes, bool]]:
    found = [(one.id, one.payload, one.dup) for one in talker.got if isinstance(one, p.Publish)]
    talker.got.clear()
    return found


def releases(talker: Talker) -> list[tuple[int, int]]:
    found = [(one.id, one.reason) for one in talker.got if isinstance(one, p.Ack) and one.kind == p.PUBREL]
    talker.got.clear()
    return found


@VERSIONS
def test_a_message_goes_through_all_four_packets(version):
    desk, talker, writer = subscribed(version)
    write(writer, b"x")
    (one,) = [packet for packet in talker.got if isinstance(packet, p.Publish)]
    assert (one.qos, one.payload, one.dup) == (2, b"x", False)
    talker.got.clear()
    talker.send(p.Ack(p.PUBREC, one.id))
    assert releases(talker) == [(one.id, 0)]
    session = desk.host.sessions["reader"]
    assert (list(session.flying), list(session.releasing)) == ([], [one.id])
    talker.send(p.Ack(p.PUBCOMP, one.id))
    assert not session.releasing


def test_the_lower_qos_of_publication_and_subscription_counts():
    _desk, talker, writer = subscribed()
    writer.publish("t", b"zero")
    writer.publish("t", b"one", qos=1, id=1)
    write(writer, b"two")
    assert [one.qos for one in talker.got if isinstance(one, p.Publish)] == [0, 1, 2]


@VERSIONS
def test_after_pubrec_a_reconnection_brings_pubrel_and_never_the_message(version):
    desk, talker, writer = subscribed(version)
    write(writer, b"first", b"second")
    first, second = publishes(talker)
    talker.send(p.Ack(p.PUBREC, first[0]))
    talker.drop()
    talker = reader(desk, version)
    assert [(one.kind, one.id) for one in talker.got if isinstance(one, p.Ack)] == [(p.PUBREL, first[0])]
    assert publishes(talker) == [(second[0], b"second", True)]


def test_an_identifier_is_free_only_after_pubcomp():
    _desk, talker, writer = subscribed(inflight_max=2)
    write(writer, b"1", b"2", b"3")
    one, two = (number for number, _, _ in publishes(talker))
    talker.send(p.Ack(p.PUBREC, one))
    assert releases(talker) == [(one, 0)]
    assert publishes(talker) == []  # two are under way still
    talker.send(p.Ack(p.PUBCOMP, one))
    ((three, payload, _),) = publishes(talker)
    assert payload == b"3"
    assert three not in (one, two)


def test_a_pubrec_that_comes_again_is_answered_again_and_an_unknown_one_as_well_unless_it_refuses():
    _desk, talker, writer = subscribed()
    write(writer, b"x")
    ((number, _, _),) = publishes(talker)
    for _ in range(2):
        talker.send(p.Ack(p.PUBREC, number))
        assert releases(talker) == [(number, 0)]
    talker.send(p.Ack(p.PUBREC, 999))
    assert releases(talker) == [(999, 0)]
    talker.send(p.Ack(p.PUBREC, 999, reasons.QUOTA))
    assert not releases(talker)
    assert talker.closed is None


def test_a_client_that_refuses_a_message_has_room_for_the_next_one():
    _desk, talker, writer = subscribed(inflight_max=1)
    write(writer, b"1", b"2")
    ((number, _, _),) = publishes(talker)
    talker.send(p.Ack(p.PUBREC, number, reasons.QUOTA))
    assert [payload for _, payload, _ in publishes(talker)] == [b"2"]


@pytest.mark.parametrize(("sent", "answered"), [(2, p.PUBACK), (1, p.PUBREC)])
def test_an_acknowledgement_for_another_qos_ends_the_connection(sent, answered):
    _desk, talker, writer = subscribed()
    writer.publish("t", b"x", qos=sent, id=1)
    ((number, _, _),) = publishes(talker)
    talker.send(p.Ack(answered, number))
    assert talker.take(p.Disconnect).reason == reasons.PROTOCOL_ERROR


def test_a_client_that_takes_fewer_than_before_gets_the_same_identifiers_in_turn():
    """It may have stored what it had not answered yet: under other identifiers it would take it for new."""
    desk, talker, writer = subscribed()
    write(writer, b"1", b"2", b"3")
    before = publishes(talker)
    talker.drop()
    talker = reader(desk, receive_max=1)
    found = []
    for _ in range(3):
        ((number, payload, is_dup),) = publishes(talker)
        assert is_dup
        found.append((number, payload, False))
        talker.send(p.Ack(p.PUBREC, number))
        assert releases(talker) == [(number, 0)]
        talker.send(p.Ack(p.PUBCOMP, number))
    assert found == before


class Careful:
    """A client of QoS 2 as the standard wants it: it keeps identifiers over reconnections.  [MQTT-4.3.3-10]"""

    def __init__(self) -> None:
        self.half: set[int] = set()
        self.found: list[bytes] = []

    def take(self, talker: Talker, count: int) -> None:
        """Take in the next packets, and answer them."""
        for _ in range(count):
            if not talker.got or talker.closed is not None:
                return
            packet = talker.got.popleft()
            if isinstance(packet, p.Publish) and packet.qos == 2:
                if packet.id not in self.half:
                    self.found.append(packet.payload)
                self.half.add(packet.id)
                talker.send(p.Ack(p.PUBREC, packet.id))
            elif isinstance(packet, p.Ack) and packet.kind == p.PUBREL:
                self.half.discard(packet.id)
                talker.send(p.Ack(p.PUBCOMP, packet.id))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["write", "take", "take 3", "cut", "lose"]), max_size=40),
    st.integers(1, 4),
    st.sampled_from([p.V311, p.V5]),
)
def test_each_message_comes_once_and_in_order_whenever_the_connection_breaks(steps, window, version):
    desk, talker, writer = subscribed(version, inflight_max=window)
    client, sent = Careful(), []
    for step in steps:
        if step == "write":
            sent.append(b"%d" % len(sent))
            writer.publish("t", sent[-1], qos=2, id=len(sent))
            writer.send(p.Ack(p.PUBREL, len(sent)))
        elif step in ("cut", "lose"):
            if step == "lose":  # what was sent to the client never came
                talker.got.clear()
            talker.drop()
            talker = reader(desk, version)
        else:
            client.take(talker, 1 if step == "take" else 3)
    while talker.got:
        client.take(talker, len(talker.got))
    assert client.found == sent
    session = desk.host.sessions["reader"]
    assert not (session.flying)
    assert not (session.releasing)
    assert not (session.queue)


@pytest.mark.parametrize("inflight_max", [1, 4])
def test_a_client_that_sends_its_pubrel_after_many_publications_is_read_on(inflight_max):
    """3.1.1 has no receive maximum: the client may send many publications before it looks at the first PUBREC."""
    desk = Desk(inflight_max=inflight_max)
    desk.acknowledges = False
    talker = desk.welcome("p", p.V311)
    for number in range(1, 21):
        while not talker.is_read:
            assert desk.unanswered, "the node does not read a client that it waits for"
            desk.acknowledge()
        talker.publish("t", b"%d" % number, qos=2, id=number)
        assert len(desk.unanswered) <= inflight_max
    desk.acknowledge()
    assert talker.is_read
    for number in range(1, 21):
        assert talker.take(p.Ack) == p.Ack(p.PUBREC, number)
    for number in range(1, 21):
        talker.send(p.Ack(p.PUBREL, number))
        assert talker.take(p.Ack) == p.Ack(p.PUBCOMP, number)
    assert not desk.host.state.sessions["p"].unreleased
