"""A node that has just started copies publications to directories; the PUBACK waits only where somebody may listen."""

from __future__ import annotations

from typing import Any

import pytest

from mqtt.desk import Desk
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.effects import Emit, Want
from trellis.protocols.mqtt.envelope import Answer, Ask, Heard, wrap
from trellis.protocols.mqtt.interests import QUESTIONS, ROOT, WITHIN

LONG_MS = 10_000  # longer than a node needs to hear of every wildcard


class Unproven(Desk):
    """The mesh acknowledges all topics but the directories: none of their homes is sure that nobody subscribes."""

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, Emit) and (effect.topic == ROOT or effect.topic.startswith(WITHIN)):
            self.emitted.append(effect)
            self.unanswered.append(effect.number)
        elif isinstance(effect, Emit) and effect.topic == QUESTIONS:
            self.host.acknowledged(effect.number, None)  # it cannot tell who else is there
        else:
            super()._carry_out(effect)

    def told(self, patterns: tuple[str, ...]) -> None:
        """Another node says which patterns its clients want."""
        said = Ask(1, self.host.config.depth, patterns, tuple(range(1, len(patterns) + 1)), len(patterns))
        self.host.delivered(QUESTIONS, "other", wrap(said))
        self.host.delivered(QUESTIONS, "other", wrap(Heard(1, (Answer("n", 1, (), True),), True)))
        self.carry_out()


def acknowledgements(talker: Any) -> list[int]:
    return [one.id for one in talker.got if isinstance(one, p.Ack)]


def test_a_publication_of_a_node_that_has_just_started_is_acknowledged_though_no_directory_is_proven_empty():
    desk = Unproven(spread_ms=1_000)
    talker = desk.welcome()
    for number in (1, 2):
        talker.publish(f"x/y/{number}", qos=1, id=number)
    assert {one.topic for one in desk.emitted} >= {ROOT, f"{WITHIN}x"}
    assert acknowledgements(talker) == []  # somebody may hold a wildcard of which we have not heard yet
    desk.pass_time(LONG_MS)
    assert acknowledgements(talker) == [1, 2]


def test_a_copy_that_a_wildcard_wants_is_waited_for():
    desk = Unproven(spread_ms=1_000)
    talker = desk.welcome()
    talker.publish("x/y/1", qos=1, id=1)
    desk.told(("x/#",))  # in the directory of x; nobody wants all first levels
    desk.pass_time(LONG_MS)
    assert acknowledgements(talker) == []
    desk.acknowledge()
    assert acknowledgements(talker) == [1]


def test_a_node_that_has_heard_of_every_wildcard_copies_only_where_one_fits():
    desk = Unproven(spread_ms=1_000)
    talker = desk.welcome()
    talker.publish("x/y/1", qos=1, id=1)
    desk.told(("x/#",))
    desk.pass_time(5_000)
    desk.emitted.clear()
    talker.publish("x/y/2", qos=1, id=2)
    assert [one.topic for one in desk.emitted] == ["x/y", f"{WITHIN}x"]


class Slow(Desk):
    """The mesh confirms a subscription when the test says so, and delivers on it before."""

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, Want):
            self.wanted.add(effect.topic)
        else:
            super()._carry_out(effect)

    def confirm(self, *topics: str) -> None:
        for topic in topics:
            assert topic in self.wanted
            self.host.confirmed(topic)
            self.carry_out()


@pytest.mark.parametrize("first", [(QUESTIONS,), (QUESTIONS, f"{WITHIN}q", f"{WITHIN}r")])
def test_a_reader_whose_suback_came_early_gets_a_stream_of_its_own_node_without_a_hole(first):
    """The node learns that it is alone before it has told its second pattern. Until then it copied everything."""
    desk = Slow(suback_s=1.0)
    other, reader, publisher = desk.welcome("other"), desk.welcome("reader"), desk.welcome("publisher")
    other.send(p.Subscribe(1, (p.Asked("q/#", 1),)))
    reader.send(p.Subscribe(1, (p.Asked("r/#", 1),)))
    desk.pass_time(2_000)
    assert isinstance(reader.take(), p.SubAck)
    assert desk.host.counters["subacks early"] == 2
    publisher.publish("r/x", b"one", qos=1, id=1)
    desk.confirm(*first)
    publisher.publish("r/x", b"two", qos=1, id=2)
    desk.pass_time(400)
    desk.confirm(f"{WITHIN}q", f"{WITHIN}r", "r/x")
    publisher.publish("r/x", b"three", qos=1, id=3)
    desk.pass_time(400)
    publisher.publish("r/x", b"four", qos=1, id=4)
    assert acknowledgements(publisher) == [1, 2, 3, 4]
    assert reader.payloads() == [b"one", b"two", b"three", b"four"]
    assert desk.emitted[-1].topic == "r/x", "it has joined the overlay topic, and still gets copies"


def test_a_wildcard_gets_new_topics_of_its_own_node_after_another_wildcard_was_dropped():
    desk = Desk()
    reader, other, publisher = desk.welcome("reader"), desk.welcome("other"), desk.welcome("publisher")
    reader.subscribe("#")
    other.subscribe("+/1/t")
    desk.pass_time(1_000)
    other.send(p.Unsubscribe(1, ("+/1/t",)))
    publisher.publish("x/0/t", b"new", qos=1, id=1)
    desk.pass_time(1_000)
    assert reader.payloads() == [b"new"]
