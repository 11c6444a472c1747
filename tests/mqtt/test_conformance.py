"""The normative statements of MQTT 5 that the door claims, by number. Those of 3.1.1 are marked so.

Statements on single packets ([MQTT-1.x], [MQTT-2.x], and some of 3.x) are in test_codec.py, on matching in
test_topics.py, across nodes in test_listener.py. What is not carried is in docs/mqtt.md.
"""

from __future__ import annotations

import pytest

from mqtt.desk import Desk, Talker
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons

BOTH = pytest.mark.parametrize("version", [p.V311, p.V5])


# 3.1 CONNECT


def test_3_1_0_1_the_first_packet_is_a_connect():
    talker = Desk().open()
    talker.send(p.PingReq())
    assert talker.closed is not None
    assert not talker.got


@BOTH
def test_3_1_0_2_a_second_connect_ends_the_connection(version):
    talker = Desk().welcome(version=version)
    talker.send(p.Connect(version=version, client="c", clean_start=True))
    assert talker.closed is not None
    if version == p.V5:
        assert talker.take(p.Disconnect).reason == reasons.PROTOCOL_ERROR


@pytest.mark.parametrize("said", [3, 6, 0x84])
def test_3_1_2_2_an_unknown_version_is_refused_with_a_word(said):
    talker = Desk().open(p.V311)
    talker.raw(b"\x10\x0d\x00\x04MQTT" + bytes((said,)) + b"\x02\x00\x00\x00\x01a")
    assert talker.take(p.ConnAck).reason == (reasons.VERSION if said == 6 else 1)
    assert talker.closed is not None


@BOTH
def test_3_1_2_4_clean_start_discards_the_session(version):
    desk = Desk()
    first = desk.welcome(version=version, clean_start=False, expiry_s=100)
    first.subscribe("a")
    first.drop()
    assert desk.connect(version=version).take(p.ConnAck).session_present is False
    assert "a" not in desk.wanted


@BOTH
def test_3_1_2_5_without_clean_start_the_session_goes_on(version):
    desk = Desk()
    first = desk.welcome(version=version, clean_start=False, expiry_s=100)
    first.subscribe("a")
    first.drop()
    desk.welcome("other").publish("a", b"meanwhile", qos=1, id=1)
    again = desk.connect(version=version, clean_start=False, expiry_s=100)
    assert again.take(p.ConnAck).session_present is True
    assert again.take(p.Publish).payload == b"meanwhile"


def test_3_1_2_6_where_there_is_no_session_a_new_one_begins():
    assert Desk().connect(clean_start=False).take(p.ConnAck).session_present is False


@BOTH
def test_3_1_2_8_a_will_is_published_when_the_connection_breaks(version):
    desk = Desk()
    watcher = desk.welcome("watcher")
    watcher.subscribe("w")
    watcher.got.clear()
    will = p.Will(topic="w", payload=b"gone", qos=1, retain=False)
    desk.welcome(version=version, will=will).drop()
    assert watcher.payloads() == [b"gone"]


@BOTH
def test_3_1_2_10_a_disconnect_drops_the_will(version):
    desk = Desk()
    watcher = desk.welcome("watcher")
    watcher.subscribe("w")
    watcher.got.clear()
    talker = desk.welcome(version=version, will=p.Will(topic="w", payload=b"gone", qos=0, retain=False))
    talker.send(p.Disconnect())
    talker.drop()
    assert watcher.payloads() == []


def test_3_14_4_a_disconnect_with_reason_4_publishes_the_will():
    desk = Desk()
    watcher = desk.welcome("watcher")
    watcher.subscribe("w")
    watcher.got.clear()
    talker = desk.welcome(will=p.Will(topic="w", payload=b"gone", qos=0, retain=False))
    talker.send(p.Disconnect(reasons.WITH_WILL))
    assert watcher.payloads() == [b"gone"]


def test_3_1_2_14_and_15_a_will_is_retained_as_it_says():
    desk = Desk()
    for retain, topic in ((True, "kept"), (False, "not")):
        desk.welcome(will=p.Will(topic=topic, payload=b"gone", qos=0, retain=retain)).drop()
    late = desk.welcome("late")
    late.subscribe("kept", "not")
    assert late.payloads() == [b"gone"]


