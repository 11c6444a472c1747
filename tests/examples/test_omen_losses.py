"""Losses that come in odd ways: after a pause, beside restarts, several leavers in a row, topics changed meanwhile.

All without the net: repairs alone must keep the topic connected.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from trellis.protocols.omen import messages as m
from trellis.protocols.omen.membership.events import STANDBY
from trellis.protocols.ring import identifier
from trellis.simulate.engine import Engine
from trellis.simulate.systems.omen import OMen

OTHERS = [f"p{number}" for number in range(8)]  # a mesh beside, so that the ring has successors left


def mesh(interests, links, *, seed=1, **options):
    """30 s old."""
    interests = interests | dict.fromkeys(OTHERS, ("s",))
    overlay = tuple(tuple(sorted(link)) for link in [*links, *pairwise(OTHERS)])
    engine = Engine(OMen(net=False, **options), interests, seed=seed, overlay=overlay)
    engine.run(30_000)
    return engine


def parts(engine, topic="t"):
    """Who of the topic is connected to whom."""
    world, found = engine.world, []
    left = {name for name in world.living if topic in world.topics_of(name)}
    near = [(one, other) for pair in world.links() for one, other in (pair, pair[::-1])]
    while left:
        part, stack = set(), [min(left)]
        while stack:
            node = stack.pop()
            if node in left:
                left.discard(node)
                part.add(node)
                stack += [other for one, other in near if one == node]
        found.append(sorted(part))
    return found


def after(engine, seconds):
    engine.run(engine.world.now_ms + 1000 * seconds)
    return engine


@pytest.mark.parametrize("goes", ["crash", "leave"])
def test_a_node_that_was_mended_around_in_a_pause_and_goes_later_is_mended_around_again(goes):
    """Meanwhile w crashed, and no link was added, since v connected its neighbours."""
    engine = mesh(dict.fromkeys("vxwy", ("t",)), ["vx", "vy", "wx", "wy"])
    engine.pause("v")
    after(engine, 9)
    engine.resume("v")
    after(engine, 20)
    engine.crash("w")
    after(engine, 20)
    assert parts(engine) == [["v", "x", "y"]]
    getattr(engine, goes)("v")
    assert parts(after(engine, 60)) == [["x", "y"]]


def hub_and_holders(engine, hub):
    around = sorted(engine.world.living, key=identifier)
    place = around.index(hub)
    return [around[(place + step) % len(around)] for step in range(1, 4)]


def test_holders_that_restart_one_after_the_other_are_told_the_record_again():
    names = "vabc"
    for hub in names:
        engine = mesh(dict.fromkeys(names, ("t",)), [(hub, other) for other in names if other != hub])
        holders = hub_and_holders(engine, hub)
        if set(holders) <= set(OTHERS):
            break
    for holder in holders:
        engine.crash(holder)
        after(engine, 1)
        engine.join(holder)
        after(engine, 25)
    assert all(hub in engine.world.node(holder).parts.held.held for holder in holders)
    engine.crash(hub)
    assert parts(after(engine, 60)) == [sorted(set(names) - {hub})]


def test_where_nobody_holds_the_record_survivors_say_which_topics_are_to_be_mended():
    engine = mesh(dict.fromkeys("vabc", ("t",)), ["va", "vb", "vc"])
    for name in engine.world.living:
        engine.world.node(name).parts.held.held.pop("v", None)
    engine.crash("v")
    assert parts(after(engine, 60)) == [["a", "b", "c"]]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("many", [2, 3])
def test_a_row_of_nodes_that_leave_at_once_is_bridged(many, seed):
    row = ["x", *[f"l{number}" for number in range(many)], "y"]
    engine = mesh(dict.fromkeys(row, ("t",)), pairwise(row), seed=seed)
    for name in row[1:-1]:
        engine.leave(name)
    assert parts(after(engine, 60)) == [["x", "y"]]


@pytest.mark.parametrize("many", [3, 4])
def test_a_row_of_nodes_that_unsubscribe_at_once_is_bridged(many):
    row = ["x", *[f"l{number}" for number in range(many)], "y"]
    engine = mesh({name: ("t",) if name in "xy" else ("t", "s") for name in row}, pairwise(row))
    for name in row[1:-1]:
        engine.unsubscribe(name, "t")
    assert parts(after(engine, 60)) == [["x", "y"]]


@pytest.mark.parametrize("later_ms", [0, 5, 15, 30, 60])
def test_a_node_that_unsubscribes_while_a_repair_links_to_it_counts_the_new_link_in(later_ms):
    """d crashes, its repair links x to m, behind which z is; m leaves the topic meanwhile."""
    interests = {"d": ("t",), "x": ("t",), "m": ("t", "s"), "z": ("t",)}
    engine = mesh(interests, [("d", "x"), ("d", "m"), ("m", "z"), ("m", "p0")], coverage=0)
    engine.crash("d")

    def is_linking():
        nodes = map(engine.world.node, engine.world.living)
        return any(mend.state == "links" for node in nodes for mend in node.repairs.running.values())

    while not is_linking():
        engine.run(engine.world.now_ms + 1)
    engine.run(engine.world.now_ms + later_ms)
    engine.unsubscribe("m", "t")
    assert parts(after(engine, 60)) == [["x", "z"]]


def test_who_subscribes_at_a_neighbour_that_is_about_to_leave_the_topic_is_not_left_alone():
    interests = {"v": ("t", "s"), "n": ("s",), "a": ("t",), "b": ("t",)}
    engine = mesh(interests, ["va", "vb", "vn", ("n", "p0")])
    engine.unsubscribe("v", "t")
    engine.run(engine.world.now_ms + 10)
    engine.subscribe("n", "t")
    assert parts(after(engine, 60)) == [["a", "b", "n"]]


def test_a_topic_that_is_wanted_again_outlives_the_repair_that_would_have_ended_it():
    engine = mesh({"v": ("t", "s"), "a": ("t",), "b": ("t",)}, ["va", "vb", ("v", "p0")])
    node = engine.world.node("v")
    engine.unsubscribe("v", "t")
    engine.subscribe("v", "t")
    engine.unsubscribe("v", "t")
    first, second = list(node.repairs.running)
    while first in node.repairs.running:
        engine.run(engine.world.now_ms + 1)
    assert second not in node.repairs.running or "t" in node.me.topics
    assert parts(after(engine, 30)) == [["a", "b"]]


def test_hearsay_of_life_does_not_outweigh_our_own_detector():
    """Of a standby successor that was also a neighbour, and has seen the stream break."""
    names = [f"n{number:02}" for number in range(12)]
    engine = Engine(OMen(), {name: ("t", f"s{number % 4}") for number, name in enumerate(names)}, seed=2)
    engine.run(40_000)
    order = sorted(names, key=identifier)
    near = engine.world.claims
    victim, behind = next((one, two) for one, two in zip(order, order[2:], strict=False) if one in near(two))
    node = engine.world.node(behind)
    incarnation = node.parts.incarnation_of(victim)
    engine.crash(victim)
    node.on_peer_down(victim)
    node.on_message(order[0], m.ReportOk(victim, incarnation, "alive"))
    assert [event.state for event in node.parts.events.open() if event.node == victim] == [STANDBY]


def test_with_global_knowledge_everybody_is_known():
    engine = Engine(OMen(knowledge="global"), {f"n{number}": ("t",) for number in range(9)}, seed=2)
    engine.run(5_000)
    assert all(len(engine.world.node(name).views.known()) == 9 for name in engine.world.living)


def test_a_heartbeat_that_tells_of_a_topic_left_makes_the_node_look_for_another_link_at_once():
    """The neighbor left the topic without knowing that we had subscribed. No other input has to come first."""
    engine = mesh({"v": ("t", "s"), "n": ("t", "s"), "a": ("t",)}, ["vn", "va", ("n", "p0")])
    node, link = engine.world.node("n"), engine.world.node("n").links.links["v"]
    node.me.topics_version += 1  # as if we had just changed our topics
    beat = m.Heartbeat(
        incarnation=link.incarnation,
        ready=True,
        degree=2,
        version=link.heard + 1,
        acknowledged=node.me.topics_version - 1,
        successors=link.successors,
        topics=("s",),
    )
    effects = node.on_message("v", beat)
    assert effects, "it asks for a link"
