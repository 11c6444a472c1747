"""Access rules at the MQTT listener: what a client that may not is told, and what it never gets."""

from __future__ import annotations

from typing import Any

import pytest

from mqtt.desk import Desk, Talker
from trellis.protocols.access.decide import STEPS_MAX, Access
from trellis.protocols.access.rules import parse_rules
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons

RULES = """
[everyone]
allow read public/#
allow readwrite clients/%c/#

[group operators]
member ann
allow readwrite plant/#
deny read plant/secret/#
deny write plant/+/setpoint

[user bob]
allow write plant/7/temp
"""
BOTH = pytest.mark.parametrize("version", [p.V311, p.V5])


def desk(rules: str = RULES, **fields: Any) -> Desk:
    made = Desk(users={"ann": b"a", "bob": b"b"}, **fields)
    made.host.state.access = Access(parse_rules(rules.encode(), "rules"))
    return made


def connect(at: Desk, user: str, client: str | None = None, version: int = p.V5, **fields: Any) -> Talker:
    given = {"user": user, "password": user[:1].encode(), **fields}
    return at.connect(client or user, version, **given)


def come(at: Desk, user: str, client: str | None = None, version: int = p.V5, **fields: Any) -> Talker:
    talker = connect(at, user, client, version, **fields)
    assert talker.take(p.ConnAck).reason == 0
    return talker


def change(at: Desk, rules: str) -> None:
    access = at.host.state.access
    assert access is not None
    access.use(parse_rules(rules.encode(), "rules"))
    at.host.rules_changed()
    at.carry_out()


def published(at: Desk) -> list[str]:
    return [one.topic for one in at.emitted if not one.topic.startswith("$")]


@BOTH
def test_a_subscription_of_which_nothing_may_be_read_is_refused(version):
    at = desk()
    bob = come(at, "bob", version=version)
    refused = reasons.NOT_AUTHORIZED if version == p.V5 else reasons.UNSPECIFIED
    codes = bob.subscribe("plant/7/temp", "public/news", "plant/#", "clients/ann/#", "#")
    assert codes == (refused, 1, refused, refused, 1)
    assert at.host.counters["subscriptions denied"] == 3
    assert sorted(at.host.sessions["bob"].subscriptions) == ["#", "public/news"]


def test_a_wildcard_brings_only_what_may_be_read():
    at = desk()
    ann, reader = come(at, "ann"), come(at, "ann", "reader")
    reader.subscribe("#", "plant/+/door", p.Asked("+/secret/#", 1))
    reader.got.clear()
    for topic in ("plant/7/temp", "plant/secret/door", "plant/secret", "clients/ann/x", "plant/9/door"):
        ann.publish(topic, topic.encode(), qos=1, id=1)
    assert reader.payloads() == [b"plant/7/temp", b"plant/9/door"]
    assert at.host.counters["reads denied"] == 3


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_5_hears_that_a_publication_is_refused_and_stays_connected(qos):
    at = desk()
    ann = come(at, "ann")
    ann.publish("plant/7/setpoint", qos=qos, id=7)
    answer = ann.take(p.Ack)
    assert (answer.kind, answer.reason) == (p.PUBACK if qos == 1 else p.PUBREC, reasons.NOT_AUTHORIZED)
    assert ann.closed is None
    assert not published(at)
    ann.publish("plant/7/temp", qos=qos, id=7)  # the identifier is free
    assert ann.take(p.Ack).reason == 0
    assert at.host.counters["writes denied"] == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publication_of_311_that_is_not_allowed_is_acknowledged_and_dropped(qos):
    at = desk()
    ann = come(at, "ann", version=p.V311)
    ann.publish("plant/7/setpoint", qos=qos, id=7)
    assert ann.take(p.Ack).kind == (p.PUBACK if qos == 1 else p.PUBREC)
    if qos == 2:
        ann.send(p.Ack(p.PUBREL, 7))
        assert ann.take(p.Ack).kind == p.PUBCOMP
    assert ann.closed is None
    assert not published(at)


@BOTH
def test_a_publication_with_qos_0_that_is_not_allowed_is_dropped_without_a_word(version):
    at = desk()
    ann = come(at, "ann", version=version)
    ann.publish("plant/7/setpoint")
    assert (ann.closed, list(ann.got), published(at)) == (None, [], [])


def test_a_topic_alias_is_judged_by_the_topic_that_it_stands_for():
    at = desk()
    ann = come(at, "ann")
    ann.publish("plant/7/setpoint", qos=1, id=1, alias=1)
    ann.publish("", qos=1, id=2, alias=1)
    assert [one.reason for one in ann.got] == [reasons.NOT_AUTHORIZED] * 2
    assert not published(at)