@BOTH
def test_3_1_2_22_silence_of_one_and_a_half_keep_alives_ends_the_connection(version):
    desk = Desk()
    talker = desk.welcome(version=version, keep_alive_s=10)
    desk.pass_time(14_000)
    talker.send(p.PingReq())
    assert talker.take(p.PingResp)
    desk.pass_time(14_800)
    assert talker.closed is None
    desk.pass_time(400)
    assert talker.closed is not None
    if version == p.V5:
        assert talker.take(p.Disconnect).reason == reasons.KEEP_ALIVE


def test_3_1_2_22_keep_alive_0_is_no_limit():
    desk = Desk()
    talker = desk.welcome(keep_alive_s=0)
    desk.pass_time(300_000)
    assert talker.closed is None


def test_3_1_2_23_a_session_is_kept_until_it_expires():
    desk = Desk()
    for ms, is_present in ((9_600, True), (10_200, False)):
        desk.welcome(clean_start=False, expiry_s=10).drop()
        desk.pass_time(ms)
        assert desk.connect(clean_start=False, expiry_s=10).take(p.ConnAck).session_present is is_present


def test_3_1_3_9_a_delayed_will_is_not_published_if_the_client_is_back_in_time():
    desk = Desk()
    watcher = desk.welcome("watcher")
    watcher.subscribe("w")
    watcher.got.clear()
    will = p.Will(topic="w", payload=b"gone", qos=0, retain=False, delay_s=5)
    desk.welcome(clean_start=False, expiry_s=60, will=will).drop()
    desk.pass_time(4_000)
    back = desk.welcome(clean_start=False, expiry_s=60, will=will)
    desk.pass_time(4_000)
    assert watcher.payloads() == []
    back.drop()
    desk.pass_time(5_200)
    assert watcher.payloads() == [b"gone"]


def test_3_1_2_8_a_delayed_will_is_published_when_its_session_ends():
    desk = Desk()
    watcher = desk.welcome("watcher")
    watcher.subscribe("w")
    watcher.got.clear()
    desk.welcome(expiry_s=2, will=p.Will(topic="w", payload=b"gone", qos=0, retain=False, delay_s=50)).drop()
    desk.pass_time(2_400)
    assert watcher.payloads() == [b"gone"]


def test_3_1_2_24_nothing_is_sent_that_is_larger_than_the_client_takes():
    """The door encodes; here that it goes on with the next message.  [MQTT-3.1.2-25]"""
    desk = Desk()
    talker = desk.welcome(receive_max=1)
    talker.subscribe("t")
    talker.got.clear()
    other = desk.welcome("other")
    for number, payload in enumerate((b"large", b"small"), 1):
        other.publish("t", payload, qos=1, id=number)
    packet = talker.take(p.Publish)
    desk.host.too_large(talker.number, packet)
    desk.carry_out()
    assert talker.take(p.Publish).payload == b"small"


def test_3_1_2_29_no_reasons_in_words_for_a_client_that_wants_none():
    desk = Desk()
    talker = desk.welcome(wants_reasons=False)
    talker.send(p.Subscribe(1, (p.Asked("$other/a", 1),)))
    assert talker.take(p.SubAck).text is None
    other = desk.welcome("other")
    other.send(p.Subscribe(1, (p.Asked("$other/a", 1),)))
    assert other.take(p.SubAck).text is not None


def test_3_1_3_6_a_client_without_a_name_gets_one():
    desk = Desk()
    names = {desk.connect("").take(p.ConnAck).assigned_client for _ in range(2)}
    assert len(names) == 2
    assert None not in names


def test_311_3_1_3_8_a_client_without_a_name_cannot_keep_a_session():
    talker = Desk().connect("", p.V311, clean_start=False)
    assert talker.take(p.ConnAck).reason == 2
    assert talker.closed is not None


def test_311_3_1_3_7_a_client_without_a_name_may_come_without_one():
    assert Desk().connect("", p.V311).take(p.ConnAck).reason == 0


@BOTH
def test_3_1_4_2_a_wrong_password_is_refused(version):
    desk = Desk(users={"u": b"right"})
    wrong = desk.connect(version=version, user="u", password=b"wrong")
    assert wrong.take(p.ConnAck).reason == (reasons.NOT_AUTHORIZED if version == p.V5 else 5)
    assert wrong.closed is not None
    assert desk.connect(version=version, user="u", password=b"right").take(p.ConnAck).reason == 0


@BOTH
def test_3_1_4_3_a_client_takes_over_from_itself(version):
    desk = Desk()
    first = desk.welcome(version=version)
    desk.welcome(version=version)
    assert first.closed is not None
    if version == p.V5:
        assert first.take(p.Disconnect).reason == reasons.TAKEN_OVER


