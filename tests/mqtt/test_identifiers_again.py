"""A client that restarted uses its packet identifiers again, while its old publications still wait for the mesh."""

from __future__ import annotations

import pytest

from mqtt.desk import Desk, Talker
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons

VERSIONS = pytest.mark.parametrize("version", [p.V311, p.V5])


def device(desk: Desk, version: int) -> Talker:
    fields = {"expiry_s": 1_000} if version == p.V5 else {}
    return desk.welcome("device", version, clean_start=False, **fields)


def slow_desk(**fields: int) -> tuple[Desk, Talker]:
    """A desk whose mesh acknowledges when it is told to, and a reader."""
    desk = Desk(**fields)
    reader = desk.welcome("reader")
    reader.subscribe("t")
    reader.got.clear()
    desk.acknowledges = False
    return desk, reader


def answers(talker: Talker) -> list[tuple[int, int]]:
    return [(one.kind, one.id) for one in talker.got if isinstance(one, p.Ack)]


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_that_restarted_and_numbers_from_one_again_loses_nothing(version, qos):
    desk, reader = slow_desk()
    first = device(desk, version)
    for number in (1, 2):
        first.publish("t", b"first %d" % number, qos=qos, id=number)
    first.drop()
    second = device(desk, version)
    for number in (1, 2):
        second.publish("t", b"second %d" % number, qos=qos, id=number)
    assert answers(second) == []
    desk.acknowledge()
    assert answers(second) == [({1: p.PUBACK, 2: p.PUBREC}[qos], number) for number in (1, 2)]
    assert reader.payloads() == [b"first 1", b"first 2", b"second 1", b"second 2"]


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publication_that_is_sent_again_with_dup_counts_once(version, qos):
    desk, reader = slow_desk()
    first = device(desk, version)
    first.publish("t", b"once", qos=qos, id=1)
    first.drop()
    second = device(desk, version)
    second.publish("t", b"once", qos=qos, id=1, dup=True)
    desk.acknowledge()
    assert answers(second) == [({1: p.PUBACK, 2: p.PUBREC}[qos], 1)]
    assert reader.payloads() == [b"once"]


def test_with_qos_2_the_same_publication_counts_once_until_it_is_released():
    desk, reader = slow_desk()
    talker = device(desk, p.V5)
    for dup in (False, False, True):
        talker.publish("t", b"once", qos=2, id=1, dup=dup)
        desk.acknowledge()
    assert answers(talker) == [(p.PUBREC, 1)] * 3
    assert reader.payloads() == [b"once"]


@VERSIONS
def test_the_end_of_an_old_publication_is_not_told_as_that_of_the_new_one(version):
    desk, _ = slow_desk()
    talker = device(desk, version)
    talker.publish("t", b"old", qos=1, id=1)
    talker.publish("t", b"new", qos=1, id=1)
    old, new = desk.unanswered
    desk.host.not_acknowledged(old, "no copies")
    desk.carry_out()
    assert talker.closed is None
    assert answers(talker) == []
    desk.host.acknowledged(new)
    desk.carry_out()
    assert answers(talker) == [(p.PUBACK, 1)]


@VERSIONS
def test_publications_that_their_client_has_forgotten_count_against_its_limit(version):
    desk, _ = slow_desk(inflight_max=5)
    talker = device(desk, version)
    for number in range(20):
        if talker.is_read:
            talker.publish("t", b"%d" % number, qos=1, id=1)
    assert len(desk.unanswered) == 6
    assert not talker.is_read
    desk.acknowledge()
    assert talker.is_read