def test_retained_messages_obey_the_rules_both_ways():
    at = desk()
    ann = come(at, "ann")
    for topic in ("plant/7/temp", "plant/secret/door", "plant/7/setpoint"):
        ann.publish(topic, topic.encode(), qos=1, id=1, retain=True)
    assert "plant/7/setpoint" not in at.host.retained
    assert "plant/secret/door" in at.host.retained, "she may write it, and not read it"
    late = come(at, "ann", "late")
    late.subscribe("plant/#")
    at.pass_time(400)
    assert late.payloads() == [b"plant/7/temp"]


@BOTH
def test_a_will_that_the_client_may_not_publish_is_refused_at_connect(version):
    at = desk()
    bob = connect(at, "bob", version=version, will=p.Will(topic="plant/7/door", payload=b"gone", qos=1, retain=False))
    assert bob.take(p.ConnAck).reason == (reasons.NOT_AUTHORIZED if version == p.V5 else 5)
    assert bob.closed is not None
    bob = come(at, "bob", version=version, will=p.Will(topic="clients/bob/state", payload=b"gone", qos=1, retain=False))
    bob.drop()
    assert published(at) == ["clients/bob"]


def test_a_will_that_is_not_allowed_any_more_is_not_published():
    at = desk()
    bob = come(at, "bob", will=p.Will(topic="plant/7/temp", payload=b"gone", qos=1, retain=False))
    change(at, "[everyone]\nallow read #")
    bob.drop()
    assert not published(at)
    assert at.host.counters["wills denied"] == 1


def test_new_rules_hold_for_subscriptions_that_stand_and_for_what_waits():
    at = desk(inflight_max=1)
    ann, reader = come(at, "ann"), come(at, "ann", "reader")
    reader.subscribe("plant/#")
    reader.got.clear()
    for number in (1, 2, 3):
        ann.publish(f"plant/{number}/temp", b"%d" % number, qos=1, id=number)
    (first,) = reader.got
    assert first.payload == b"1", "the others wait for its PUBACK"
    change(at, RULES + "\n[user ann]\ndeny read plant/2/#\n")
    reader.got.clear()
    reader.send(p.Ack(p.PUBACK, first.id))
    ann.publish("plant/2/temp", b"2 again", qos=1, id=9)
    assert reader.payloads() == [b"3"]
    change(at, RULES)
    ann.publish("plant/2/temp", b"2 once more")
    assert reader.payloads() == [b"2 once more"]


def test_a_session_does_not_pass_to_another_user():
    at = desk()
    ann = come(at, "ann", "shared name", expiry_s=100, clean_start=False)
    ann.subscribe("plant/#")
    ann.drop()
    come(at, "ann", "writer").publish("plant/7/temp", b"for ann", qos=1, id=1)
    bob = connect(at, "bob", "shared name", expiry_s=100, clean_start=False)
    assert bob.take(p.ConnAck).session_present is False
    assert not bob.got
    assert not at.host.sessions["shared name"].subscriptions


def test_a_session_goes_on_for_its_own_user():
    at = desk()
    come(at, "ann", "name", expiry_s=100, clean_start=False).drop()
    again = connect(at, "ann", "name", expiry_s=100, clean_start=False)
    assert again.take(p.ConnAck).session_present is True


def test_a_client_whose_token_ends_is_disconnected():
    at = desk()
    at.left_ms = 3_000
    ann = come(at, "ann")
    at.pass_time(2_000)
    assert ann.closed is None
    at.pass_time(1_200)
    assert ann.take(p.Disconnect).reason == reasons.NOT_AUTHORIZED
    assert ann.closed == "not authorized"


def test_names_with_wildcards_or_slashes_open_nothing():
    at = desk()
    for client in ("+", "#", "ann/x", "ann/#"):
        bob = come(at, "bob", client)
        assert bob.subscribe("clients/ann/x") == (reasons.NOT_AUTHORIZED,)
        bob.publish("clients/ann/x", qos=1, id=1)
        assert bob.got[-1].reason == reasons.NOT_AUTHORIZED