def test_3_1_4_6_packets_after_a_refused_connect_are_not_taken():
    desk = Desk(users={})
    talker = desk.connect(user="u", password=b"p")
    talker.publish("t")
    assert not [one for one in desk.emitted if one.topic == "t"]


def test_4_12_0_1_an_authentication_method_is_refused():
    assert Desk().connect(method="SCRAM").take(p.ConnAck).reason == reasons.METHOD


# 3.2 CONNACK


def test_3_2_0_1_connack_comes_first():
    desk = Desk()
    first = desk.welcome(clean_start=False, expiry_s=50)
    first.subscribe("a")
    first.drop()
    desk.welcome("other").publish("a", qos=1, id=1)
    assert isinstance(desk.connect(clean_start=False, expiry_s=50).got[0], p.ConnAck)


def test_3_2_2_6_a_refusal_says_that_there_is_no_session():
    desk = Desk(users={"u": b"p"})
    desk.connect(clean_start=False, expiry_s=50, user="u", password=b"p").drop()
    assert desk.connect(clean_start=False, user="u", password=b"no").take(p.ConnAck).session_present is False


def test_3_2_2_what_the_server_can_do_is_said():
    answer = Desk(inflight_max=7, packet_bytes_max=9_000, alias_max=3, session_expiry_s_max=60).connect(expiry_s=999)
    said = answer.take(p.ConnAck)
    assert (said.receive_max, said.packet_bytes_max, said.alias_max, said.expiry_s) == (7, 9_000, 3, 60)
    assert said.shared_available is True


# 3.3 PUBLISH


@BOTH
@pytest.mark.parametrize(("qos", "kind"), [(1, p.PUBACK), (2, p.PUBREC)])
def test_3_3_4_1_an_acknowledgement_waits_for_the_mesh(version, qos, kind):
    """4.3.2-4, 4.3.3-8, and what a mesh adds: H1."""
    desk = Desk()
    talker = desk.welcome(version=version)
    desk.acknowledges = False
    talker.publish("t", qos=qos, id=5)
    assert not talker.got
    desk.acknowledge()
    assert talker.take(p.Ack) == p.Ack(kind, 5)


def test_4_6_0_2_acknowledgements_keep_the_order_of_publications():
    desk = Desk()
    talker = desk.welcome()
    desk.pass_time(60_000)  # every wildcard has been heard of: nothing is copied
    desk.acknowledges = False
    for number in (3, 1, 2):
        talker.publish("t", qos=1, id=number)
    for number in reversed(desk.unanswered):
        desk.host.acknowledged(number)
    desk.carry_out()
    assert [one.id for one in talker.got if isinstance(one, p.Ack)] == [3, 1, 2]


def test_4_3_3_10_qos_2_is_published_once_until_its_release():
    desk = Desk()
    talker = desk.welcome()
    for dup in (False, True):
        talker.publish("t", b"once", qos=2, id=9, dup=dup)
        assert talker.take(p.Ack) == p.Ack(p.PUBREC, 9)
    assert len([one for one in desk.emitted if one.topic == "t"]) == 1
    talker.send(p.Ack(p.PUBREL, 9))
    assert talker.take(p.Ack) == p.Ack(p.PUBCOMP, 9)
    talker.publish("t", b"new", qos=2, id=9)
    assert len([one for one in desk.emitted if one.topic == "t"]) == 2


def test_4_3_3_a_release_of_nothing_is_completed_as_any_other():
    talker = Desk().welcome()
    talker.send(p.Ack(p.PUBREL, 4))
    assert talker.take(p.Ack) == p.Ack(p.PUBCOMP, 4)


def test_4_4_0_1_what_was_not_acknowledged_is_sent_again_with_dup_and_its_identifier():
    """3.3.1-1 and 4.6.0-1: in the order in which it was sent."""
    desk = Desk()
    first = desk.welcome(clean_start=False, expiry_s=90)
    first.subscribe("t")
    first.got.clear()
    other = desk.welcome("other")
    for number in (1, 2, 3):
        other.publish("t", b"%d" % number, qos=1, id=number)
    sent = [first.take(p.Publish) for _ in range(3)]
    assert not any(one.dup for one in sent)
    first.send(p.Ack(p.PUBACK, sent[1].id))
    first.drop()
    again = desk.welcome(clean_start=False, expiry_s=90)
    assert [(one.id, one.payload, one.dup) for one in again.got] == [
        (sent[0].id, b"1", True),
        (sent[2].id, b"3", True),
    ]


