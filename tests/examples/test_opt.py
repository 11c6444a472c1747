"""OPT: links that cover topics, events among subscribers only."""

from __future__ import annotations

from random import Random

import pytest

from trellis.errors import InputError
from trellis.ids import stream
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Deliver, Send
from trellis.protocols.opt import OptConfig, OptNode
from trellis.protocols.tman import TManReply
from trellis.protocols.vitis.messages import Event, Notification, Profile


def node_of(name, topics="", **fields):
    return OptNode(name, tuple(sorted(topics)), Random(stream(1, "node", name)), OptConfig(**fields))


def told(**wants):
    return TManReply("table", tuple(Descriptor(name, 1, 1, tuple(sorted(topics))) for name, topics in wants.items()))


def test_the_candidate_that_covers_most_is_taken_until_all_is_covered():
    node = node_of("me", "uvwxyz")
    node.on_message("a", told(a="uv", b="uvwx", c="xyz", d="q", e="z"))
    assert list(node.table.table.entries) == ["b", "c"]


def test_a_bounded_table_leaves_topics_uncovered_and_an_unbounded_one_does_not():
    for bounded, size in ((True, 2), (False, 4)):
        node = node_of("me", "wxyz", table_size=2, bounded=bounded)
        node.on_message("a", told(a="w", b="x", c="y", d="z"))
        assert len(node.table.table) == size
        node.check()


def test_coverage_asks_for_so_many_neighbours_per_topic():
    node = node_of("me", "x", coverage=2)
    node.on_message("a", told(a="x", b="x", c="x"))
    assert len(node.table.table) == 2


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
