"""A planned start of OMen, by name: who is waited for, and when a plan does not count."""

from __future__ import annotations

from random import Random

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Send
from trellis.protocols.omen import OMenConfig, OMenNode
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.links.planned import Plan
from trellis.protocols.omen.me import REFUTATIONS
from trellis.protocols.ring import identifier

LIFE = 1_000


def node(*neighbours, topics=("t", "u"), **plan):
    plan = Plan(neighbours=neighbours, **{"periods": 5, "oldest": LIFE - 300, **plan})
    return OMenNode("a", tuple(topics), Random(1), OMenConfig(), plan=plan, incarnation=LIFE)


def tick(one, count=1):
    return [effect for _ in range(count) for effect in one.on_timer("omen/tick")]


def meets(one, *names, life=LIFE):
    """Gossip brings them: now it has somebody to join at."""
    known = [Descriptor(name, 0, life * REFUTATIONS, ("t",)) for name in names]
    one.ring.tman.learn(known)
    one.parts.sampling.learn(known)


def says(effects, kind):
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def links_up(one, peer, topics, life=LIFE):
    """The other end has done its part; ours has no ring neighbour whose record it must wait for."""
    one.on_message(peer, m.Connect(life * REFUTATIONS, topics, 0, 1))
    one.on_message(peer, m.LinkReady(life * REFUTATIONS))


def test_a_planned_neighbour_is_asked_in_every_period_until_the_time_is_over_and_then_the_node_joins():
    one = node("b")
    meets(one, "c")
    meanwhile = tick(one, 5)
    assert says(meanwhile, m.Connect).count("b") >= 4
    assert not says(meanwhile, m.Join)
    assert "c" in says(tick(one), m.Join)


def test_a_node_whose_planned_links_cover_all_topics_never_joins():
    one = node("b", "c")
    links_up(one, "b", ("t",))
    links_up(one, "c", ("u",))
    tick(one)
    assert not one.planned.awaited
    assert not one.parts.is_joining
    meets(one, "c")
    assert not says(tick(one, 10), m.Join)


def test_a_node_whose_planned_links_leave_a_topic_alone_joins():
    one = node("b")
    links_up(one, "b", ("t",))
    meets(one, "c")
    assert "c" in says(tick(one, 4), m.Join)


def test_a_planned_neighbour_with_other_interests_is_let_go():
    one = node("b")
    links_up(one, "b", ("x",))
    assert says(tick(one), m.Disconnect) == ["b"]
    assert not one.links.links


def test_a_node_that_restarts_into_a_mesh_that_stands_joins_at_once():
    one = node("b", periods=60)
    meets(one, "c", "d", life=LIFE - 301)
    assert "c" in says(tick(one, 4), m.Join) or "d" in says(tick(one, 4), m.Join)
    assert not one.planned.awaited


def test_a_seed_that_was_started_first_does_not_void_the_plan():
    one = node("b", periods=60)
    meets(one, "seed", life=LIFE - 400)
    meets(one, "c", "d")
    assert not says(tick(one, 10), m.Join)
    assert one.planned.awaited


def test_nothing_is_sent_by_way_of_a_neighbour_that_may_not_be_there():
    one = node("b")
    meets(one, "c")
    tick(one)
    assert "b" in one.links
    (sent,) = one.toward(identifier("b"), m.Probe(0))
    assert sent.to != "b"
    one.on_message("b", m.ConnectOk(LIFE * REFUTATIONS, ("t",), 0, 1))
    (sent,) = one.toward(identifier("b"), m.Probe(0))
    assert sent.to == "b"


def test_itself_among_the_planned_neighbours_is_not_waited_for():
    one = node("a")
    assert not one.planned.awaited
    meets(one, "c")
    assert "c" in says(tick(one, 4), m.Join)