def test_a_publication_sent_again_while_the_mesh_is_at_it_stays_one():
    desk = Desk()
    first = desk.welcome(clean_start=False, expiry_s=90)
    desk.acknowledges = False
    first.publish("t", qos=1, id=4)
    first.drop()
    again = desk.welcome(clean_start=False, expiry_s=90)
    again.publish("t", qos=1, id=4, dup=True)
    desk.acknowledge()
    assert again.take(p.Ack) == p.Ack(p.PUBACK, 4)
    assert len([one for one in desk.emitted if one.topic == "t"]) == 1


@pytest.mark.parametrize("topic", ["a/+", "#", "a/#"])
def test_3_3_2_2_a_topic_with_wildcards_ends_the_connection(topic):
    talker = Desk().welcome()
    talker.publish(topic)
    assert talker.take(p.Disconnect).reason == reasons.MALFORMED


def test_4_7_2_a_client_cannot_publish_on_topics_of_the_server():
    desk = Desk()
    talker = desk.welcome()
    talker.publish("$SYS/x", qos=1, id=1)
    assert talker.take(p.Ack).reason == reasons.NOT_AUTHORIZED
    old = desk.welcome("old", p.V311)
    old.publish("$mqtt/all", qos=1, id=1)  # 3.1.1 has no word for it: the message is acknowledged, and left out
    assert old.take(p.Ack) == p.Ack(p.PUBACK, 1)
    assert old.closed is None
    assert [one.topic for one in desk.emitted] == ["$mqtt/ask"], "nothing but the directory's own question"


def test_3_3_1_5_and_8_a_retained_message_is_given_to_a_later_subscriber():
    desk = Desk()
    talker = desk.welcome()
    talker.publish("t", b"old", retain=True)
    talker.publish("t", b"kept", retain=True)
    talker.publish("t", b"passing")
    late = desk.welcome("late")
    late.subscribe("t")
    late.take(p.SubAck)
    found = late.take(p.Publish)
    assert (found.payload, found.retain) == (b"kept", True)
    assert not late.got


def test_3_3_1_6_and_7_an_empty_payload_removes_it_and_is_not_kept():
    desk = Desk()
    talker = desk.welcome()
    talker.publish("t", b"kept", retain=True)
    talker.publish("t", b"", retain=True)
    late = desk.welcome("late")
    late.subscribe("t")
    assert late.payloads() == []
    assert not len(desk.host.retained)


def test_retained_messages_beyond_the_limit_are_refused_and_those_of_a_broker_beside_us_are_not():
    desk = Desk(retained_max=1)
    talker = desk.welcome()
    for number, topic in enumerate(("a", "b", "a"), 1):
        talker.publish(topic, retain=True, qos=1, id=number)
    assert [one.reason for one in talker.got] == [0, reasons.QUOTA, 0]
    desk.talkers[99] = Talker(desk, 99, p.V5)
    desk.talkers[99].said_version = p.V5
    desk.host.attach(99, "$sidecar/n", 10)
    desk.talkers[99].publish("c", retain=True, qos=1, id=4)
    assert desk.talkers[99].got[-1] == p.Ack(p.PUBACK, 4)
    assert len(desk.host.retained) == 1


def test_3_3_1_9_to_11_retain_handling():
    desk = Desk()
    desk.welcome("other").publish("t", b"kept", retain=True)
    talker = desk.welcome()
    for handling, is_first, expected in ((2, True, []), (1, False, []), (0, False, [b"kept"])):
        talker.subscribe(p.Asked("t", 1, retain_handling=handling))
        assert talker.payloads() == expected, (handling, is_first)
    fresh = desk.welcome("fresh")
    fresh.subscribe(p.Asked("t", 1, retain_handling=1))
    assert fresh.payloads() == [b"kept"]


def test_3_3_1_12_and_13_retain_as_published():
    desk = Desk()
    for name, as_published in (("as-published", True), ("cleared", False)):
        talker = desk.welcome(name)
        talker.subscribe(p.Asked("t", 1, retain_as_published=as_published))
        talker.got.clear()
        desk.welcome("other").publish("t", b"x", retain=True)
        assert talker.take(p.Publish).retain is as_published


