"""OMen with `connectivity` 2, by name: what it keeps so that no single crash splits a topic."""

from __future__ import annotations

from itertools import pairwise

import pytest

import trellis
from trellis.errors import InputError
from trellis.model.interests import Interests
from trellis.protocols.omen import OMenConfig
from trellis.simulate.engine import Engine
from trellis.simulate.systems.omen import OMen

OTHERS = [f"p{number}" for number in range(8)]  # a mesh beside, so that the ring has successors left


def mesh(interests, links, *, seed=1, net=False, absent=(), connectivity=2, **options):
    """A mesh that is 30 s old. `OTHERS` are a ring on a topic of their own, which no single loss splits."""
    interests = interests | dict.fromkeys(OTHERS, ("s",))
    ring = [*pairwise(OTHERS), (OTHERS[0], OTHERS[-1])]
    overlay = tuple(tuple(sorted(link)) for link in [*links, *ring])
    system = OMen(net=net, connectivity=connectivity, **options)
    engine = Engine(system, interests, seed=seed, overlay=overlay, absent=absent)
    return after(engine, 30)


def after(engine, seconds):
    engine.run(engine.world.now_ms + 1000 * seconds)
    return engine


def links(engine, *names):
    """The links that both ends claim, between any nodes or between these."""
    return {"".join(pair) for pair in engine.world.links() if not names or {*pair} <= {*names}}


CIRCLE = ["ab", "bc", "cd", "de", "ae", "ac"]


@pytest.mark.parametrize("gone_s", [2, 40])  # Back before its neighbors suspect it, and after they were repaired.
def test_links_to_a_neighbor_that_has_restarted_are_opened_again(gone_s):
    engine = mesh(dict.fromkeys("abcde", ("t",)), CIRCLE)
    engine.crash("c")
    after(engine, gone_s)
    engine.join("c", ("t",))
    assert {"ac", "bc", "cd"} <= links(after(engine, 40))


def test_links_to_a_neighbor_that_has_restarted_with_other_topics_stay_closed():
    engine = mesh(dict.fromkeys("abcde", ("t",)), CIRCLE)
    engine.crash("c")
    after(engine, 40)
    engine.join("c", ("s",))
    assert not {"bc", "cd"} & links(after(engine, 60))


def test_by_default_a_restarted_node_joins_with_the_links_that_it_needs():
    engine = mesh(dict.fromkeys("abcde", ("t",)), CIRCLE, connectivity=1)
    engine.crash("c")
    after(engine, 40)
    engine.join("c", ("t",))
    assert not {"bc", "cd"} <= links(after(engine, 60))


def cutting(engine, topic="t"):
    """The subscribers without which the others do not all reach each other; by removing each in turn."""
    world = engine.world
    names = {name for name in world.living if topic in world.topics_of(name)}
    near = {name: {*world.claims(name)} & names for name in names}
    found = set()
    for lost in names:
        left = names - {lost}
        reached, todo = {min(left)}, [min(left)]
        while todo:
            new = near[todo.pop()] & left - reached
            reached |= new
            todo += new
        if reached != left:
            found.add(lost)
    return found


RING = ["ab", "bc", "cd", "de", "ae"]


@pytest.mark.parametrize(("connectivity", "cuts"), [(2, set()), (1, {"a", "e"})])
def test_a_repair_after_a_crash_leaves_no_node_that_cuts_the_topic(connectivity, cuts):
    engine = mesh(dict.fromkeys("abcde", ("t",)), RING, connectivity=connectivity, cut_periods=0)
    assert not cutting(engine)
    engine.crash("c")
    assert cutting(after(engine, 30)) == cuts


@pytest.mark.parametrize("crashed", ["cd", "ce", "bde"])
def test_a_repair_after_crashes_at_once_leaves_no_node_that_cuts_the_topic(crashed):
    circle = [*pairwise("abcdefgh"), "ah"]
    engine = mesh(dict.fromkeys("abcdefgh", ("t",)), ["".join(pair) for pair in circle], cut_periods=0)
    for name in crashed:
        engine.crash(name)
    assert not cutting(after(engine, 40))