def test_many_wildcards_against_many_rules_cost_a_bounded_number_of_comparisons():
    at = desk("[everyone]\n" + "\n".join(f"allow read a{number}/x" for number in range(1_000)))
    bob = come(at, "bob", "b")
    codes = bob.subscribe(*(f"+/y/{number}" for number in range(200)))
    assert at.host.state.access.steps == -(200 - STEPS_MAX // 1_000)
    assert codes[0] == reasons.NOT_AUTHORIZED
    assert codes[-1] == 1, "granted without a look; what comes is judged by its topic"


# Quotas


def seconds_to_send(at: Desk, talker: Talker, count: int, payload: bytes = b"x") -> float:
    """Publish as soon as the client is read. Return how long that took."""
    began = at.now_ms
    for number in range(count):
        while not talker.is_read:
            at.pass_time(100)
        talker.publish("plant/7/temp", payload, qos=1, id=number % 60_000 + 1)
    while not talker.is_read:
        at.pass_time(100)
    return (at.now_ms - began) / 1_000


def test_a_client_that_publishes_more_than_its_quota_is_read_later_and_loses_nothing():
    at = desk(RULES + "limit client messages 10\n")
    bob = come(at, "bob")
    assert 3.8 <= seconds_to_send(at, bob, 50) <= 4.6, "ten at once, and ten a second"
    assert [one.reason for one in bob.got] == [0] * 50
    assert at.host.counters["held by quotas"] >= 1
    at.pass_time(2_000)
    assert seconds_to_send(at, bob, 10) == 0


def test_bytes_are_counted_with_the_topic_and_also_of_what_is_denied():
    at = desk("[everyone]\nlimit client bytes 1012\n")
    bob = come(at, "bob", version=p.V311)
    assert 1.8 <= seconds_to_send(at, bob, 3, bytes(1_000)) <= 2.4
    assert at.host.counters["writes denied"] == 3


def test_the_clients_of_a_user_share_its_quota_and_others_have_their_own():
    at = desk(RULES + "limit user messages 10\n[everyone]\nlimit user messages 1000\n")
    one, two, ann = come(at, "bob", "one"), come(at, "bob", "two"), come(at, "ann")
    assert seconds_to_send(at, one, 10) == 0
    assert seconds_to_send(at, two, 1) > 0
    assert seconds_to_send(at, ann, 100) == 0


def test_a_reconnection_does_not_renew_a_quota():
    at = desk(RULES + "limit client messages 10\n")
    for _ in range(3):
        bob = come(at, "bob")
        for _ in range(10):
            bob.publish("plant/7/temp", qos=0)
        bob.drop()
    bob = come(at, "bob")
    bob.publish("plant/7/temp")
    assert not bob.is_read
    at.pass_time(1_500)
    assert not bob.is_read
    at.pass_time(1_000)
    assert bob.is_read


@BOTH
def test_a_user_has_no_more_connections_than_its_quota(version):
    at = desk(RULES + "limit user connections 2\n")
    come(at, "bob", "one"), come(at, "bob", "two"), come(at, "ann")
    three = connect(at, "bob", "three", version)
    assert three.take(p.ConnAck).reason == (reasons.QUOTA if version == p.V5 else 3)
    come(at, "bob", "two", version)  # takes over its own session
    at.talkers[0].drop()
    come(at, "bob", "three", version)


def test_clients_and_users_have_no_more_filters_than_their_quotas():
    at = desk(RULES + "limit client subscriptions 2\nlimit user subscriptions 3\n")
    one, two = come(at, "bob", "one"), come(at, "bob", "two")
    asked = ("public/1", "public/2", "public/2", "public/3")
    assert one.subscribe(*asked) == (1, 1, 1, reasons.QUOTA)
    assert two.subscribe(*asked) == (1, reasons.QUOTA, reasons.QUOTA, reasons.QUOTA)
    one.got.clear()
    one.send(p.Unsubscribe(5, ("public/1",)))
    one.got.clear()
    assert one.subscribe("public/3") == (1,)


def test_without_an_access_list_everybody_may_do_everything():
    at = Desk()
    one = at.welcome()
    assert one.subscribe("#", "any/thing") == (1, 1)
    one.publish("any/thing", qos=1, id=1)
    assert [type(each) for each in one.got][-2:] == [p.Publish, p.Ack]


def test_a_group_passes_over_members_that_may_not_read_the_topic():
    at = desk()
    ann = come(at, "ann")
    members = [come(at, "ann", "reader"), come(at, "bob", "other")]
    for one in members:
        one.subscribe("$share/g/#")
        one.got.clear()
    at.pass_time(1_000)
    for number in range(1, 7):
        ann.publish("plant/7/temp", b"%d" % number, qos=1, id=number)
        at.acknowledge()
    at.pass_time(2_000)
    assert [one.payloads() for one in members] == [[b"%d" % number for number in range(1, 7)], []]


def test_what_a_node_tells_about_itself_is_read_by_those_who_may():
    at = desk("[user ann]\nallow read $SYS/#\n[user bob]\nallow read $SYS/broker/version\n", sys_interval_s=1)
    ann, bob = come(at, "ann"), come(at, "bob")
    for one in (ann, bob):
        one.subscribe("$SYS/#")
    at.pass_time(3_000)
    ann_got, bob_got = ({one.topic for one in who.got if isinstance(one, p.Publish)} for who in (ann, bob))
    assert bob_got <= {"$SYS/broker/version"}
    assert len(ann_got) > 10