def test_3_3_2_4_and_the_like_properties_reach_the_reader_unchanged():
    """3.3.2-4, -15, -16, -17, -18, -20."""
    content = p.Content(
        format=1,
        content_type="text/plain",
        response_topic="answers/here",
        correlation=b"\x00\x01",
        user=(("a", "1"), ("b", "2"), ("a", "3")),
    )
    desk = Desk()
    talker = desk.welcome()
    talker.subscribe("t")
    talker.got.clear()
    desk.welcome("other").publish("t", b"x", content=content)
    assert talker.take(p.Publish).content == content


def test_3_3_2_5_and_6_a_message_expires_and_tells_what_is_left():
    desk = Desk()
    first = desk.welcome(clean_start=False, expiry_s=99)
    first.subscribe("t")
    first.drop()
    other = desk.welcome("other")
    for number, expiry_s in enumerate((3, 10), 1):
        other.publish("t", b"%d" % expiry_s, qos=1, id=number, content=p.Content(expiry_s=expiry_s))
    desk.pass_time(4_000)
    again = desk.welcome(clean_start=False, expiry_s=99)
    found = again.take(p.Publish)
    assert (found.payload, found.content.expiry_s) == (b"10", 6)
    assert not again.got


def test_3_3_2_7_to_12_topic_aliases():
    desk = Desk(alias_max=2)
    reader = desk.welcome("reader")
    reader.subscribe("t/1", "t/2")
    reader.got.clear()
    talker = desk.welcome()
    talker.publish("t/1", b"a", alias=1)
    talker.publish("", b"b", alias=1)
    talker.publish("t/2", b"c", alias=1)
    talker.publish("", b"d", alias=1)
    assert [(one.topic, one.payload) for one in reader.got] == [
        ("t/1", b"a"),
        ("t/1", b"b"),
        ("t/2", b"c"),
        ("t/2", b"d"),
    ]
    talker.publish("", b"e", alias=2)
    assert talker.take(p.Disconnect).reason == reasons.PROTOCOL_ERROR
    again = desk.welcome()
    again.publish("t/1", b"f", alias=3)
    assert again.take(p.Disconnect).reason == reasons.ALIAS_INVALID


def test_3_3_2_7_aliases_end_with_their_connection():
    desk = Desk()
    talker = desk.welcome(clean_start=False, expiry_s=9)
    talker.publish("t", alias=1)
    talker.drop()
    again = desk.welcome(clean_start=False, expiry_s=9)
    again.publish("", alias=1)
    assert again.take(p.Disconnect).reason == reasons.PROTOCOL_ERROR


def test_3_3_4_2_to_5_a_message_comes_once_with_the_best_quality_and_all_identifiers():
    desk = Desk()
    talker = desk.welcome()
    talker.subscribe(p.Asked("a/#", 0), number=7)
    talker.got.clear()
    talker.subscribe(p.Asked("a/b", 1), number=300)
    talker.got.clear()
    talker.subscribe(p.Asked("+/b", 0))
    talker.got.clear()
    desk.welcome("other").publish("a/b", qos=1, id=1)
    (found,) = talker.got
    assert (found.qos, found.subscriptions) == (1, (7, 300))


def test_3_3_4_6_a_client_sends_no_subscription_identifier():
    talker = Desk().welcome()
    talker.publish("t", subscriptions=(1,))
    assert talker.take(p.Disconnect).reason == reasons.PROTOCOL_ERROR


def test_3_3_4_7_more_than_the_receive_maximum_ends_the_connection():
    desk = Desk(inflight_max=2)
    desk.acknowledges = False
    talker = desk.welcome()
    for number in (1, 2, 3):
        talker.publish("t", qos=1, id=number)
    assert talker.take(p.Disconnect).reason == reasons.RECEIVE_MAX


def test_a_client_of_311_is_not_read_while_too_much_of_it_waits():
    desk = Desk(inflight_max=2)
    desk.acknowledges = False
    talker = desk.welcome(version=p.V311, keep_alive_s=1)
    for number in (1, 2):
        talker.publish("t", qos=1, id=number)
    assert not talker.is_read
    desk.pass_time(5_000)
    assert talker.closed is None
    desk.acknowledge()
    assert talker.is_read


def test_3_3_4_9_no_more_is_under_way_than_the_client_takes():
    desk = Desk()
    talker = desk.welcome(receive_max=2)
    talker.subscribe("t", "u")
    talker.got.clear()
    other = desk.welcome("other")
    for number in range(1, 6):
        other.publish("t", b"%d" % number, qos=1, id=number)
    other.publish("u", b"zero")
    assert talker.payloads() == [b"1", b"2", b"zero"]  # QoS 0 does not count
    talker.send(p.Ack(p.PUBACK, 1), p.Ack(p.PUBACK, 1))
    assert talker.payloads() == [b"3"]


