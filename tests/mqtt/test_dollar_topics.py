"""Topics that begin with `$` belong to the server.  [MQTT 5 and 3.1.1, 4.7.2]"""

from __future__ import annotations

import pytest

from mqtt.desk import Desk
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons

TOPICS = pytest.mark.parametrize("topic", ["$SYS/broker/uptime", "$SYS", "$share/g/a", "$mqtt/all", "$TopicA/B", "$"])


def published(desk: Desk) -> list[str]:
    """Return the overlay topics on which something was published, apart from what directories say to each other."""
    return [one.topic for one in desk.emitted if one.topic != "$mqtt/ask"]


@TOPICS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_of_5_hears_that_it_may_not_publish_on_a_topic_of_the_server(topic, qos):
    desk = Desk()
    client = desk.welcome()
    client.publish(topic, qos=qos, id=1)
    answer = client.take(p.Ack)
    assert (answer.kind, answer.reason) == (p.PUBACK if qos == 1 else p.PUBREC, reasons.NOT_AUTHORIZED)
    assert answer.text is None, "Paho's suite reads no PUBACK that is longer than its reason code"
    client.publish("a/b", qos=qos, id=1)  # the identifier is free again, and the connection goes on
    assert client.take(p.Ack).reason == reasons.SUCCESS
    assert published(desk) == ["a/b"]


@TOPICS
def test_a_client_of_3_1_1_gets_all_acknowledgements_and_nobody_gets_its_message(topic):
    """[MQTT 3.1.1, MQTT-3.3.5-2]: the server acknowledges, or closes the connection."""
    desk = Desk()
    reader, client = desk.welcome("reader"), desk.welcome("c", p.V311)
    reader.subscribe("#", "+/#", "$SYS/#")
    reader.got.clear()
    client.publish(topic)
    client.publish(topic, qos=1, id=1, retain=True)
    assert client.take(p.Ack) == p.Ack(p.PUBACK, 1)
    client.publish(topic, qos=2, id=2)
    assert client.take(p.Ack) == p.Ack(p.PUBREC, 2)
    client.send(p.Ack(p.PUBREL, 2))
    assert client.take(p.Ack) == p.Ack(p.PUBCOMP, 2)
    assert client.closed is None
    assert not published(desk)
    assert not reader.payloads()
    assert desk.host.counters["publications refused"] == 3
    assert not len(desk.host.retained)


def test_acknowledgements_of_refused_publications_keep_their_turn():
    """[MQTT-4.6.0-2]"""
    desk = Desk()
    client = desk.welcome("c", p.V311)
    desk.acknowledges = False
    client.publish("a/b", qos=1, id=1)
    client.publish("$SYS/x", qos=1, id=2)
    assert not client.got
    desk.acknowledge()
    assert [one.id for one in client.got] == [1, 2]


@pytest.mark.parametrize("version", [p.V5, p.V311])
def test_sys_filters_are_granted_at_once_and_stay_in_the_node(version):
    desk = Desk()
    desk.confirms = False
    before = set(desk.wanted)
    client = desk.welcome("c", version)
    client.send(p.Subscribe(1, (p.Asked("$SYS/#", 1), p.Asked("$SYS", 0), p.Asked("$SYS/+/uptime", 2))))
    assert client.take(p.SubAck).reasons == (1, 0, 2)
    assert desk.wanted == before, "the mesh is told nothing of it"
    assert not desk.host.interests.patterns
    client.send(p.Unsubscribe(2, ("$SYS/#", "$SYS/x", "$SYS")))
    answer = client.take(p.UnsubAck)
    assert version == p.V311 or answer.reasons == (0, reasons.NO_SUBSCRIPTION, 0)
    client.drop()
    assert not desk.host.tree.count
    assert desk.wanted == before


@pytest.mark.parametrize("filter_", ["$other/#", "$", "$SYSTEM/#", "$mqtt/ask", "$sys/#", "$SYS/broker/log/M/#"])
def test_other_filters_that_begin_with_the_sign_are_refused(filter_):
    desk = Desk()
    assert desk.welcome().subscribe(filter_) == (reasons.FILTER_INVALID,)
    assert desk.welcome("old", p.V311).subscribe(filter_) == (0x80,)
    assert not desk.host.tree.count


def test_a_sidecar_cannot_read_sys_of_its_node():
    """Its broker has a `$SYS` of its own."""
    desk = Desk()
    desk.host.attach(99, "$sidecar/n", 10)
    desk.host.received(99, p.Subscribe(1, (p.Asked("$SYS/#", 1),)))
    assert not desk.host.tree.count
    assert desk.host.subscriptions.refused.keys() == {"$SYS/#"}
