"""A node that has just started copies publications to directories; the PUBACK waits only where somebody may listen."""

from __future__ import annotations

from typing import Any

from mqtt.desk import Desk
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.effects import Emit
from trellis.protocols.mqtt.envelope import Ask, wrap
from trellis.protocols.mqtt.interests import QUESTIONS, ROOT, WITHIN

ASK_S = 4.0
LONG_MS = 7_000  # a node counts as informed one and a half `ask_s` after it has joined, at the latest


class Unproven(Desk):
    """The mesh acknowledges nothing on topics of its own: none of their homes is sure that nobody subscribes."""

    def __init__(self) -> None:
        super().__init__(ask_s=ASK_S)

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, Emit) and effect.topic.startswith("$"):
            self.emitted.append(effect)
            self.unanswered.append(effect.number)
        else:
            super()._carry_out(effect)

    def told(self, patterns: tuple[str, ...]) -> None:
        """Another node says which patterns its clients want."""
        self.host.delivered(QUESTIONS, "other", wrap(Ask(1, self.host.config.depth, patterns)))
        self.carry_out()


def acknowledgements(talker: Any) -> list[int]:
    return [one.id for one in talker.got if isinstance(one, p.Ack)]


def test_a_publication_of_a_node_that_has_just_started_is_acknowledged_though_no_directory_is_proven_empty():
    desk = Unproven()
    talker = desk.welcome()
    for number in (1, 2):
        talker.publish(f"x/y/{number}", qos=1, id=number)
    assert {one.topic for one in desk.emitted} >= {ROOT, f"{WITHIN}x"}
    assert acknowledgements(talker) == []  # somebody may hold a wildcard of which we have not heard yet
    desk.pass_time(LONG_MS)
    assert acknowledgements(talker) == [1, 2]
    for number in desk.unanswered:  # much later, and nobody waits for it
        desk.host.not_acknowledged(number, "1 of 2 copies after 30000 ms")
    assert not desk.host.counters["not acknowledged"]


def test_a_copy_that_a_wildcard_wants_is_waited_for():
    desk = Unproven()
    talker = desk.welcome()
    talker.publish("x/y/1", qos=1, id=1)
    desk.told(("x/#",))  # in the directory of x; nobody wants all first levels
    desk.pass_time(LONG_MS)
    assert acknowledgements(talker) == []
    desk.acknowledge()
    assert acknowledgements(talker) == [1]


def test_a_node_that_has_heard_of_every_wildcard_copies_only_where_one_fits():
    desk = Unproven()
    talker = desk.welcome()
    talker.publish("x/y/1", qos=1, id=1)
    desk.told(("x/#",))
    desk.pass_time(LONG_MS)  # within `introduce_s`
    desk.emitted.clear()
    talker.publish("x/y/2", qos=1, id=2)
    assert [one.topic for one in desk.emitted] == ["x/y", f"{WITHIN}x"]
