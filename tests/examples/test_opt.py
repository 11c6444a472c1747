"""OPT: links that cover topics, events among subscribers only."""

from __future__ import annotations

from random import Random

import pytest

from trellis.errors import InputError
from trellis.ids import stream
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Deliver, LinkDown, LinkUp, Send
from trellis.protocols.opt import OptConfig, OptNode
from trellis.protocols.tman import TManReply
from trellis.protocols.vitis.messages import Event, Notification, Profile, Unlink


def node_of(name, topics="", **fields):
    return OptNode(name, tuple(sorted(topics)), Random(stream(1, "node", name)), OptConfig(**fields))


def told(**wants):
    return TManReply("table", tuple(Descriptor(name, 1, 1, tuple(sorted(topics))) for name, topics in wants.items()))


def test_the_candidate_that_covers_most_is_taken_until_all_is_covered():
    node = node_of("me", "uvwxyz", coverage=1)
    node.on_message("a", told(a="uv", b="uvwx", c="xyz", d="q", e="z"))
    assert list(node.table.table.entries) == ["b", "c"]


def test_a_bounded_table_leaves_topics_uncovered_and_an_unbounded_one_does_not():
    for bounded, size in ((True, 2), (False, 4)):
        node = node_of("me", "wxyz", table_size=2, bounded=bounded, coverage=1)
        node.on_message("a", told(a="w", b="x", c="y", d="z"))
        assert len(node.table.table) == size
        node.check()


def test_coverage_asks_for_so_many_neighbours_per_topic():
    node = node_of("me", "x", coverage=2)
    node.on_message("a", told(a="x", b="x", c="x"))
    assert len(node.table.table) == 2


def test_three_neighbors_per_topic_are_asked_for_unless_told_otherwise():
    """OPT is "similar to SpiderCast", which covers every topic three times.  [VI §IV]"""
    node = node_of("me", "x")
    node.on_message("a", told(a="x", b="x", c="x", d="x"))
    assert len(node.table.table) == 3


def test_a_full_node_refuses_a_link():
    node = node_of("me", "xyz", table_size=2)
    for name in ("a", "b"):
        assert node.on_message(name, Profile(1, True, ("x",))) == [LinkUp(name)]
    assert node.on_message("c", Profile(1, True, ("x", "y", "z"))) == [Send("c", Unlink())]
    assert list(node.neighbors.all) == ["a", "b"]
    node.check()


def test_links_that_others_asked_for_take_places_and_cover_topics():
    node = node_of("me", "xyz", table_size=2, coverage=1)
    node.on_message("a", Profile(1, True, ("x", "y")))
    node.on_message("p", told(b="xy", c="z", d="yz"))
    assert list(node.table.table.entries) == ["c"], "x and y are covered by the link of a, which takes one place of two"
    node.check()


def test_a_node_that_refused_gives_its_place_free_and_is_not_asked_again_for_a_while():
    node = node_of("me", "x", table_size=2, coverage=1, refusal_rounds=3)
    node.on_message("p", told(a="x"))
    assert LinkDown("a") in node.on_message("a", Unlink())
    for _ in range(2):
        node.on_timer("profile/tick")
        node.on_message("p", told(a="x"))
        assert not node.table.table.entries
    node.on_timer("profile/tick")
    node.on_message("p", told(a="x"))
    assert list(node.table.table.entries) == ["a"]


def test_a_request_without_an_answer_gives_way_to_a_node_that_asks():
    node = node_of("me", "xy", table_size=2, coverage=1)
    node.on_message("p", told(a="x", b="y"))
    node.on_message("a", Profile(1, False, ("x",)))  # a has confirmed, b has not
    effects = node.on_message("c", Profile(1, True, ("x", "y")))
    assert LinkUp("c") in effects
    assert Send("b", Unlink()) in effects
    node.check()


def test_a_full_node_replaces_the_link_that_it_misses_least_by_one_that_covers_more():
    node = node_of("me", "uvwxyz", table_size=2, coverage=1)
    node.on_message("p", told(a="uv", b="w"))
    for name, topics in (("a", "uv"), ("b", "w")):
        node.on_message(name, Profile(1, False, tuple(topics)))
    node.on_message("p", told(c="xyz", d="x"))
    assert list(node.table.table.entries) == ["a", "c"]
    node.on_message("p", told(e="vw"))  # as much as a covers: no reason to change, and a request is under way
    assert list(node.table.table.entries) == ["a", "c"]
    node.check()


def test_no_event_goes_to_a_node_that_has_not_confirmed_the_link():
    node = node_of("me", "x")
    node.on_message("p", told(a="x"))
    assert node.publish("x", b"") == [Deliver("x", "me", 1 << 32 | 1)]
    node.on_message("a", Profile(1, False, ("x",)))
    assert Send("a", Notification("x", "me", 1 << 32 | 2, 1)) in node.publish("x", b"")


def test_a_node_that_was_refused_has_not_confirmed_a_later_link():
    node = node_of("me", "x", table_size=2)
    for name in ("a", "b", "c"):
        node.on_message(name, Profile(1, True, ("x",)))
        if name == "a":
            node.on_message("a", Unlink())  # The link parts. Its record stays for a while.
    assert node.on_message("a", Profile(1, True, ("x",))) == [Send("a", Unlink())]
    node.on_message("b", Unlink())
    node.on_message("p", told(a="x"))
    assert list(node.table.table.entries) == ["a"]
    assert Send("a", Notification("x", "me", 1 << 32 | 1, 1)) not in node.publish("x", b"")


def test_events_go_to_interested_neighbours_only():
    node = node_of("me", "x")
    node.on_message("a", Profile(1, True, ("x",)))
    node.on_message("b", Profile(1, True, ("y",)))
    node.on_message("c", Profile(1, True, ("x", "y")))
    effects = node.on_message("a", Event("x", "o", 1, 1))
    assert effects == [Deliver("x", "o", 1), Send("c", Notification("x", "o", 1, 2))]


def test_a_coverage_of_nothing_is_refused():
    with pytest.raises(InputError, match="coverage is 0; give 1 or more"):
        OptConfig(coverage=0)
