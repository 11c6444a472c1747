"""OMen: whom a view keeps in mind while it gets better, and whom a joiner may be linked to."""

from __future__ import annotations

from random import Random

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Send
from trellis.protocols.omen import OMenConfig
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.me import Me
from trellis.protocols.omen.mend import Mend
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


def joining(neighbours_of_hub, coverage=2):
    """A join of "new" (topics a and b) whose coordinator has heard of the hub alone, up to the hub's answer."""
    mend = Mend(1, "join", "new", 1, OMenConfig(coverage=coverage), lambda _: [], lambda *_: None, low_edges, len, "me")
    mend.topics, mend.backups = ("a", "b"), [HUB]
    mend.start()
    mend.on_answer("new", m.Answer(1, 1, 1, 0, m.pack(0b11), b"", ()))
    named = tuple(m.Neighbour(name, 1, m.pack(wants)) for name, wants in neighbours_of_hub.items())
    return mend, mend.on_answer(HUB, m.Answer(1, 1, 1, len(named), m.pack(0b11), b"", named))


def asked(effects):
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, m.Ask)]


def test_neighbours_of_a_hub_are_asked_for_topics_that_only_the_hub_has():
    mend, effects = joining({"x": 0b01, "stranger": 0b00, "yy": 0b10, "zzz": 0b10})
    assert asked(effects) == ["x", "yy"]  # one more each, in the order of keys
    mend.on_answer("x", m.Answer(1, 1, 1, 1, m.pack(0b01), b"", ()))
    opened = mend.on_answer("yy", m.Answer(1, 1, 1, 1, m.pack(0b10), b"", ()))
    assert mend.state == "links"
    assert asked(opened) == []  # nobody is asked about those whom they name


def test_nobody_more_is_asked_where_topics_are_covered_or_nobody_is_named():
    for coverage, named in ((1, {"x": 0b11}), (2, {})):
        mend, effects = joining(named, coverage)
        assert asked(effects) == []
        assert mend.state == "links"


def test_a_neighbour_that_dies_before_it_answers_holds_no_join_up():
    mend, effects = joining({"x": 0b11})
    assert asked(effects) == ["x"]
    mend.on_dead("x")
    assert mend.state == "links"
