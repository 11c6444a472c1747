"""OMen keeps a bounded amount of what strangers tell it, and says nothing that its own codec would refuse."""

from __future__ import annotations

from random import Random

import pytest

from trellis.protocols import topics as topics_module
from trellis.protocols.effects import Send
from trellis.protocols.omen import CODEC, OMenConfig, OMenNode
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.links.hints import Hints, root_key
from trellis.protocols.omen.links.links import ASKERS_MAX
from trellis.protocols.omen.links.records import RUNS_MAX, HeldRecords
from trellis.protocols.omen.me import REFUTATIONS, Me
from trellis.protocols.omen.membership.events import DONE, DOUBT, EVENTS_MAX, EXE, REPAIRING, STANDBY, Events
from trellis.protocols.omen.rendezvous.homes import KEPT, ROOTS_MAX, Homes
from trellis.protocols.omen.repair.asked import QUESTIONS_MAX
from trellis.protocols.topics import TopicTable


def lonely(name, topics=("t",)):
    node = OMenNode(name, topics, Random(1), OMenConfig())
    node.start()
    return node


def passed(sender, receiver, effects):
    """Hands the messages of `sender` for `receiver` over, as bytes; gives what the receiver does."""
    sent = [effect.message for effect in effects if isinstance(effect, Send) and effect.to == receiver.id]
    return [effect for one in sent for effect in receiver.on_message(sender.id, CODEC.decode(CODEC.encode(one)))]


def linked(a, b):
    passed(a, b, passed(b, a, passed(a, b, a.on_message("c", m.OpenLink(1, b.id)))))
    assert (a.me.degree, b.me.degree) == (1, 1)


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


@pytest.mark.parametrize("state", [EXE, REPAIRING])
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
    assert len(held.old) == RUNS_MAX
    assert held.of("liar", 100 - RUNS_MAX) == record(100 - RUNS_MAX)
    assert held.before("liar", 100) == 99 * REFUTATIONS


def test_records_of_earlier_lives_are_as_many_as_those_of_present_ones():
    held = HeldRecords(1, 60, entries_max=8)
    for number in range(20):
        for life in (1, 2):
            held.on_record(f"n{number}", record(life), 0)
    assert len(held.held) == len(held.old) == 8
    assert held.of("n19", 1) == record(1)


# The net


def test_a_home_knows_few_roots_of_a_topic_those_of_smallest_key():
    homes = Homes(5)
    names = sorted((f"n{number}" for number in range(100)), key=lambda name: root_key("t", name))
    for name in reversed(names):
        homes.report("t", name, 1)
    assert list(homes.roots["t"]) == names[:ROOTS_MAX][::-1]
    assert homes.report("t", names[-1], 2) == names[:ROOTS_MAX]
    assert homes.report("t", names[1], 2) == [names[0], *names[2:ROOTS_MAX]]
    assert homes.report("t", names[-1], 2 + 5 * KEPT) == []  # all others are old


def test_a_home_takes_no_more_topics_than_it_can_keep_and_keeps_those_it_has():
    homes = Homes(5, topics_max=2)
    for topic in ("t1", "t2", "t3"):
        assert homes.report(topic, "a", 1) == []
    assert list(homes.roots) == ["t1", "t2"]
    assert homes.report("t1", "b", 1) == ["a"]


# Topics


def test_questions_and_hints_about_topics_that_nobody_has_leave_nothing_behind():
    node = lonely("a", ("t",))
    for message in (
        m.RootMeet("made up", "x"),
        m.RootHeard("made up"),
        m.Ask(1, 1, ("made up", "too")),
    ):
        node.on_message("liar", message)
    node.parts.hints.told("liar", [m.Hint("made up", ())])
    assert node.me.table.names == ["t"]
    assert not node.roots._home_of
    assert not node.parts.hints._heard


def test_an_answer_is_about_the_places_of_the_topics_in_the_question():
    a, b = lonely("a", ("t", "u")), lonely("b", ("t", "v"))
    linked(a, b)
    (sent,) = a.on_message("c", m.Ask(1, 1, ("made up", "v", "u", "t")))
    assert (m.unpack(sent.message.wants), sent.message.neighbours[0].wants) == (0b1100, m.pack(0b1010))


def test_a_hint_that_comes_between_an_unsubscription_and_the_next_subscription_is_kept():
    """The peer has not seen us go, so it does not tell again."""
    root, name = sorted("ab", key=lambda name: root_key("t", name))
    hints = Hints(Me(name, ("s", "t"), TopicTable(), 1))
    both, place = hints.me.interest, hints.me.table.bit("t").bit_length() - 1
    hints.me.take_part(hints.me.table.bit("s"))
    hints.refresh()
    hints.told(root, [m.Hint("t", ())])
    hints.me.take_part(both)
    hints.refresh()
    assert hints.paths[place] == (root,)