def test_a_node_that_leaves_in_order_leaves_no_node_that_cuts_the_topic():
    engine = mesh(dict.fromkeys("abcde", ("t",)), RING, cut_periods=0)
    engine.leave("c")
    assert not cutting(after(engine, 60))
    engine.unsubscribe("d", "t")
    assert not cutting(after(engine, 60))


@pytest.mark.parametrize("connectivity", [2, 1])
def test_a_joiner_is_linked_to_two_nodes_on_each_topic(connectivity):
    interests = dict.fromkeys("abcde", ("t",)) | {"x": ("t",)}
    engine = mesh(interests, RING, net=True, absent=["x"], connectivity=connectivity, cut_periods=0)
    engine.join("x", ("t",))
    after(engine, 60)
    assert len(engine.world.claims("x")) == connectivity
    assert cutting(engine) == (set() if connectivity == 2 else {*engine.world.claims("x")})


def test_a_node_that_subscribes_is_linked_to_two_nodes():
    engine = mesh(dict.fromkeys("abcde", ("t",)) | {"x": ("s",)}, [*RING, ("p0", "x"), ("p1", "x")], cut_periods=0)
    engine.subscribe("x", "t")
    after(engine, 60)
    assert not cutting(engine)
    assert len({*engine.world.claims("x")} & {*"abcde"}) == 2


def test_nodes_that_cut_a_topic_have_their_neighbors_linked():
    path = ["ab", "bc", "cd", "de"]
    assert cutting(mesh(dict.fromkeys("abcde", ("t",)), path, cut_periods=0)) == {*"bcd"}
    assert not cutting(after(mesh(dict.fromkeys("abcde", ("t",)), path), 120))


def test_nodes_do_not_look_at_cuts_while_one_of_them_joins():
    engine = mesh(dict.fromkeys("abcde", ("t",)), ["ab", "bc", "cd", "de"], cut_periods=30)
    late = engine.world.actors["c"].node
    late.parts.is_joining, ask = True, late.presence.ask_to_join
    late.presence.ask_to_join = lambda is_planned: []
    assert cutting(after(engine, 90)) == {*"bcd"}
    late.presence.ask_to_join = ask
    assert not cutting(after(engine, 240))


def test_two_nodes_that_take_up_a_topic_at_once_are_linked_with_each_other_too():
    engine = mesh({"a": ("t",)} | dict.fromkeys("xy", ("s",)), [("p0", "x"), ("p1", "x"), ("p2", "y"), ("p3", "y")])
    engine.subscribe("x", "t")
    engine.subscribe("y", "t")
    assert {"ax", "ay", "xy"} <= links(after(engine, 120))


def test_a_link_is_dropped_only_if_no_node_cuts_the_topic_without_it():
    engine = mesh(dict.fromkeys("abcde", ("t",)), CIRCLE, cut_periods=0)

    def drop(one, other):
        actor = engine.world.actors[one]
        engine._perform(actor, actor.node.drop_link(other))
        after(engine, 5)
        return actor.node.requests.latest[-1].state

    assert drop("a", "b") == "refused"
    assert drop("a", "c") == "done"
    assert links(engine, *"abcde") == {*RING}
    assert drop("a", "e") == "refused"


def test_a_connectivity_that_is_not_kept_is_refused():
    with pytest.raises(InputError, match="connectivity is 3"):
        OMenConfig(connectivity=3)
    given = Interests.from_pairs({"a": ("t",), "b": ("t",)})
    with pytest.raises(InputError, match="not two-connected"):
        trellis.simulate("omen", given, options={"connectivity": 2}, engine="cycles")
    with pytest.raises(InputError, match="not global knowledge"):
        OMenConfig(connectivity=2, knowledge="global")


@pytest.mark.parametrize("knowledge", ["hints", "neighbours"])
def test_a_long_circle_gets_no_link_because_each_node_asks_around_it(knowledge):
    names = "abcdefghijkl"
    circle = ["".join(pair) for pair in pairwise(names)] + ["al"]
    engine = mesh(dict.fromkeys(names, ("t",)), circle, knowledge=knowledge)
    assert links(after(engine, 90), *names) == {*circle}
    assert engine.sent_by_type()["Ask"] >= len(names), "no node has looked"