def test_3_3_5_2_a_publication_that_the_mesh_does_not_take_is_told():
    desk = Desk()
    desk.acknowledges = False
    for version in (p.V5, p.V311):
        talker = desk.welcome(f"c{version}", version)
        talker.publish("t", qos=1, id=3)
        desk.host.not_acknowledged(desk.unanswered[0], "too few copies")
        desk.unanswered.clear()
        desk.carry_out()
        if version == p.V5:
            found = talker.take(p.Ack)
            assert (found.kind, found.id, found.reason) == (p.PUBACK, 3, reasons.IMPLEMENTATION)
        else:
            assert talker.closed is not None
            assert not talker.got


def test_what_the_mesh_does_not_take_of_a_sidecar_is_published_again_under_its_identity_and_counts_once():
    desk = Desk()
    reader = desk.welcome("reader")
    reader.subscribe("t")
    reader.got.clear()
    sidecar = desk.talkers[99] = Talker(desk, 99, p.V5)
    sidecar.said_version = p.V5
    desk.host.attach(99, "$sidecar/n", 10)
    desk.carry_out()
    sidecar.got.clear()
    desk.acknowledges = False
    sidecar.publish("t", b"once", qos=1, id=4)
    for _ in range(3):
        numbers, desk.unanswered = desk.unanswered, []
        for number in numbers:
            desk.host.not_acknowledged(number, "too few copies")
        desk.carry_out()
        assert not sidecar.got
        desk.pass_time(1_200)
    desk.acknowledge()
    assert sidecar.take(p.Ack) == p.Ack(p.PUBACK, 4)
    assert reader.payloads() == [b"once"]
    assert desk.host.publications.repeats.is_idle
    assert not desk.host.publications.waiting


# 3.8 SUBSCRIBE


@BOTH
def test_3_8_4_1_a_subscribe_is_answered_and_waits_for_the_mesh(version):
    desk = Desk(suback_s=5)
    desk.confirms = False
    talker = desk.welcome(version=version)
    talker.send(p.Subscribe(9, (p.Asked("t", 1),)))
    assert not talker.got
    desk.host.confirmed("t")
    desk.carry_out()
    found = talker.take(p.SubAck)
    assert (found.id, found.reasons) == (9, (1,))


def test_a_subscribe_is_answered_after_a_while_even_if_the_mesh_is_silent():
    desk = Desk(suback_s=5)
    desk.confirms = False
    talker = desk.welcome()
    talker.send(p.Subscribe(9, (p.Asked("t", 1),)))
    desk.pass_time(5_200)
    found = talker.take(p.SubAck)
    assert found.reasons == (1,)
    assert "not confirmed" in found.text


def test_what_the_mesh_still_holds_from_before_a_subscription_is_not_given_to_the_client():
    """A first subscriber is given the mesh's window. One broker gives no subscriber what was published before."""
    desk = Desk(suback_s=50)
    other = desk.welcome("other")
    other.publish("t", b"before")
    (before,) = [one.payload for one in desk.emitted if one.topic == "t"]
    desk.confirms = False
    talker = desk.welcome()
    talker.send(p.Subscribe(9, (p.Asked("t", 1),)))
    desk.host.delivered("t", "m", before)
    desk.host.delivered("t", "m", b"plain and before")
    desk.host.confirmed("t")
    desk.host.delivered("t", "m", b"after")
    desk.carry_out()
    assert talker.payloads() == [b"after"]


def test_3_8_4_3_and_4_a_repeated_filter_replaces_the_subscription():
    desk = Desk()
    talker = desk.welcome()
    talker.subscribe(p.Asked("t", 0))
    talker.got.clear()
    talker.subscribe(p.Asked("t", 1))
    talker.got.clear()
    desk.welcome("other").publish("t", qos=1, id=1)
    assert [one.qos for one in talker.got] == [1]


def test_3_8_4_5_and_6_each_filter_has_an_answer():
    talker = Desk().welcome()
    asked = ("a", p.Asked("b", 0), "$share/g/c", p.Asked("d", 2), "$other/#")
    assert talker.subscribe(*asked) == (1, 0, 1, 2, reasons.FILTER_INVALID)