def returned(version, qos, payload, is_answered_while_away):
    """Return a desk, a reader, and a client that is back, whose publication the mesh has acknowledged by now."""
    desk, reader = slow_desk()
    first = device(desk, version)
    first.publish("t", payload, qos=qos, id=1)
    first.drop()
    if is_answered_while_away:
        desk.acknowledge()
    second = device(desk, version)
    desk.acknowledge()
    return desk, reader, second


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_answered_while_away", [False, True])
def test_a_client_that_has_forgotten_a_publication_is_not_told_of_its_end(version, qos, is_answered_while_away):
    """It would take the answer for that of a publication that the node has not read yet."""
    desk, reader, second = returned(version, qos, b"old", is_answered_while_away)
    assert answers(second) == []
    second.publish("t", b"new", qos=qos, id=1)
    assert answers(second) == []
    desk.acknowledge()
    assert answers(second) == [({1: p.PUBACK, 2: p.PUBREC}[qos], 1)]
    assert reader.payloads() == [b"old", b"new"]


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_answered_while_away", [False, True])
def test_a_publication_that_is_sent_again_after_its_end_counts_once(version, qos, is_answered_while_away):
    desk, reader, second = returned(version, qos, b"once", is_answered_while_away)
    second.publish("t", b"once", qos=qos, id=1, dup=True)
    assert answers(second) == [({1: p.PUBACK, 2: p.PUBREC}[qos], 1)]
    assert desk.unanswered == []
    assert reader.payloads() == [b"once"]


@VERSIONS
def test_answers_come_in_the_order_of_the_present_connection(version):
    desk, _ = slow_desk()
    first = device(desk, version)
    first.publish("t", b"1", qos=1, id=1)
    first.publish("t", b"2", qos=1, id=2)
    first.drop()
    second = device(desk, version)
    second.publish("t", b"2", qos=1, id=2, dup=True)
    second.publish("t", b"3", qos=1, id=3)
    desk.acknowledge()
    assert answers(second) == [(p.PUBACK, 2), (p.PUBACK, 3)]
    second.publish("t", b"1", qos=1, id=1, dup=True)
    assert answers(second) == [(p.PUBACK, 2), (p.PUBACK, 3), (p.PUBACK, 1)]


@VERSIONS
def test_the_refusal_of_a_forgotten_publication_does_not_end_the_new_connection(version):
    desk, _ = slow_desk()
    first = device(desk, version)
    first.publish("t", b"old", qos=1, id=1)
    first.drop()
    second = device(desk, version)
    desk.host.not_acknowledged(desk.unanswered.pop(), "no copies")
    desk.carry_out()
    assert second.closed is None
    assert answers(second) == []


@VERSIONS
def test_a_client_that_forgets_at_each_connection_keeps_its_whole_window(version):
    desk, _ = slow_desk(inflight_max=4)
    for connection in range(10):
        talker = device(desk, version)
        for number in range(4):
            talker.publish("t", b"x", qos=1, id=100 * connection + number + 1)
        assert len(desk.unanswered) == 4
        talker.drop()
        desk.acknowledge()
    session = desk.host.state.sessions["device"]
    assert len(session.incoming) + len(session.earlier) <= 8


def test_many_publications_that_wait_for_pubrel_count_once_after_a_reconnection():
    desk, _ = slow_desk(inflight_max=1)
    desk.acknowledges = True
    first = device(desk, p.V311)
    for number in range(1, 11):
        first.publish("t", b"%d" % number, qos=2, id=number)
    first.drop()
    emitted = len(desk.emitted)
    second = device(desk, p.V311)
    for number in range(1, 11):
        second.publish("t", b"%d" % number, qos=2, id=number, dup=True)
    assert answers(second) == [(p.PUBREC, number) for number in range(1, 11)]
    assert len(desk.emitted) == emitted


@VERSIONS
@pytest.mark.parametrize("is_away", [False, True])
def test_a_publication_that_was_refused_before_it_is_sent_again(version, is_away):
    """It may have reached somebody. A client of MQTT 5 is told of the refusal; for others it is tried again."""
    desk, _ = slow_desk()
    first = device(desk, version)
    first.publish("t", b"old", qos=2, id=1)
    first.drop()
    second = None if is_away else device(desk, version)
    desk.host.not_acknowledged(desk.unanswered.pop(), "no copies")
    desk.carry_out()
    second = second or device(desk, version)
    second.publish("t", b"old", qos=2, id=1, dup=True)
    if version == p.V5:
        assert second.take(p.Ack).reason == reasons.IMPLEMENTATION
        assert desk.unanswered == []
    desk.acknowledge()
    assert answers(second) == ([] if version == p.V5 else [(p.PUBREC, 1)])