def test_hints_of_a_peer_that_has_gone_leave_nothing_behind():
    hints = Hints(Me("a", ("t",), TopicTable(), 1))
    hints.told("b", [m.Hint("t", ())])
    hints.forget("b")
    assert hints._heard == {}


def test_interests_that_were_looked_up_are_forgotten_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr(topics_module, "_CACHED_TOPICS_MAX", 100)
    table = TopicTable()
    for number in range(50):
        interest = tuple(f"t{number + step}" for step in range(30))
        assert table.topics(table.bits(interest)) == tuple(sorted(interest))
        assert sum(len(key) for key in table._cache) <= 100


# Links


def test_no_more_links_are_asked_for_or_accepted_than_a_record_can_name():
    node = lonely("a")
    for number in range(m.LINKS_MAX + 10):
        node.on_message("liar", m.OpenLink(1, f"x{number}"))
    assert len(node.links.links) == m.LINKS_MAX
    answer = node.on_message("b", m.Connect(REFUTATIONS, ("t",), 0))
    assert answer == [Send("b", m.Stranger(REFUTATIONS))]
    assert "b" not in node.links
    node.check()


def test_who_is_one_too_many_to_wait_for_a_link_is_answered_when_it_asks_again():
    a, b = lonely("a"), lonely("b")
    for number in range(ASKERS_MAX + 1):
        a.on_message("c", m.OpenLink(number, "b"))
    assert len(a.links.links["b"].askers) == ASKERS_MAX
    passed(a, b, passed(b, a, passed(a, b, a.on_timer("omen/tick"))))
    assert a.on_message("c", m.OpenLink(ASKERS_MAX, "b")) == [Send("c", m.LinkOpened(ASKERS_MAX, "b", 1))]


# Hints by the thousand


def test_more_hints_than_one_message_holds_are_all_told_before_they_are_claimed():
    topics = tuple(sorted(f"t{number}" for number in range(2 * m.HINTS_MAX + 100)))
    a, b = lonely("a", topics), lonely("b", topics)
    linked(a, b)
    beats = 0
    while a.links.links["b"].acknowledged < a.me.version or b.links.links["a"].acknowledged < b.me.version:
        beats += 1
        passed(a, b, a.on_timer("omen/tick"))
        passed(b, a, b.on_timer("omen/tick"))
    for node, other in (a, "b"), (b, "a"):
        for place, topic in enumerate(node.me.table.names):
            is_root = root_key(topic, node.id) < root_key(topic, other)
            assert node.parts.hints.paths[place] == (() if is_root else (other,))
    assert 3 <= beats <= 6


def test_an_answer_about_very_many_topics_names_no_more_hints_than_can_be_read():
    topics = tuple(sorted(f"t{number}" for number in range(4 * m.HINTS_MAX)))
    node = lonely("a", topics)
    node.parts.hints.told("b", [m.Hint(topic, ()) for topic in topics])
    (sent,) = node.on_message("c", m.Ask(1, 1, topics))
    assert CODEC.decode(CODEC.encode(sent.message)) == sent.message
    assert len(sent.message.hints) == m.HINTS_MAX


# Questions


def test_a_peer_that_asks_much_forgets_its_own_questions_and_not_those_of_others():
    node = lonely("a")
    node.on_message("honest", m.Ask(1, 1, ("t",)))
    for number in range(QUESTIONS_MAX + 10):
        node.on_message("loud", m.Ask(number, 1, ()))
    node.check()
    assert node.asked.about(node.me.interest), "the honest coordinator may still link us"
    node.on_message("late", m.Ask(1, 1, ("t",)))
    assert node.asked.since("late", 0)


def test_a_node_is_released_although_others_ask_much():
    node = lonely("a")
    node.on_message("b", m.Ask(1, 1, ("t",)))
    for number in range(QUESTIONS_MAX + 10):
        node.on_message("loud", m.Ask(number, 1, ()))
    node.on_message("b", m.Ask(1, 2, ()))
    assert not node.asked.about(node.me.interest)


def test_a_question_for_a_record_that_has_gone_round_is_no_proof_that_nobody_has_it():
    node = lonely("a")
    hops = node.config.hops_max
    assert node.on_message("b", m.FindRecord("x", 1, "b", 7, hops, 0)) == []
    (unknown,) = node.on_message("b", m.FindRecord("x", 1, "b", 7, hops - 1, 0))
    assert (unknown.to, unknown.message.last, unknown.message.record) == ("b", True, None)


def test_a_node_that_is_told_that_its_link_is_gone_renews_its_record():
    """Its incarnation has grown. Without a new record its departure would be looked up under the old one."""
    a, b = lonely("a"), lonely("b")
    linked(a, b)
    a.on_message("b", m.Stranger(a.me.incarnation))
    assert a.parts.own.record.incarnation == a.me.incarnation
