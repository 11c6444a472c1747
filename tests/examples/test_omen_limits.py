"""OMen keeps a bounded amount of what strangers tell it, and says nothing that its own codec would refuse."""

from __future__ import annotations

from random import Random

import pytest

from trellis.protocols.omen import OMenConfig, OMenNode
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.events import DONE, DOUBT, EVENTS_MAX, EXE, MENDING, STANDBY, Events
from trellis.protocols.omen.hints import root_key
from trellis.protocols.omen.me import REFUTATIONS
from trellis.protocols.omen.net import KEPT, ROOTS_MAX, Homes
from trellis.protocols.omen.records import LIVES_MAX, HeldRecords


def lonely(name, topics=("t",)):
    node = OMenNode(name, topics, Random(1), OMenConfig())
    node.start()
    return node


# Events


def filled(state, count=EVENTS_MAX):
    events = Events(60)
    for number in range(count):
        events.add("leave", f"x{number}", REFUTATIONS, number, state)
    return events


def test_the_oldest_of_the_events_that_are_over_makes_room():
    events = filled(DONE)
    events.add("leave", "new", REFUTATIONS, 1, STANDBY)
    assert len(events.events) == EVENTS_MAX
    assert events.get("leave", "x0", REFUTATIONS) is None
    assert events.get("leave", "x1", REFUTATIONS) is not None
    assert events.get("leave", "new", REFUTATIONS) is not None


@pytest.mark.parametrize("state", [STANDBY, DOUBT])
def test_of_events_that_others_brought_up_the_newest_makes_room(state):
    events = filled(state)
    events.add("leave", "new", REFUTATIONS, 1, STANDBY)
    assert len(events.events) == EVENTS_MAX
    assert events.get("leave", "x0", REFUTATIONS) is not None
    assert events.get("leave", f"x{EVENTS_MAX - 1}", REFUTATIONS) is None
    assert events.get("leave", "new", REFUTATIONS) is not None


@pytest.mark.parametrize("state", [EXE, MENDING])
def test_a_repair_of_our_own_never_makes_room(state):
    events = filled(state)
    events.add("leave", "new", REFUTATIONS, 1, STANDBY)
    assert len(events.events) == EVENTS_MAX
    assert events.get("leave", "new", REFUTATIONS) is None


def test_a_flood_of_made_up_churn_leaves_a_repair_alone_and_the_node_at_work():
    node = lonely("a")
    mine = node.parts.events.add("join", "joiner", REFUTATIONS, 0, EXE)
    for number in range(EVENTS_MAX + 100):
        node.on_message("liar", m.Churn("join", f"x{number}", REFUTATIONS))
    assert len(node.parts.events.events) == EVENTS_MAX
    assert node.parts.events.get("join", "joiner", REFUTATIONS) is mine
    node.on_timer("omen/tick")
    node.check()


# Records


def record(life):
    return m.Record(life * REFUTATIONS, 1, (), ())


def test_a_sender_that_starts_again_and_again_has_few_records_here():
    held = HeldRecords(1, 60)
    for life in range(1, 101):
        held.on_record("liar", record(life), 0)
    assert len(held.old) == LIVES_MAX
    assert held.of("liar", 100 - LIVES_MAX) == record(100 - LIVES_MAX)
    assert held.before("liar", 100) == 99 * REFUTATIONS


def test_records_of_earlier_lives_are_as_many_as_those_of_present_ones():
    held = HeldRecords(1, 60, entries_max=8)
    for number in range(20):
        for life in (1, 2):
            held.on_record(f"n{number}", record(life), 0)
    assert len(held.held) == len(held.old) == 8
    assert held.of("n19", 1) == record(1)


# The net


def test_a_home_knows_few_roots_of_a_topic_and_always_the_one_that_others_link_to():
    homes = Homes(5)
    names = [f"n{number}" for number in range(100)]
    first = min(names, key=lambda name: root_key("t", name))
    for name in names:
        homes.report("t", name, 1)
    assert len(homes.roots["t"]) == ROOTS_MAX
    assert [homes.report("t", name, 2) for name in names] == [None if name == first else first for name in names]
    assert homes.report("t", names[-1], 2 + 5 * KEPT) is None  # all others are old


def test_a_home_takes_no_more_topics_than_it_can_keep_and_keeps_those_it_has():
    homes = Homes(5, topics_max=2)
    names = sorted("ab", key=lambda name: root_key("t1", name))
    for topic in ("t1", "t2", "t3"):
        assert homes.report(topic, names[0], 1) is None
    assert list(homes.roots) == ["t1", "t2"]
    assert homes.report("t1", names[1], 1) == names[0]