@BOTH
@pytest.mark.parametrize("filter_", ["a#", "+a", "a/#/b", "a/b+"])
def test_4_7_1_a_wildcard_at_the_wrong_place_ends_the_connection(version, filter_):
    """311: 4.8.0-1. The reason code for a refused filter means one that is correctly formed (5, 3.9.3)."""
    for asked in (p.Subscribe(1, (p.Asked("a", 1), p.Asked(filter_, 1))), p.Unsubscribe(1, (filter_,))):
        talker = Desk().welcome(version=version)
        talker.send(asked)
        assert talker.closed == "malformed"
        assert [one.reason for one in talker.got] == ([reasons.MALFORMED] if version == p.V5 else [])


def test_311_3_8_4_what_is_refused_is_0x80():
    talker = Desk().welcome(version=p.V311)
    assert talker.subscribe("$other", "$share/g", "ok") == (0x80, 0x80, 1)


def test_3_8_4_8_the_quality_is_the_lower_of_both():
    desk = Desk()
    for asked in (0, 1):
        talker = desk.welcome(f"c{asked}")
        talker.subscribe(p.Asked("t", asked))
        talker.got.clear()
    other = desk.welcome("other")
    for qos in (0, 1, 2):
        other.publish("t", b"%d" % qos, qos=qos, id=qos or None)
    assert [one.qos for one in desk.talkers[0].got] == [0, 0, 0]
    assert [one.qos for one in desk.talkers[1].got] == [0, 1, 1]


def test_3_8_3_3_no_local():
    desk = Desk()
    talker = desk.welcome()
    talker.subscribe(p.Asked("t", 1, no_local=True))
    talker.got.clear()
    talker.publish("t", b"mine")
    desk.welcome("other").publish("t", b"theirs")
    assert talker.payloads() == [b"theirs"]


def test_too_many_filters_are_refused():
    talker = Desk(subscriptions_max=2).welcome()
    assert talker.subscribe("a", "b", "c", "a") == (1, 1, reasons.QUOTA, 1)


def test_3_9_3_a_filter_whose_topic_the_node_cannot_tell_others_of_is_refused_with_0x97():
    desk = Desk()
    desk.host.state.refusal = lambda topic: "no room" if topic in ("full/x", "$mqtt/in/full") else None
    talker = desk.welcome()
    assert talker.subscribe("a/b", "full/x", "full/+", "+/full") == (1, reasons.QUOTA, reasons.QUOTA, 1)
    assert "full/x" not in desk.host.interests.wanted
    assert not any("full" in pattern for pattern in desk.host.interests.patterns if pattern != "+/full")


# 3.10 UNSUBSCRIBE


@BOTH
def test_3_10_4_an_unsubscribe_ends_exactly_its_filters(version):
    """3.10.4-1, -2, -4, -5, -6; 3.11.3-1."""
    desk = Desk()
    talker = desk.welcome(version=version)
    talker.subscribe("a/#", "a/b")
    talker.got.clear()
    talker.send(p.Unsubscribe(5, ("a/#", "a/+")))
    found = talker.take(p.UnsubAck)
    assert found == p.UnsubAck(5, (reasons.SUCCESS, reasons.NO_SUBSCRIPTION) if version == p.V5 else ())
    other = desk.welcome("other")
    other.publish("a/b", b"yes")
    other.publish("a/c", b"no")
    assert talker.payloads() == [b"yes"]


# 3.12 to 3.14


@BOTH
def test_3_12_4_1_a_ping_is_answered(version):
    talker = Desk().welcome(version=version)
    talker.send(p.PingReq())
    assert talker.take(p.PingResp)


def test_3_14_2_2_a_session_cannot_be_prolonged_at_its_end():
    talker = Desk().welcome(expiry_s=0)
    talker.send(p.Disconnect(0, 100))
    assert talker.take(p.Disconnect).reason == reasons.PROTOCOL_ERROR


def test_3_14_2_a_session_can_be_ended_at_its_end():
    desk = Desk()
    talker = desk.welcome(clean_start=False, expiry_s=100)
    talker.send(p.Disconnect(0, 0))
    assert desk.connect(clean_start=False).take(p.ConnAck).session_present is False


# 4


def test_4_8_0_2_and_4_13_1_1_a_malformed_packet_ends_the_connection():
    desk = Desk()
    talker = desk.welcome()
    talker.raw(b"\x30\x04\x00\x02\xff\xfe")
    assert talker.take(p.Disconnect).reason == reasons.MALFORMED
    assert talker.closed is not None
    assert desk.welcome("other").closed is None


