"""A node that has just started copies publications to directories; the PUBACK waits only where somebody may listen."""

from __future__ import annotations

from typing import Any

from mqtt.desk import Desk
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.effects import Emit
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
