"""Messages of one publisher on one topic come in their order, whichever way each of them comes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqtt.desk import Desk, Talker
from mqtt.returning import CLIENTS, Nodes
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.arrivals import SIDECAR
from trellis.protocols.mqtt.envelope import Answer, Ask, Copy, Envelope, Heard, Introduce, Who, unwrap, wrap
from trellis.protocols.mqtt.interests import QUESTIONS, ROOT, WITHIN

HOLD_MS = 1_000
LIFE = 7  # of the other node
TOPIC = "m/oven"


class WithOther(Desk):
    """A node beside another node, `x`, whose messages the test delivers as it likes."""

    def __init__(self) -> None:
        super().__init__(hold_ms=HOLD_MS)
        self.reader = self.welcome("reader")

    def says(self, topic: str, *said: Introduce | Copy | Envelope | Heard | Who) -> None:
        for one in said:
            self.host.delivered(topic, "x", wrap(one))
            self.carry_out()

    def subscribe(self, filter_: str, last: int) -> None:
        """The reader subscribes. The other node answers; `last` is the number of its last message until then."""
        self.reader.send(p.Subscribe(1, (p.Asked(filter_, 1),)))
        self.pass_time(400)
        asks = [one for one in map(unwrap, (one.payload for one in self.emitted)) if isinstance(one, Ask)]
        self.says(QUESTIONS, Heard(LIFE, (Answer("n", 1, asks[-1].numbers),), True, (), last))
        self.pass_time(400)
        assert any(isinstance(one, p.SubAck) for one in self.reader.got)
        self.says(f"{WITHIN}m", Introduce((TOPIC,)))

    def got(self) -> list[int]:
        return [int(one) for one in self.reader.payloads()]


def message(number: int, previous: int = 0, before: int = 0, is_copied: bool = True, client: str = "c") -> Envelope:
    return Envelope(TOPIC, b"%d" % number, 1, False, client, LIFE, number, 1, is_copied, previous, before)


def copy(one: Envelope) -> Copy:
    return Copy(TOPIC, one)


@pytest.fixture
def desk() -> WithOther:
    one = WithOther()
    one.says(QUESTIONS, Who(LIFE, True))
    return one


def test_a_late_message_from_before_the_suback_is_dropped(desk):
    desk.subscribe("m/#", last=4)
    desk.says(TOPIC, message(5, previous=4))
    desk.pass_time(2 * HOLD_MS)
    desk.says(f"{WITHIN}m", copy(message(4)))
    desk.says(TOPIC, message(6, previous=5))
    assert desk.got() == [5, 6]
    assert desk.host.directory.counters["late"] == 1


def test_a_late_message_from_after_the_suback_is_waited_for(desk):
    desk.subscribe("m/#", last=3)
    desk.says(TOPIC, message(5, previous=4), message(6, previous=5))
    desk.pass_time(20_000)
    assert desk.got() == []
    desk.says(f"{WITHIN}m", copy(message(4)))
    assert desk.got() == [4, 5, 6]


def test_every_message_of_a_node_that_joined_after_the_suback_is_waited_for():
    desk = WithOther()
    desk.reader.subscribe("m/#")
    desk.pass_time(1_000)
    desk.reader.got.clear()
    desk.says(QUESTIONS, Who(LIFE, True))
    desk.says(f"{WITHIN}m", Introduce((TOPIC,)))
    desk.says(TOPIC, message(2, previous=1))
    desk.pass_time(20_000)
    desk.says(f"{WITHIN}m", copy(message(1)))
    assert desk.got() == [1, 2]


def test_a_message_that_never_comes_holds_back_others_for_a_minute_at_most(desk):
    desk.subscribe("m/#", last=3)
    desk.says(TOPIC, message(5, previous=4))
    desk.pass_time(61_000)
    assert desk.got() == [5]


def test_nothing_is_waited_for_that_no_path_brings_any_more(desk):
    desk.subscribe("m/#", last=3)
    desk.says(TOPIC, message(5, previous=4))
    desk.says(f"{WITHIN}m", copy(message(5, previous=4)))
    assert desk.got() == [5]


def test_a_copy_that_comes_over_two_directories_waits_for_what_comes_over_its_topic(desk):
    desk.subscribe("m/#", last=3)
    other = desk.welcome("other")
    other.send(p.Subscribe(1, (p.Asked("#", 1),)))
    desk.pass_time(HOLD_MS)
    after = message(5, before=4)
    desk.says(f"{WITHIN}m", copy(after))
    desk.says(ROOT, copy(after))
    assert desk.got() == []
    desk.says(TOPIC, message(4, is_copied=False), after)
    assert desk.got() == [4, 5]


def test_a_plain_filter_gets_what_a_copy_for_a_wildcard_has_overtaken(desk):
    plain = desk.welcome("plain")
    assert plain.subscribe(TOPIC) == (1,)
    plain.got.clear()
    desk.subscribe("m/#", last=5)
    desk.says(f"{WITHIN}m", copy(message(5, before=4)))
    desk.pass_time(10 * HOLD_MS)
    desk.says(TOPIC, message(4, is_copied=False))
    assert [int(one) for one in plain.payloads()] == [4, 5]


def test_nobody_waits_long_for_a_message_from_before_both_kinds_of_subscription(desk):
    """The other node told its last message before the mesh confirmed the overlay topic that a client has named."""
    desk.subscribe("m/#", last=4)
    desk.welcome("plain").subscribe(TOPIC)
    desk.says(f"{WITHIN}m", copy(message(5, previous=4)))
    desk.pass_time(2 * HOLD_MS)
    assert desk.got() == [5]


def test_a_late_message_of_a_sidecar_is_not_dropped(desk):
    """The sidecar publishes a message again, under its number, until the mesh has acknowledged it."""
    desk.subscribe("m/#", last=0)
    desk.says(TOPIC, message(2, client=f"{SIDECAR}x"), message(1, client=f"{SIDECAR}x"))
    assert desk.got() == [2, 1]


def test_a_late_retained_message_is_retained_though_nobody_gets_it(desk):
    desk.subscribe("m/#", last=4)
    late = Envelope(f"{TOPIC}/lamp", b"4", 1, True, "c", LIFE, 4, 1, True)
    desk.says(TOPIC, message(5, previous=4))
    desk.pass_time(2 * HOLD_MS)
    desk.says(f"{WITHIN}m", Copy(TOPIC, late))
    assert desk.got() == [5]
    assert desk.host.retained.get(late.topic) is not None


def published(desk: Desk) -> list[Envelope]:
    found = [unwrap(one.payload) for one in desk.emitted if one.topic == TOPIC]
    return [one for one in found if isinstance(one, Envelope)]


def with_holder() -> tuple[Desk, Talker]:
    """A node that copies what it publishes to another node, `x`."""
    desk = Desk(retained_max=1)
    desk.host.delivered(QUESTIONS, "x", wrap(Ask(LIFE, 2, ("m/+",), (1,), 1, (), True)))
    desk.carry_out()
    return desk, desk.welcome("publisher")


def test_nobody_waits_for_a_publication_that_the_mesh_refused():
    desk, publisher = with_holder()
    publisher.publish(TOPIC, b"1", qos=1, id=1)
    desk.acknowledges = False
    publisher.publish(TOPIC, b"2", qos=1, id=2)
    for number in desk.unanswered:
        desk.host.not_acknowledged(number, "too many publications wait")
    publisher.publish(TOPIC, b"3", qos=1, id=3)
    first, _, third = published(desk)
    assert third.previous == first.number > 0


def test_nobody_waits_for_a_publication_that_could_not_be_retained():
    desk, publisher = with_holder()
    publisher.publish("n/else", b"x", qos=1, id=1, retain=True)
    publisher.publish(TOPIC, b"1", qos=1, id=2)
    publisher.publish(TOPIC, b"2", qos=1, id=3, retain=True)
    publisher.publish(TOPIC, b"3", qos=1, id=4)
    first, third = published(desk)
    assert (first.payload, third.payload) == (b"1", b"3")
    assert third.previous == first.number > 0


def test_a_node_tells_with_its_answer_which_message_was_its_last():
    desk, publisher = with_holder()
    publisher.publish(TOPIC, b"1", qos=1, id=1)
    desk.host.delivered(QUESTIONS, "x", wrap(Ask(LIFE, 2, ("m/+", "n/+"), (1, 2), 2, (), True, True)))
    desk.pass_time(400)
    heard = [one for one in map(unwrap, (one.payload for one in desk.emitted)) if isinstance(one, Heard)]
    assert heard[-1].number == published(desk)[-1].number


def test_a_message_with_qos_0_does_not_overtake_one_with_qos_1_that_waits_for_its_client():
    desk = Desk(inflight_max=1)
    reader, publisher = desk.welcome("reader"), desk.welcome("publisher")
    reader.subscribe(TOPIC, "m/else")
    reader.got.clear()
    publisher.publish(TOPIC, b"1", qos=1, id=1)
    publisher.publish(TOPIC, b"2", qos=1, id=2)
    publisher.publish(TOPIC, b"3")
    publisher.publish("m/else", b"4")
    first = reader.got[0]
    assert reader.payloads() == [b"1", b"4"]
    reader.send(p.Ack(p.PUBACK, first.id))
    assert reader.payloads() == [b"2", b"3"]


def test_a_message_with_qos_0_that_waits_outlives_the_connection_of_its_session():
    desk = Desk(inflight_max=1)
    reader, publisher = desk.welcome("reader", expiry_s=60), desk.welcome("publisher")
    reader.subscribe(TOPIC)
    publisher.publish(TOPIC, b"1", qos=1, id=1)
    publisher.publish(TOPIC, b"2", qos=1, id=2)
    publisher.publish(TOPIC, b"3")
    reader.drop()
    publisher.publish(TOPIC, b"4", qos=1, id=3)
    back, got = desk.welcome("reader", clean_start=False), []
    while back.got:
        got.append(back.take(p.Publish))
        if got[-1].id is not None:
            back.send(p.Ack(p.PUBACK, got[-1].id))
    assert [one.payload for one in got] == [b"1", b"2", b"3", b"4"]


@settings(max_examples=6, deadline=None)
@example(26)  # a copy that came over two directories was handed over before what came over its topic
@given(st.integers(0, 2**32))
def test_whoever_subscribes_while_others_publish_gets_everything_once_and_in_order(seed):
    """Few topics, many publications, and paths that are slower than messages wait for what is not owed."""
    random = Random(seed)
    nodes = Nodes("abc", random, delay_ms_max=random.choice([300, 800, 3_000]))
    nodes.pass_time(30_000)
    for _ in range(150):
        name, number = random.choice(nodes.names), random.choice(CLIENTS)
        held = sorted(nodes.clients[name, number].filters)
        match random.randrange(12):
            case 0:
                nodes.subscribe(name, number, random.choice(["#", "x/#", "x/+/t", "x/1/t"]))
            case 1 if held:
                filter_ = random.choice(held)
                nodes.unsubscribe(name, number, filter_)
                if random.random() < 0.5:
                    nodes.subscribe(name, number, filter_)
            case 2 if random.random() < 0.3:
                nodes.reconnect(name, number)
            case _:
                nodes.publish(name, number, random.choice(["x/1/t", "x/2/t"]))
        nodes.pass_time(random.choice([20, 60, 400]))
    nodes.pass_time(15_000)
    assert not nodes.missed()
    assert not nodes.twice()
    assert not nodes.disordered()


def test_a_message_published_before_a_subscribe_of_the_same_client_does_not_come_to_it():
    """Not even if the node is on the topic already, and the message comes back from the mesh after the SUBSCRIBE."""
    desk = Desk()
    talker = desk.welcome()
    talker.publish("t", b"kept", retain=True)  # now the node takes part in the topic
    given = desk.host.delivered
    waiting: list[tuple[str, str, bytes]] = []
    desk.host.delivered = lambda *said: waiting.append(said)  # type: ignore[method-assign]
    talker.publish("t", b"early")
    talker.subscribe(p.Asked("t", 0, retain_handling=2))
    talker.publish("t", b"late")
    for said in waiting:
        given(*said)
    desk.carry_out()
    assert talker.payloads() == [b"late"]
