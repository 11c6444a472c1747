"""OMen says what is needed and no more: links, records, reports, roots."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import LinkUp, Send
from trellis.protocols.omen import OMenConfig, OMenNode
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.knowledge import Answers, Told
from trellis.protocols.omen.links.hints import root_key
from trellis.protocols.omen.me import REFUTATIONS
from trellis.protocols.omen.repair.offers import Offer, covering
from trellis.protocols.omen.repair.procedure import Context
from trellis.protocols.omen.repair.repair import Departed, Repair
from trellis.protocols.omen.shadow import low_edges
from trellis.protocols.ring import clockwise, identifier
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems.omen import OMen

LIFE = 3


def lonely(name, topics=("t",)):
    node = OMenNode(name, topics, Random(1), OMenConfig(), incarnation=LIFE)
    node.start()
    return node


def said(effects, to):
    return [effect.message for effect in effects if isinstance(effect, Send) and effect.to == to]


def passed(sender, receiver, effects):
    return [effect for one in said(effects, receiver.id) for effect in receiver.on_message(sender.id, one)]


def opened(a, *peers, mend=7):
    first, *more = [m.NodeRun(peer.id, peer.me.incarnation) for peer in peers]
    return a.on_message("c", m.OpenLink(mend, first.node, first.incarnation, tuple(more)))


# Links


def test_two_messages_open_a_link_to_a_peer_whose_life_is_known():
    a, b = lonely("a"), lonely("b")
    asks = opened(a, b)
    assert [type(one) for one in said(asks, "b")] == [m.Connect]
    answers = passed(a, b, asks)
    assert [type(one) for one in said(answers, "a")] == [m.ConnectOk]
    assert LinkUp("a") in answers
    done = passed(b, a, answers)
    assert LinkUp("b") in done
    assert said(done, "b") == []
    assert said(done, "c") == [m.LinkOpened(7, "b", 1, 1)]


def test_a_connect_follows_when_the_holders_of_the_record_name_the_peer_and_not_before():
    """So whoever accepts it knows that the link is known to somebody if both ends die."""
    a, b = lonely("a"), lonely("b")
    a.ring.tman.learn([lonely("holder").me.describe()])
    (record,) = said(opened(a, b), "holder")
    assert record.neighbours == (m.NodeRun("b", LIFE * REFUTATIONS),)
    told = a.on_message("holder", m.RecordOk(record.version, record.incarnation, LIFE))
    assert [one.named for one in said(told, "b")] == [LIFE * REFUTATIONS]


def test_a_record_that_names_an_earlier_life_of_the_receiver_counts_for_nothing():
    a, b = lonely("a"), lonely("b")
    asks = a.on_message("c", m.OpenLink(7, "b", (LIFE - 1) * REFUTATIONS))
    answers = passed(a, b, asks)
    assert LinkUp("a") not in answers
    done = passed(b, a, answers)  # its record is renewed, then it says so
    assert LinkUp("a") in passed(a, b, done)


def test_a_peer_of_an_earlier_version_that_answers_at_once_is_told_when_we_are_ready():
    a = lonely("a")
    a.on_message("c", m.OpenLink(7, "b", LIFE * REFUTATIONS))
    told = a.on_message("b", m.ConnectOk(LIFE * REFUTATIONS, ("t",), 0, 1))
    assert said(told, "b") == [m.LinkReady(LIFE * REFUTATIONS)]
    assert LinkUp("b") in a.on_message("b", m.LinkReady(LIFE * REFUTATIONS))


def test_a_connect_that_comes_again_is_answered_before_the_record_is_known():
    a, b = lonely("a"), lonely("b")
    b.ring.tman.learn([lonely("holder").me.describe()])
    asks = opened(a, b)
    assert said(passed(a, b, asks), "a") == []
    assert [one.ready for one in said(passed(a, b, asks), "a")] == [False]


def test_one_message_tells_of_all_links_of_a_repair_when_the_last_one_stands_or_is_refused():
    a, b, c = lonely("a"), lonely("b"), lonely("d")
    asks = opened(a, b, c, lonely("nobody"))
    done = [*passed(b, a, passed(a, b, asks)), *passed(c, a, passed(a, c, asks))]
    assert said(done, "c") == []
    refused = a.on_peer_down("nobody")
    assert said(refused, "c") == [m.LinkOpened(7, "b", 1, 1, (m.Opened("d", 1),))]
    assert not a.links._opened


def relink(*ends, topics, **options):
    """A repair after a lost link, between these nodes."""
    mend = Repair(1, "relink", "v", 1, Context("me", OMenConfig(**options), low_edges, len), topics)
    mend.link_ends = ends
    return mend


def repair():
    """A repair that has answers of a, b and x, and joins a and b to x by two links."""
    mend = relink("aa", "bbb", "x", topics=("t", "u"))
    mend.start()
    effects = []
    for name, wants in (("aa", 0b01), ("bbb", 0b10), ("x", 0b11)):
        effects = mend.on_answer(name, m.Answer(1, 1, 5, 0, m.pack(wants), b"", (), topics_version=4))
    return mend, effects


def test_links_are_opened_from_the_end_that_has_most_of_them_and_later_from_both():
    mend, effects = repair()
    assert {one.to: one.message for one in effects if isinstance(one, Send)} == {
        "x": m.OpenLink(1, "aa", 5, (m.NodeRun("bbb", 5),))
    }
    again = [(one.to, one.message.peer) for one in mend.on_timer() if isinstance(one, Send)]
    assert sorted(again) == [("aa", "x"), ("bbb", "x"), ("x", "aa"), ("x", "bbb")]


@pytest.mark.parametrize(("own", "other", "state"), [(4, 4, "done"), (5, 4, "answers"), (4, 5, "answers")])
def test_a_repair_begins_anew_where_either_end_has_changed_its_topics(own, other, state):
    mend, _ = repair()
    mend.on_opened("x", m.LinkOpened(1, "aa", own, 4, (m.Opened("bbb", other),)))
    assert mend.state == state


# Questions


def split(described, **options):
    """A repair whose required nodes, which want t and u, are apart; up to their answers."""
    context = Context("me", OMenConfig(**options), low_edges, len, described=described.get)
    mend = Repair(1, "relink", "v", 1, context, ("s", "t", "u"))
    mend.link_ends, mend.backups = ("aa", "bbb"), list(described)
    mend.start()
    for name in ("aa", "bbb"):
        effects = mend.on_answer(name, m.Answer(1, 1, 5, 0, m.pack(0b110), b"", ()))
    return mend, [effect.to for effect in effects if isinstance(effect, Send)]


def triangle():
    """Three nodes that are apart on t. Each two have a neighbor in common, and `mid` is a neighbor of all three."""
    mend = relink("a", "b", "c", topics=("t",))
    mend.start()
    effects = []
    for name, peers in {"a": ("x", "mid", "z"), "b": ("x", "y", "mid"), "c": ("y", "z", "mid")}.items():
        effects = mend.on_answer(name, answer(*peers))
    return mend, [effect.to for effect in effects if isinstance(effect, Send)]


def answer(*peers, wants=1):
    return m.Answer(
        1, 1, LIFE, len(peers), m.pack(wants), b"", tuple(m.Neighbor(one, LIFE, m.pack(1)) for one in peers)
    )


def test_one_node_is_asked_where_it_may_connect_all_parts():
    mend, asked = triangle()
    assert asked == ["mid"]
    mend.on_answer("mid", answer("a", "b", "c"))
    assert (mend.state, mend.links.opened, mend.links.opening) == ("done", [], {})


def test_all_nodes_on_ways_between_parts_are_asked_where_the_first_answers_prove_too_little():
    mend, _ = triangle()
    (more,) = [one for one in mend.on_answer("mid", answer("a", "b", "c", wants=0)) if isinstance(one, Send)]
    assert (more.to, *more.message.way.left) == ("x", "y", "z")
    mend.on_answer("x", answer("a", "b"))
    mend.on_answer("y", answer("b", "c"))
    mend.on_answer("z", answer("c", "a"))
    assert (mend.state, mend.links.opening) == ("done", {})


def test_a_node_that_is_asked_for_another_topic_is_preferred():
    answers = Answers()
    for name in ("a", "b"):
        answers.add(name, Told(answer("x", "y"), {"t": 0}))
    assert answers.worth_asking(0, {"a", "b"}, (), hints=False, asked=set()) == {"x"}
    assert answers.worth_asking(0, {"a", "b"}, (), hints=False, asked={"y"}) == {"y"}


def test_backups_are_asked_that_have_two_topics_which_are_apart():
    topics = {"none": ("s",), "one": ("s", "t"), "both": ("t", "u")}
    _, asked = split({name: Descriptor(name, interest=some) for name, some in topics.items()})
    assert asked == ["both"]


def test_of_backups_with_the_same_topics_the_one_with_fewest_links_is_asked():
    """The others could save no further link."""
    degrees = {"many": 40, "few": 3, "some": 7}
    known = {name: Descriptor(name, interest=("t", "u"), numbers=(degree,)) for name, degree in degrees.items()}
    _, asked = split(known)
    assert asked == ["few"]


def test_backups_are_asked_until_they_cover_all_topics_or_add_too_few():
    offers = {"a": Offer(0b000111), "b": Offer(0b011100), "c": Offer(0b110000), "d": Offer(0b100000), "e": Offer(0)}
    assert covering(offers, 2, len) == ["a", "b"]
    assert covering(offers, 1, len) == ["a", "b", "c"]
    assert covering({}, 1, len) == []


@pytest.mark.parametrize("tries", [1, 2])
def test_a_dead_backup_holds_a_repair_up_for_as_many_questions_as_it_is_told(tries):
    mend, asked = split({"both": Descriptor("both", interest=("t", "u"))}, optional_tries=tries)
    questions = len(asked)
    while mend.state == "backups":
        questions += sum(isinstance(effect, Send) and effect.to == "both" for effect in mend.on_timer())
    assert (mend.state, questions) == ("links", tries)


# Records


def test_a_holder_is_sent_one_record_at_a_time():
    a = lonely("a")
    a.ring.tman.learn([lonely("holder").me.describe()])
    (first,) = said(opened(a, lonely("b")), "holder")
    assert said(opened(a, lonely("d")), "holder") == []
    (second,) = said(a.on_message("holder", m.RecordOk(first.version, first.incarnation, LIFE)), "holder")
    assert [one.node for one in second.neighbours] == ["b", "d"]


# Survivors


def star(leaves):
    interests = dict.fromkeys(("hub", *leaves), ("t",)) | {f"p{number}": ("s",) for number in range(6)}
    overlay = [("hub", leaf) for leaf in leaves] + [(f"p{number}", f"p{number + 1}") for number in range(5)]
    engine = Engine(OMen(), interests, seed=1, overlay=tuple(overlay), broken_stream_ms=50)
    engine.run(30_000)
    return engine


def test_of_many_survivors_few_report_and_all_are_told_when_the_repair_is_done():
    leaves = [f"leaf{number:02}" for number in range(20)]
    engine = star(leaves)
    engine.crash("hub")
    engine.run(45_000)
    sent = engine.sent_by_type()
    assert 0 < sent["Report"] < 10
    assert len(leaves) - 1 <= sent["ReportOk"] < len(leaves) + 5  # the coordinator may be one of them
    assert not any(engine.world.node(leaf).survivor.reports for leaf in leaves)


def test_neighbors_of_a_node_that_leaves_in_order_are_not_told_that_its_repair_is_done():
    """They saw it close the link, and wait for nothing. The leaving node waits for that word."""
    leaves = [f"leaf{number:02}" for number in range(6)]
    engine = star(leaves)
    engine.leave("hub")
    engine.run(45_000)
    assert "hub" not in engine.world.living
    assert engine.sent_by_type()["ReportOk"] == 1
    assert not any(engine.world.node(leaf).survivor.reports for leaf in leaves)


# Groups of dead neighbors


def test_a_neighbor_that_an_old_record_names_in_an_earlier_life_is_required_if_a_newer_one_names_it_in_this_life():
    """v and d are dead; v was linked to a and to x, d to an earlier life of x."""
    first, second = REFUTATIONS, 2 * REFUTATIONS
    records = {
        "v": m.Record(first, 1, ("t",), (m.NodeRun("a", first), m.NodeRun("x", second), m.NodeRun("d", first))),
        "d": m.Record(first, 1, ("t",), (m.NodeRun("x", first), m.NodeRun("v", first))),
    }
    held = lambda name, _: records.get(name)  # noqa: E731
    mend = Repair(1, "leave", "v", first, Context("me", OMenConfig(), low_edges, len, held=held))
    mend.departed["v"] = Departed(first, frozenset(), {}, False)
    mend.start()
    while mend.state not in ("links", "done"):
        for name, life in (("a", first), ("x", second)):
            mend.on_answer(name, m.Answer(1, mend.questions.attempt, life, 0, m.pack(1), b"", ()))
        mend.on_timer()
    assert list(mend.links.opening) == [("a", "x")]
    assert set(mend.departed) == {"v", "d", "x"}  # the earlier life of x


@pytest.mark.parametrize("seed", [0, 1, 4, 5])
def test_two_neighbors_that_crash_together_are_repaired_once(seed):
    """By one of their two coordinators."""
    others = [f"p{number}" for number in range(8)]
    row = ["x", f"d{seed}", f"e{seed}", "y"]
    links = [*pairwise(row), *pairwise(others)]
    interests = dict.fromkeys(row, ("t",)) | dict.fromkeys(others, ("s",))
    system = OMen(net=False, resilience=2)
    overlay = tuple(tuple(sorted(link)) for link in links)
    engine = Engine(system, interests, seed=seed, overlay=overlay, broken_stream_ms=50)
    engine.run(30_000)
    engine.crash(row[1])
    engine.crash(row[2])
    engine.run(60_000)
    assert ("x", "y") in engine.world.links()
    assert system.counts()["repairs by coordinators"] == 1
    assert not [event for name in engine.world.living for event in engine.world.node(name).parts.events.open()]


# Roots


def test_roots_report_often_while_nobody_answers_and_seldom_afterwards():
    engine = star(["x", "y"])
    before = engine.sent_by_type()["RootReport"]
    engine.run(90_000)
    assert 1 <= engine.sent_by_type()["RootReport"] - before <= 2 * 2  # two topics, at most twice in sixty periods


def test_a_topic_that_was_taken_up_on_both_sides_of_a_cut_is_whole_soon_after_it():
    """Each side had a home of its own. The one that is home no more hands on which roots have reported to it."""
    names = [f"p{number}" for number in range(6)]
    topics = [f"new {number}" for number in range(12)]
    overlay = tuple(pairwise(names))
    system = OMen(try_soon=240)
    engine = Engine(system, dict.fromkeys(names, ("t",)), seed=1, overlay=overlay)
    Injector(engine, Schedule((Fault(30_000, "partition", tuple(names[:3]), duration_ms=60_000),)))
    engine.run(45_000)
    for one in topics:
        engine.subscribe("p0", one)
        engine.subscribe("p5", one)
    engine.run(90_000 + 5_000)
    assert ("p0", "p5") in engine.world.links()


def test_a_home_hands_on_roots_that_still_report_when_another_node_is_home():
    home = lonely("a", ("u",))
    new = next(f"b{number}" for number in range(99) if _is_nearer(f"b{number}", "a", "t"))
    for root, tick in (("late", 1), ("x", 50), ("dead", 50)):
        home.parts.ticks = tick
        home.on_message(root, m.RootReport("t", root, 0))
    home.parts.suspects.add("dead", 1, 50)
    home.parts.ticks = 70
    assert not said(home.on_timer("omen/tick"), new)
    home.ring.tman.learn([Descriptor(new, 0, 1, ())])
    assert said(home.on_timer("omen/tick"), new)[-1] == m.RootReport("t", "x", 0)
    assert "t" not in home.roots.homes.roots


def _is_nearer(one, other, topic):
    """Tell whether `one` comes before `other` on the ring, seen from the place of `topic`."""
    return clockwise(identifier(topic), identifier(one)) < clockwise(identifier(topic), identifier(other))


def test_a_node_that_is_no_root_any_more_tells_its_root_of_another_part():
    root, name = sorted(("a", "b"), key=lambda one: root_key("t", one))
    node = lonely(name)
    node.parts.hints.told(root, [m.Hint("t", ())])
    assert said(node.on_message("home", m.RootMeet("t", "other")), root) == [m.RootMeet("t", "other")]
    assert node.on_message("home", m.RootMeet("t", root)) == []


# Answers


def asking(node, *peers, topic):
    """Have a node begin a repair of a lost link between `peers`, and return it with the questions."""
    mend = node.repairs.repair("relink", peers[0], 0, (topic,))
    mend.link_ends = peers
    return mend, mend.start()


def test_an_answer_to_a_question_of_an_earlier_incarnation_is_no_answer_to_a_question_of_this_one():
    """x hangs when it is asked about t, and answers after the coordinator has restarted and asks about u."""
    before, now = (OMenNode("c", ("t", "u"), Random(1), OMenConfig(), incarnation=life) for life in (LIFE, LIFE + 1))
    x = lonely("x", ("t",))
    _, questions = asking(before, "x", "y", topic="t")
    mend, again = asking(now, "x", "y", topic="u")
    passed(x, now, passed(before, x, questions))
    assert not mend.questions.answers.told, "x wants t; taken for an answer about u it says that x wants u"
    passed(x, now, passed(now, x, again))
    assert [(name, told.wants) for name, told in mend.questions.answers.told.items()] == [("x", 0)]
