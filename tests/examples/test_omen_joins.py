"""OMen: whom a view keeps in mind while it gets better, and whom a joiner may be linked to."""

from __future__ import annotations

from random import Random

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Send
from trellis.protocols.omen import OMenConfig
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.me import Me
from trellis.protocols.omen.repair.join import Join
from trellis.protocols.omen.repair.procedure import Context
from trellis.protocols.omen.shadow import low_edges
from trellis.protocols.omen.views import Views, Wanted
from trellis.protocols.tman import TManReply
from trellis.protocols.topics import TopicTable

HUB = "hub"


def views_of(coverage):
    """Of a node whose one predecessor wants a, b and c; it hears of all others by messages."""
    table = TopicTable()
    me = Me("me", ("z",), table, 1)
    views = Views(me, OMenConfig(coverage=coverage, view_rounds=4), list, list, Random(1), "seed")

    def want():
        views.want([Wanted("before", table.bits(("a", "b", "c")), [], False)])

    want()
    return views, want


def hears(views, *descriptors):
    views.on_timer("backups/exchange")
    views.on_message("somebody", TManReply("backups", descriptors))


def backups(views):
    return sorted(views.views["before"].backups)


def test_a_hub_gives_way_to_lighter_nodes_that_were_heard_of_one_after_the_other():
    views, want = views_of(coverage=1)
    hears(views, Descriptor(HUB, interest=("a", "b", "c"), numbers=(300,)))
    assert backups(views) == [HUB]
    for name, topic in (("x", "a"), ("y", "b"), ("w", "c")):
        want()
        hears(views, Descriptor(name, interest=(topic,), numbers=(3,)))
    assert backups(views) == ["w", "x", "y"]


def test_partners_are_told_of_backups_alone_and_candidates_are_forgotten_with_the_last_change():
    views, want = views_of(coverage=1)
    many = [Descriptor(f"n{number}", interest=("a", "b", "c"), numbers=(3 + number,)) for number in range(20)]
    hears(views, *many, Descriptor("stranger", interest=("q",)))
    assert len(views.known()) == 20  # whoever shares a topic
    assert [one.node for one in views.tman._buffer([])] == ["me", *views.peers]
    assert backups(views) == sorted(views.peers) == ["n0"]
    for _ in range(5):
        want()
        hears(views, many[0])
    assert list(views.known()) == ["n0"]


def joining(*known, backups=()):
    """A join of "new" (topics a and b), up to its answer. Its coordinator knows the backups by these descriptors."""
    described = {one.node: one for one in known}
    join = Join(1, "new", 1, Context("me", OMenConfig(), low_edges, len, described=described.get), ("a", "b"))
    join.backups = [*described, *backups]
    first = join.start()
    return join, asked(first), answers(join, "new", 0b11)


def answers(join, name, wants, *named, degree=0):
    neighbours = tuple(m.Neighbor(peer, 1, m.pack(mask)) for peer, mask in named)
    return join.on_answer(name, m.Answer(1, 1, 1, degree, m.pack(wants), b"", neighbours))


def asked(effects):
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, m.Ask)]


def known(name, topics, degree=1):
    return Descriptor(name, interest=tuple(topics), numbers=(9, degree))


def test_of_the_backups_only_those_are_asked_that_the_joiner_would_be_linked_to():
    join, first, more = joining(known("x", "ab"), known("yy", "a"), known("zzz", "b"))
    assert (first, asked(more)) == (["new"], ["x"])
    opened = answers(join, "x", 0b11)
    assert [effect.message for effect in opened if isinstance(effect, Send)] == [m.OpenLink(1, "new", 1)]


def test_a_backup_that_has_other_topics_by_now_is_replaced():
    join, _, _ = joining(known("x", "ab"), known("yy", "a"), known("zzz", "b"))
    assert asked(answers(join, "x", 0b01)) == ["zzz"]
    answers(join, "zzz", 0b10)
    assert sorted(join.links.opening) == [("new", "zzz"), ("x", "new")]


def test_a_backup_that_stays_silent_is_replaced_and_not_asked_again():
    join, _, _ = joining(known("x", "ab"), known("yy", "ab"))
    while not (more := [name for name in asked(join.on_timer()) if name != "x"]):
        pass
    assert more == ["yy"]
    answers(join, "yy", 0b11)
    assert sorted(join.links.opening) == [("yy", "new")]


def test_a_backup_that_gossip_does_not_describe_is_asked_at_once():
    _, first, _ = joining(backups=[HUB])
    assert first == ["new", HUB]


def test_a_topic_of_a_joiner_that_no_backup_has_is_left_to_the_fallback():
    join, _, more = joining(known("x", "a"))
    assert asked(more) == ["x"]
    assert asked(answers(join, "x", 0b01, ("y", 0b10))) == []
    assert list(join.links.opening) == [("x", "new")]


def test_a_backup_that_dies_before_it_answers_holds_no_join_up():
    join, _, more = joining(known("x", "ab"))
    assert asked(more) == ["x"]
    join.on_dead("x")
    assert join.state == "done"