def test_3_1_2_a_packet_over_the_maximum_ends_the_connection():
    talker = Desk(packet_bytes_max=1_000).welcome()
    talker.raw(b"\x30\xe8\x07")
    assert talker.take(p.Disconnect).reason == reasons.TOO_LARGE


def test_4_1_0_1_sessions_are_bounded():
    desk = Desk(sessions_max=2)
    for name in ("a", "b"):
        desk.welcome(name, expiry_s=50)
    assert desk.connect("c").take(p.ConnAck).reason == reasons.BUSY


def test_3_1_4_3_a_client_takes_its_own_connection_over_where_there_is_no_room_for_another():
    """A connection that has broken silently must not keep its own client out."""
    desk = Desk(clients_max=1)
    old = desk.welcome("a", clean_start=False, expiry_s=50)
    assert desk.connect("b").take(p.ConnAck).reason == reasons.BUSY
    assert desk.connect("a", clean_start=False, expiry_s=50).take(p.ConnAck).session_present
    assert old.take(p.Disconnect).reason == reasons.TAKEN_OVER


@pytest.mark.parametrize("limit", ["clients_max", "sessions_max"])
def test_clients_whose_passwords_are_checked_at_the_same_time_stay_within_the_limits(limit):
    desk = Desk(**{limit: 1})
    both = [desk.open(), desk.open()]
    for name, talker in zip("ab", both, strict=True):
        talker.said_version = p.V5
        desk.host.received(talker.number, p.Connect(version=p.V5, client=name, clean_start=True))
    desk.carry_out()
    assert [one.closed is None for one in both] == [True, False]


def test_what_waits_for_a_client_is_bounded_and_the_rest_is_counted():
    desk = Desk(queue_max=3, inflight_max=2)
    away = desk.welcome("away", clean_start=False, expiry_s=50)
    away.subscribe("t")
    away.drop()
    other = desk.welcome("other")
    for number in range(1, 7):
        other.publish("t", b"%d" % number, qos=1, id=number)
    assert desk.host.counters["dropped"] == 3
    assert desk.welcome("away", clean_start=False, expiry_s=50).payloads() == [b"1", b"2"]


@pytest.mark.parametrize(("asked", "told"), [(120, 60), (0, 60), (60, None), (30, None)])
def test_3_1_2_21_a_node_may_say_how_often_a_client_must_speak(asked, told):
    desk = Desk(keep_alive_s_max=60)
    client = desk.connect(keep_alive_s=asked)
    assert client.take(p.ConnAck).keep_alive_s == told
    desk.pass_time(89_000 if asked != 30 else 44_000)
    assert client.closed is None
    desk.pass_time(2_000)
    assert client.take(p.Disconnect).reason == reasons.KEEP_ALIVE


def test_311_3_1_2_10_a_client_that_cannot_be_told_is_turned_away():
    desk = Desk(keep_alive_s_max=60)
    assert desk.connect(version=p.V311, keep_alive_s=61).take(p.ConnAck).reason
    assert not desk.connect(version=p.V311, keep_alive_s=60).take(p.ConnAck).reason


def test_who_publishes_where_nobody_subscribes_is_told_so():
    """3.4.2.1: 0x10, the message is accepted but there are no subscribers."""
    for others, filter_, reason in ((0, "other", 0x10), (1, "other", 0), (None, "other", 0), (0, "a/#", 0)):
        desk = Desk()
        reader, writer = desk.welcome("r"), desk.welcome("w")
        reader.subscribe(filter_)
        desk.acknowledges = False
        writer.publish("a/b", b"x", qos=1, id=1)
        for number in desk.unanswered:
            desk.host.acknowledged(number, others)
        desk.carry_out()
        assert writer.take(p.Ack).reason == reason


def test_what_was_published_before_a_subscription_and_comes_back_later_is_not_given_to_it():
    """3.8.4: a subscription is for what is published after it. The mesh brings back our own a moment later."""
    desk = Desk()
    desk.confirms = False
    client = desk.welcome()
    client.publish("a/b", b"before")
    (before,) = [emit for emit in desk.emitted if emit.topic == "a/b"]
    client.send(p.Subscribe(1, (p.Asked("a/b", 0),)))
    desk.host.delivered("a/b", "n", before.payload)
    client.publish("a/b", b"after")
    desk.carry_out()
    assert client.payloads() == [b"after"]
