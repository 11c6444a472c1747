"""A neighbor cannot bring a node anything new in that node's own name."""

from __future__ import annotations

import pytest

from examples.test_delivery_parts import Part, mesh
from trellis.protocols.delivery import messages as m


class Liar(Part):
    """A neighbor that says whatever the test wants."""

    def say(self, *items):
        for item in items:
            self.delivery.state.put("a", item)
        return self.delivery._finish()


def linked():
    net = mesh([], more=[Part("a"), Liar("liar")])
    net.link("a", "liar")
    net.run(4_000)
    return net


def push(origin, life, sequence, payload=b"forged", topic="t"):
    return m.Push(topic, origin, life, sequence, 1, 0, 0, True, payload)


@pytest.mark.parametrize(("life", "sequence"), [(1, 2), (1, 9), (2, 1), (10**9, 1)])
def test_a_push_in_the_receivers_own_name_is_refused_and_counted(life, sequence):
    net = linked()
    net.publish("a", b"true")
    net.run(1_000)
    net.carry_out("liar", net.nodes["liar"].say(push("a", life, sequence)))
    net.run(1_000)
    net.publish("a", b"also true")
    net.run(1_000)
    assert net.got("a") == [b"true", b"also true"]
    assert net.nodes["a"].counters.forged == 1


def test_what_the_node_has_published_itself_may_come_back_and_is_no_forgery():
    net = linked()
    net.publish("a", b"true")
    net.run(1_000)
    net.carry_out("liar", net.nodes["liar"].say(push("a", 1, 1, b"true")))
    net.run(1_000)
    assert net.got("a") == [b"true"]
    assert net.nodes["a"].counters.forged == 0
    assert net.nodes["a"].counters.duplicates == 1


def test_what_an_earlier_incarnation_has_published_is_taken_from_others():
    """The node does not remember it, and its clients have not got it from this incarnation."""
    net = linked()
    net.carry_out("liar", net.nodes["liar"].say(push("a", 0, 1, b"of the incarnation before")))
    net.run(1_000)
    assert net.got("a") == [b"of the incarnation before"]


def test_announcements_in_the_receivers_own_name_are_not_pulled():
    net = linked()
    net.carry_out("liar", net.nodes["liar"].say(m.Announce("t", "a", 1, (1, 500)), m.Announce("t", "a", 2, (1, 500))))
    net.run(2_000)
    assert net.nodes["a"].counters.pulls == 0
    assert net.nodes["a"].delivery.metrics()["missing"] == 0


def test_a_baseline_cannot_claim_more_of_a_node_than_it_has_published():
    net = mesh([], more=[Part("a"), Liar("liar")])
    net.link("a", "liar")
    lie = m.Compare("t", (m.Seen("a", 1, 1_000, 1, ()),), True, False, False, False)
    net.carry_out("liar", net.nodes["liar"].say(lie))
    net.run(4_000)
    net.publish("a", b"true")
    net.run(1_000)
    assert net.got("a") == [b"true"]
