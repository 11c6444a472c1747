"""The sidecar's relay and what it learns from a broker's log, without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.learn import SubscriptionLog


def bridge(is_up: bool = True, **fields: Any) -> Bridge:
    one = Bridge("trellis-n", MqttConfig(broker="mqtt://b", **fields))
    if is_up:
        up(one, False)
    return one


def up(one: Bridge, session_present: bool, receive_max: int | None = None) -> None:
    one.up(p.ConnAck(reason=0, session_present=session_present, receive_max=receive_max))
    one.to_broker = [packet for packet in one.to_broker if not isinstance(packet, p.Subscribe)]


def message(number: int, payload: bytes = b"x", **fields: Any) -> p.Publish:
    return p.Publish(topic="t", payload=payload, qos=1, id=number, **fields)


def test_a_broker_is_acknowledged_after_the_mesh():
    one = bridge()
    one.from_broker(message(7))
    assert one.to_host == [message(7)]
    assert not one.to_broker
    one.from_host(p.Ack(p.PUBACK, 7), 0)
    assert one.to_broker == [p.Ack(p.PUBACK, 7)]


def test_it_takes_in_what_is_published_from_the_moment_at_which_the_broker_has_its_filters():
    one = bridge()
    assert one.is_up
    assert not one.is_taking
    one.from_broker(p.SubAck(1, (1,)))
    assert one.is_taking
    one.down()
    assert not one.is_taking
    up(one, session_present=True)
    assert one.is_taking  # the session has kept them


def test_what_bears_an_identity_does_not_enter():
    one = bridge()
    one.from_broker(message(7, content=p.Content(user=(("trellis-id", "a/1/2"),))))
    assert not one.to_host
    assert one.to_broker == [p.Ack(p.PUBACK, 7)]


def test_what_is_sent_again_while_the_mesh_is_at_it_enters_once():
    one = bridge()
    one.from_broker(message(7))
    one.down()
    up(one, True)
    one.from_broker(message(7, dup=True))
    assert len(one.to_host) == 1
    one.from_host(p.Ack(p.PUBACK, 7), 0)
    assert one.to_broker == [p.Ack(p.PUBACK, 7)]


def test_what_is_sent_again_because_an_acknowledgement_was_lost_enters_once():
    one = bridge()
    one.from_broker(message(7))
    one.down()
    one.from_host(p.Ack(p.PUBACK, 7), 0)  # nobody hears it
    up(one, True)
    one.from_broker(message(7, dup=True))
    assert len(one.to_host) == 1
    assert one.to_broker == [p.Ack(p.PUBACK, 7)]


def test_another_message_under_an_old_identifier_is_not_taken_for_a_repetition():
    one = bridge()
    one.from_broker(message(7))
    one.from_host(p.Ack(p.PUBACK, 7), 0)
    one.down()
    up(one, True)
    one.from_broker(message(7, b"new", dup=True))
    assert [packet.payload for packet in one.to_host] == [b"x", b"new"]


def test_a_broker_that_sends_more_than_our_receive_maximum_waits_for_the_mesh():
    """Mosquitto 2.0.11 does. Only what is in the mesh and not acknowledged to the broker can come twice."""
    one = bridge(inflight_max=2)
    for number in (1, 2, 3, 4):
        one.from_broker(message(number))
    assert [packet.id for packet in one.to_host] == [1, 2]
    assert one.is_full
    one.from_host(p.Ack(p.PUBACK, 2), 0)
    assert [packet.id for packet in one.to_host] == [1, 2, 3]
    one.down()
    up(one, True)
    for number in (1, 3, 4):
        one.from_broker(message(number, dup=True))
    assert [packet.id for packet in one.to_host] == [1, 2, 3]
    one.from_host(p.Ack(p.PUBACK, 1), 0)
    assert [packet.id for packet in one.to_host] == [1, 2, 3, 4]
    one.check()


def test_identifiers_of_a_lost_session_mean_nothing():
    one = bridge()
    one.from_broker(message(7))
    one.down()
    up(one, False)
    one.from_broker(message(7, b"of the new session"))
    assert [packet.payload for packet in one.to_host] == [b"x", b"of the new session"]


def test_what_the_mesh_does_not_take_now_is_offered_again_and_not_acknowledged():
    one = bridge()
    one.from_broker(message(7))
    one.from_host(p.Ack(p.PUBACK, 7, reasons.IMPLEMENTATION), 0)
    one.tick(500)
    assert not one.to_broker
    assert len(one.to_host) == 1
    one.tick(1_000)
    assert one.to_host == [message(7), message(7)]
    one.from_host(p.Ack(p.PUBACK, 7), 1_100)
    assert one.to_broker == [p.Ack(p.PUBACK, 7)]
    one.check()


def test_what_the_mesh_never_takes_is_acknowledged_and_counted():
    one = bridge()
    one.from_broker(message(7))
    one.from_host(p.Ack(p.PUBACK, 7, reasons.TOPIC_INVALID), 0)
    assert one.to_broker == [p.Ack(p.PUBACK, 7)]
    assert one.counters["not carried"] == 1


def test_no_more_is_under_way_than_the_broker_takes_and_it_comes_again_in_order():
    one = bridge(is_up=False)
    up(one, False, receive_max=2)
    for number in (1, 2, 3):
        one.from_host(message(number), 0)
    assert [packet.id for packet in one.to_broker] == [1, 2]
    one.down()
    assert not one.to_broker
    up(one, True, receive_max=2)
    assert [(packet.id, packet.dup) for packet in one.to_broker] == [(1, True), (2, True)]
    one.from_broker(p.Ack(p.PUBACK, 1))
    assert one.to_host == [p.Ack(p.PUBACK, 1)]
    assert one.to_broker[-1] == message(3)


def test_a_broker_that_sends_more_than_it_was_told_is_not_read_for_a_while():
    one = bridge(inflight_max=2)
    for number in (1, 2, 3, 4):
        assert not one.is_full
        one.from_broker(message(number))
    assert one.is_full
    one.from_host(p.Ack(p.PUBACK, 1), 0)
    assert not one.is_full


def test_without_a_broker_qos_0_is_dropped_and_counted():
    one = bridge(is_up=False)
    one.from_host(p.Publish(topic="t", payload=b""), 0)
    assert one.counters["dropped"] == 1


def log(*lines: tuple[str, str]) -> list[tuple[list[str], list[str]]]:
    one = SubscriptionLog("trellis-n")
    return [one.heard(f"$SYS/broker/log/{kind}", line) for kind, line in lines]


def test_a_filter_is_wanted_while_somebody_holds_it():
    assert log(
        ("M/subscribe", "1794814033: a 0 x/+"),
        ("M/subscribe", "1794814033: b 1 x/+"),
        ("M/subscribe", "b 1 with blanks/#"),
        ("M/unsubscribe", "1794814033: a x/+"),
        ("M/unsubscribe", "1794814033: a never"),
        ("M/unsubscribe", "1794814033: b x/+"),
    ) == [(["x/+"], []), ([], []), (["with blanks/#"], []), ([], []), ([], []), ([], ["x/+"])]


@pytest.mark.parametrize(("flags", "is_left"), [("p2, c1, k60", True), ("p2, c0, k60", False), ("p5, c1, k60", False)])
def test_only_the_end_of_a_session_that_surely_ends_is_believed(flags, is_left):
    found = log(
        ("N", f"1794814033: New client connected from 127.0.0.1:52184 as my name ({flags})."),
        ("M/subscribe", "1794814033: x 0 other"),
        ("M/subscribe", "1794814033: my 0 never"),
        ("N", "1794814035: Client my name disconnected."),
    )
    assert found[3] == ([], [])
    found = log(
        ("N", f"1794814033: New client connected from 127.0.0.1:52184 as a ({flags}, u'ann')."),
        ("M/subscribe", "1794814033: a 0 t"),
        ("N", "1794814035: Client a closed its connection."),
    )
    assert found[2] == ([], ["t"] if is_left else [])


def test_a_shared_subscription_wants_what_it_shares_and_the_server_s_topics_nothing():
    assert log(
        ("M/subscribe", "1: a 0 $share/group/x/#"),
        ("M/subscribe", "1: a 0 $SYS/#"),
        ("M/subscribe", "1: trellis-n 1 #"),
        ("M/subscribe", "nonsense"),
    ) == [(["x/#"], []), ([], []), ([], []), ([], [])]


def test_what_is_learned_becomes_a_wish_of_the_node():
    one = bridge(learn=True, want=("kept",))
    for kind, line in (("subscribe", "a 0 x/#"), ("subscribe", "a 0 kept"), ("unsubscribe", "a x/#"),
                       ("unsubscribe", "a kept")):  # fmt: skip
        one.from_broker(p.Publish(topic=f"$SYS/broker/log/M/{kind}", payload=line.encode()))
    asked = [packet for packet in one.to_host if isinstance(packet, p.Subscribe)]
    assert [each.filter for packet in asked for each in packet.asked] == ["x/#", "kept"]
    assert all(each.no_local for packet in asked for each in packet.asked)
    assert [packet for packet in one.to_host if isinstance(packet, p.Unsubscribe)] == [p.Unsubscribe(1, ("x/#",))]
