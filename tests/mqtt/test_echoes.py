"""A sidecar beside a broker of 3.1.1 that knows no bridges: it gets its own messages back, and tells them apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt.echoing import World
from reference.mqtt import matches
from reference.mqtt311 import PlainBroker
from trellis.errors import InputError
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.disjoint import disjoint, overlap

WINDOW = 4


def plain(**fields: Any) -> MqttConfig:
    given = {"broker_version": "3.1.1", "broker_echo": "match", "inflight_max": WINDOW, **fields}
    return MqttConfig(broker="mqtt://b", **given)


def bridge(session_present: bool = False, **fields: Any) -> Bridge:
    """Its probe has come back."""
    one = Bridge("trellis-n", plain(**fields), "m")
    up(one, session_present)
    return one


def up(one: Bridge, session_present: bool, now_ms: int = 0) -> None:
    one.up(p.ConnAck(reason=0, session_present=session_present), now_ms)
    if not session_present:
        one.from_broker(p.SubAck(1, (1,)))
    probe = one.to_broker[-1]
    assert isinstance(probe, p.Publish)
    assert one.from_broker(p.Ack(p.PUBACK, probe.id))
    one.to_broker.clear()
    come_back(one, probe, 60_000)


def come_back(one: Bridge, probe: p.Publish, number: int) -> None:
    assert one.from_broker(p.Publish(topic=probe.topic, payload=probe.payload, qos=1, id=number))
    assert one.to_broker[:1] == [p.Ack(p.PUBACK, number)]
    del one.to_broker[0]


def message(number: int, payload: bytes = b"x", **fields: Any) -> p.Publish:
    return p.Publish(**{"topic": "t", "payload": payload, "qos": 1, "id": number, **fields})


def given_to(one: Bridge) -> list[bytes]:
    return [packet.payload for packet in one.to_broker if isinstance(packet, p.Publish)]


def offered(one: Bridge) -> list[bytes]:
    return [packet.payload for packet in one.to_host if isinstance(packet, p.Publish)]


# Echoes


def test_it_connects_as_a_plain_client_of_3_1_1():
    assert Bridge("c", plain()).connect(None, None).version == p.V311
    assert Bridge("c", MqttConfig(broker="mqtt://b", broker_version="3.1.1")).connect(None, None).version == 0x84


def test_what_comes_back_is_acknowledged_and_enters_no_mesh():
    one = bridge()
    one.from_host(message(1), 0)
    assert one.to_broker == [message(1)]
    one.from_broker(message(7))
    assert not one.to_host
    assert one.to_broker[-1] == p.Ack(p.PUBACK, 7)
    one.from_broker(message(8))
    assert offered(one) == [b"x"]
    assert one.counters["echoes"] == 1


def test_another_payload_or_topic_is_no_echo():
    one = bridge()
    one.from_host(message(1), 0)
    one.from_broker(message(7, b"y"))
    one.from_broker(message(8, topic="u"))
    assert len(one.to_host) == 2


def test_of_two_that_look_alike_one_enters():
    one = bridge()
    one.from_host(message(1), 0)
    one.from_host(message(2), 0)
    for number in (7, 8, 9):
        one.from_broker(message(number))
    assert len(one.to_host) == 1


def test_an_echo_that_is_sent_again_because_our_acknowledgement_was_lost_counts_once():
    one = bridge()
    one.from_host(message(1), 0)
    one.from_broker(message(7))
    one.from_broker(p.Ack(p.PUBACK, 1))
    one.from_host(message(2), 0)  # alike, and its echo is to come
    one.down()
    one.up(p.ConnAck(reason=0, session_present=True), 0)
    one.from_broker(message(7, dup=True))
    assert len(one.echoes) == 1
    one.from_broker(message(8))
    assert not offered(one)
    assert len(one.echoes) == 0


def test_an_echo_of_the_last_connection_comes_before_the_probe_and_what_was_not_acknowledged_is_published_again():
    one = bridge()
    one.from_host(message(1), 0)  # the broker has it, its PUBACK is lost
    one.from_host(message(2, b"y"), 0)  # lost on its way
    one.down()
    one.up(p.ConnAck(reason=0, session_present=True), 500)
    assert [packet.topic for packet in one.to_broker] == [one.probe]  # nothing else yet
    probe = one.to_broker.pop()
    one.from_broker(message(7))
    one.from_broker(p.Ack(p.PUBACK, probe.id))
    one.to_broker.clear()
    come_back(one, probe, 8)
    assert not one.to_broker  # it was sent too soon after what is missing
    one.tick(1_000)
    probe = one.to_broker.pop()
    come_back(one, probe, 9)
    one.from_broker(p.Ack(p.PUBACK, probe.id))
    assert one.to_broker == [message(1, dup=True), message(2, b"y", dup=True)]
    one.from_broker(message(9))
    one.from_broker(message(10, b"y"))
    assert not offered(one)
    assert one.counters["echoes missing"] == 1


def test_the_last_echo_of_an_old_connection_may_come_after_the_probe():
    """A broker that does not keep the order of topics strictly."""
    one = bridge()
    one.from_host(message(1), 0)
    one.from_broker(p.Ack(p.PUBACK, 1))
    one.down()
    one.from_host(message(2, b"next"), 0)
    one.up(p.ConnAck(reason=0, session_present=True), 500)
    probe = one.to_broker.pop()
    come_back(one, probe, 7)
    assert not one.to_broker
    one.from_broker(message(8))
    assert given_to(one) == [b"next"]
    assert not offered(one)


def test_with_the_session_the_echoes_are_gone():
    one = bridge()
    one.from_host(message(1, topic="other"), 0)
    one.from_broker(p.Ack(p.PUBACK, 1))
    one.down()
    one.up(p.ConnAck(reason=0))
    one.from_broker(message(7, topic="other"))
    assert offered(one) == [b"x"]


def test_a_probe_waits_for_suback():
    """amqtt takes subscriptions and publications in by ways of their own."""
    one = Bridge("trellis-n", plain())
    one.up(p.ConnAck(reason=0))
    (asked,) = one.to_broker
    assert [each.filter for each in asked.asked] == ["#"]
    one.to_broker.clear()
    one.from_broker(p.SubAck(asked.id, (1,)))
    assert [(packet.topic, packet.qos) for packet in one.to_broker] == [("trellis/probe/trellis-n", 1)]


def test_no_more_echoes_are_outstanding_than_inflight_max():
    one = bridge()
    for number in range(1, 10):
        one.from_host(message(number, b"%d" % number), 0)
        one.from_broker(p.Ack(p.PUBACK, number))
    assert len(given_to(one)) == WINDOW
    one.from_broker(message(70, b"1"))
    assert given_to(one)[-1] == b"%d" % (WINDOW + 1)
    one.check()


def test_what_does_not_come_back_is_not_waited_for():
    one = bridge(take=("up/#",))
    for number in range(1, 10):
        one.from_host(message(number), 0)
        one.from_broker(p.Ack(p.PUBACK, number))
    assert len(given_to(one)) == 9
    assert len(one.echoes) == 0


def test_an_echo_that_never_comes_is_given_up_when_a_later_probe_has_come_back():
    one = bridge()
    one.from_host(message(1), 0)
    one.from_broker(p.Ack(p.PUBACK, 1))
    one.to_broker.clear()
    one.tick(900)
    assert not one.to_broker
    one.tick(1_000)
    (probe,) = one.to_broker
    one.from_host(message(2, b"young"), 1_000)  # after the probe
    one.tick(9_000)
    one.to_broker.clear()
    come_back(one, probe, 7)
    assert one.counters["echoes missing"] == 1
    one.from_broker(message(8))
    one.from_broker(message(9, b"young"))
    assert offered(one) == [b"x"]


def test_a_probe_of_an_earlier_life_says_nothing():
    one = Bridge("trellis-n", plain(), "second life")
    one.up(p.ConnAck(reason=0, session_present=True))
    one.from_host(message(1), 0)
    one.from_broker(p.Publish(topic=one.probe, payload=b"first life/1", qos=1, id=7))
    assert given_to(one) == [b"second life/1"]


def test_what_waited_for_a_sidecar_that_died_is_counted():
    one = Bridge("trellis-n", plain(), "second life")
    one.up(p.ConnAck(reason=0, session_present=True))
    one.from_broker(message(7))
    one.from_broker(message(8, dup=True))
    one.from_broker(p.Publish(topic=one.probe, payload=b"second life/1", qos=1, id=9))
    one.from_broker(message(10))
    assert one.counters["perhaps echoes"] == 2


def test_a_session_without_our_filters_is_subscribed_again_and_a_broker_that_sends_nothing_back_is_left():
    one = Bridge("trellis-n", plain())
    one.up(p.ConnAck(reason=0, session_present=True))
    one.from_broker(p.Ack(p.PUBACK, 65_535))
    one.to_broker.clear()
    one.tick(9_800)
    assert not one.to_broker
    one.tick(10_000)
    (asked,) = one.to_broker
    assert isinstance(asked, p.Subscribe)
    one.to_broker.clear()
    one.from_broker(p.SubAck(1, (1,)))
    assert given_to(one) == [b"/2"]
    one.tick(29_000)
    assert not one.leaves
    one.tick(30_000)
    assert one.leaves == "unheard"


def test_a_probe_is_waited_for_as_long_as_the_mesh_holds_up_what_is_before_it():
    one = Bridge("trellis-n", plain())
    one.up(p.ConnAck(reason=0, session_present=True))
    one.from_broker(message(7))
    for now_ms in range(0, 3_600_000, 200):
        one.tick(now_ms)
        one.from_broker(p.Ack(p.PUBACK, 65_535))
    assert not one.leaves
    probes = given_to(one)
    assert 2 < len(probes) < 20  # one may be lost; the first that comes back will do
    assert one.from_broker(p.Publish(topic=one.probe, payload=probes[1], qos=1, id=8))
    assert one.echoes.is_settled
    assert one.from_broker(p.Publish(topic=one.probe, payload=probes[0], qos=1, id=9))  # an old one says nothing


def test_the_packet_identifier_of_a_probe_is_used_once_at_a_time():
    one = bridge()
    one.from_host(message(1), 0)
    one.to_broker.clear()
    one.tick(5_000)
    (probe,) = one.to_broker
    one.from_host(message(probe.id, b"alike in number"), 5_000)
    assert given_to(one) == [probe.payload]
    one.from_broker(p.Ack(p.PUBACK, probe.id))
    assert given_to(one) == [probe.payload, b"alike in number"]
    one.tick(100_000)
    assert len(one.to_broker) == 2  # no probe while that is under way


# Retained messages


def test_what_was_retained_before_the_sidecar_came_stays_local():
    one = bridge()
    one.from_host(message(1), 0)
    one.from_broker(message(7, retain=True))
    assert not offered(one)
    assert len(one.echoes) == 1  # it is no echo
    one.from_broker(message(8))
    assert not offered(one)


def test_amqtt_s_messages_that_waited_are_taken_although_they_look_retained():
    one = bridge(session_present=True)
    one.from_broker(message(7, retain=True))
    assert one.to_host == [message(7)]
    one.from_broker(p.Publish(topic="t", payload=b"old", retain=True))
    assert len(one.to_host) == 1


# Others


@pytest.mark.parametrize("fields", [{"broker_version": "3.1.1"}, {}], ids=str)
def test_a_broker_where_another_sidecar_s_probe_comes_is_left(fields):
    if fields:
        one = Bridge("trellis-n", MqttConfig(broker="mqtt://b", **fields))
        one.up(p.ConnAck(reason=0))
    else:
        one = bridge()
    assert not one.from_broker(p.Publish(topic="trellis/probe/trellis-other", payload=b"1", qos=1, id=7))
    assert one.leaves == "other"
    assert not one.to_host


def test_a_probe_of_another_that_waited_for_us_is_old():
    one = Bridge("trellis-n", plain(), "m")
    one.up(p.ConnAck(reason=0, session_present=True))
    assert one.from_broker(p.Publish(topic="trellis/probe/trellis-other", payload=b"1", qos=1, id=7))
    assert one.from_broker(p.Publish(topic=one.probe, payload=b"m/1", qos=1, id=8))
    assert not one.from_broker(p.Publish(topic="trellis/probe/trellis-other", payload=b"2", qos=1, id=9))


def test_a_probe_from_the_mesh_is_not_given_to_a_broker():
    one = bridge()
    one.from_host(message(1, topic="trellis/probe/trellis-other"), 0)
    assert not one.to_broker
    assert one.to_host == [p.Ack(p.PUBACK, 1)]


def test_the_option_needs_the_version():
    with pytest.raises(InputError, match=r"broker_echo: a broker of MQTT 5 sends no echoes; give broker_version"):
        MqttConfig(broker="mqtt://b", broker_echo="match")


# Filters that do not overlap

levels = st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=3)
topics = levels.map("/".join).filter(bool)
filters = st.tuples(st.lists(st.sampled_from(["a", "b", "", "+"]), min_size=1, max_size=3), st.booleans()).map(
    lambda drawn: "/".join([*drawn[0], *(["#"] if drawn[1] else [])])
)
filters = filters.filter(bool) | st.just("#")


@given(st.lists(filters, max_size=5), st.lists(topics, min_size=1, max_size=8))
def test_what_matches_a_filter_matches_exactly_one_of_the_disjoint_ones(asked, names):
    found = disjoint(asked)
    for topic in names:
        count = sum(matches(one, topic) for one in found)
        assert count <= 1
        assert count == 1 or not any(matches(one, topic) for one in asked)


@given(filters, filters)
def test_two_filters_overlap_where_a_topic_matches_both(first, second):
    """Levels of a third name, and one level more, stand for all others."""
    alphabet = ["a", "b", "", "z"]
    names = [[]]
    every = []
    for _ in range(4):
        names = [[*one, level] for one in names for level in alphabet]
        every += ["/".join(one) for one in names]
    assert overlap(first, second) == any(matches(first, one) and matches(second, one) for one in every)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("#",), ("#",)),
        (("a/+", "+/b"), ("+/+", "trellis/probe/+")),
        (("a/#", "a", "b/c"), ("a/#", "b/c", "trellis/probe/+")),
        (("+/probe/x/#", "c"), ("c", "+/probe/+/#")),
    ],
)
def test_overlapping_filters_become_one_and_what_was_not_asked_for_stays_out(asked, found):
    one = Bridge("trellis-n", plain(take=asked))
    one.up(p.ConnAck(reason=0))
    assert [each.filter for each in one.to_broker[0].asked] == list(found)
    one.from_broker(message(7, topic="z/z"))
    assert bool(offered(one)) == (asked == ("#",))
    assert one.to_broker[-1] == p.Ack(p.PUBACK, 7) or offered(one)


# Whole meshes of plain brokers

kinds = st.sampled_from([{}, {"is_copying": True}, {"is_amqtt": True}, {"denied": "t/1"}])
keys = st.tuples(st.sampled_from(["t/1", "t/2", "u"]), st.sampled_from([b"", b"0", b"1"]))
moves = st.sampled_from(["to broker", "to sidecar", "answer", "tick"])
faults = st.sampled_from(["cut", "connect", "forget", "die"])
takes = st.sampled_from([("#",), ("t/+", "+/1", "u"), ("t/#",)])


def played(data: st.DataObject, allowed: frozenset[str]) -> World:
    """Three sites; clients publish, packets move, connections break, sidecars die; then all comes to rest."""
    brokers = [PlainBroker(**data.draw(kinds)) for _ in range(3)]
    world = World(brokers, plain(take=data.draw(takes), want=("#",)))
    world.settle()
    steps = st.one_of(st.tuples(st.just("publish"), keys), moves, moves, faults.filter(allowed.__contains__))
    steps = steps if allowed else st.one_of(st.tuples(st.just("publish"), keys), moves)
    for step, index in data.draw(st.lists(st.tuples(steps, st.integers(0, 2)), max_size=80)):
        match step:
            case ("publish", (topic, payload)):
                world.publish(index, topic, payload)
            case "to broker":
                world.to_broker(index)
            case "to sidecar":
                world.to_sidecar(index)
            case "answer":
                world.answer(index)
            case "tick":
                world.tick(400)
            case "cut" | "forget":
                world.cut(index, forget=step == "forget")
            case "connect":
                world.connect(index)
            case "die":
                world.die(index)
    world.settle()
    return world


def taken(world: World, index: int) -> Counter:
    """What a site has to take of what its clients published."""
    take = world.config.take
    published = world.published[index]
    return Counter({key: count for key, count in published.items() if any(matches(one, key[0]) for one in take)})


def others(world: World, index: int) -> Counter:
    """What the mesh has for a site, and its broker takes."""
    entered = sum((world.entered[other] for other in range(3) if other != index), Counter())
    return Counter({key: count for key, count in entered.items() if key[0] != world.sites[index].broker.denied})


def assert_all_arrived(world: World) -> None:
    """At least once."""
    for index in range(3):
        assert world.published[index] + others(world, index) <= world.seen(index)


@given(st.data())
def test_without_faults_each_message_enters_once_and_arrives_once_everywhere(data):
    world = played(data, frozenset())
    for index, site in enumerate(world.sites):
        assert world.seen(index) == world.published[index] + others(world, index)
        if not site.broker.denied:
            assert world.entered[index] == taken(world, index)
            assert not site.counters["echoes missing"]


@given(st.data())
def test_when_connections_break_nothing_enters_twice_and_only_what_looks_like_a_lost_echo_is_missed(data):
    """Lost: the sidecar published it, and the broker never had it. Until the probe says so, it is to come back."""
    world = played(data, frozenset({"cut", "connect"}))
    assert_all_arrived(world)
    for index, site in enumerate(world.sites):
        wanted = taken(world, index)
        for key in wanted | world.entered[index]:
            assert wanted[key] - site.broker.lost[key] <= world.entered[index][key] <= wanted[key]


@given(st.data())
def test_a_broker_that_forgets_the_session_makes_nothing_enter_twice(data):
    world = played(data, frozenset({"cut", "connect", "forget"}))
    assert_all_arrived(world)
    for index in range(3):
        assert world.entered[index] <= taken(world, index)


@given(st.data())
def test_when_sidecars_die_there_is_no_loop_and_what_enters_twice_is_bounded_and_counted(data):
    world = played(data, frozenset({"cut", "connect", "die"}))
    for index, site in enumerate(world.sites):
        twice = (world.entered[index] - taken(world, index)).total()
        # What was between broker and sidecar: its clients' messages, and echoes.
        assert twice <= (site.lives - 1) * 2 * WINDOW
        assert twice <= site.counters["perhaps echoes"]
