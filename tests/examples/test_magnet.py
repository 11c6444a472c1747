"""Magnet step by step: Alg. 1 and Alg. 2 as printed, samples, home locations, and what the system refuses."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest

from reference.magnet import StillRing, greedy_route
from trellis.errors import InputError
from trellis.protocols.effects import Send
from trellis.protocols.magnet import MagnetConfig, MagnetNode
from trellis.protocols.magnet.membership import Membership
from trellis.protocols.magnet.messages import Entry, NoPlace, Place, Placed, SamplesUp, SampleUp, ToHome, View
from trellis.protocols.oscar import Oscar, Peer
from trellis.simulate.engine import Engine
from trellis.simulate.systems import maker_of
from trellis.simulate.systems.magnet import Magnet, home_of, reach
from trellis.simulate.systems.scribe import Scribe


def knowing(view, config=None, seed=1, rates=None):
    """A node that wants a, b and c and is about to look for a place; topic -> {node: interest}."""
    node = MagnetNode("p", ("a", "b", "c"), Random(seed), config or MagnetConfig(), rates=rates, contacts=("x",))
    node._has_begun = True
    for topic, entries in view.items():
        sample = tuple(Entry(name, tuple(interest)) for name, interest in entries.items())
        node.membership.views[topic] = View(topic, "h", sample, 0)
    return node


def asked(effects):
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Place)]


def test_a_node_asks_the_most_similar_one_for_a_place():
    """Alg. 1, l. 2: sim is 2/3 to q2, 1/3 to q1, 1/5 to q3."""
    node = knowing({"a": {"q1": "a", "q2": "ab", "p": "abc"}, "c": {"q3": "cde"}})
    assert asked(node.placement.choose()) == ["q2"]


def test_rates_decide_who_is_most_similar():
    view = {"a": {"q1": "a", "q2": "bc"}}
    assert asked(knowing(view).placement.choose()) == ["q2"]
    assert asked(knowing(view, rates={"a": 10.0, "b": 1.0, "c": 1.0}).placement.choose()) == ["q1"]


def test_ties_are_broken_at_random():
    view = {"a": {"q1": "ab", "q2": "ac"}}
    assert {asked(knowing(view, seed=seed).placement.choose())[0] for seed in range(20)} == {"q1", "q2"}


def test_who_does_not_answer_is_excluded_and_the_next_one_is_asked():
    node = knowing({"a": {"q1": "a", "q2": "ab"}})
    node.placement.choose()
    assert asked(node.on_timer("join/place")) == ["q1"]
    assert asked(node.on_timer("join/place")) == []
    assert node.placement.stage == "entering"  # nobody is left: by name (l. 5)


def test_a_node_without_a_view_goes_where_its_name_says():
    node = knowing({})
    node.placement.choose()
    from trellis.protocols.oscar.labels import hashed

    assert node.skewed.me.label == hashed("p")


def test_the_label_is_the_middle_between_the_most_similar_node_and_its_successor():
    ring = StillRing({"q": Fraction(3, 4), "s": Fraction(1, 4)}, {}, {"q": "x", "s": "x"}, MagnetConfig())
    answer = ring.nodes["q"].on_message("p", Place(1, 1))[0]
    assert answer.to == "p"
    assert answer.message.label == b""  # across zero (A-MAG-6)
    again = ring.nodes["q"].on_message("r", Place(1, 1))[0]
    assert again.message.label == b"\xe0"  # p is known to be there (A-MAG-8)


def test_a_node_without_a_place_has_none_to_give():
    node = knowing({})
    assert node.on_message("r", Place(1, 1)) == [Send("r", NoPlace(later=False))]


def test_a_place_that_was_not_asked_for_is_not_taken():
    node = knowing({"a": {"q1": "a"}})
    node.placement.choose()
    assert node.on_message("q2", Placed(b"\x10", ())) == []
    assert node.skewed.me is None


# Alg. 2. The example of A-MAG-13: the root 0 has fingers 10 and 50, and 10 has fingers 20 and 70.

PLACES = {"n0": 0, "n10": 10, "n20": 20, "n50": 50, "n60": 60, "n70": 70}
FINGERS = {"n0": ["n10", "n50"], "n10": ["n20", "n70"]}


def amag13(tree):
    """Topic `t` is such that n0 is its home on the control ring."""
    places = {name: Fraction(value, 128) for name, value in PLACES.items()}
    topic = next(f"t{number}" for number in range(500) if _home(f"t{number}") == "n0")
    ring = StillRing(places, FINGERS, dict.fromkeys(PLACES, "u"), MagnetConfig(tree=tree))
    for name in ("n20", "n60"):
        ring.nodes[name].topics = (topic,)
        ring.nodes[name].membership.subscribe((topic,))
        ring.nodes[name].trees.forest.make(topic).subscribed = True
    for node in ring.nodes.values():
        node.trees.forest.remove(node.trees.forest.trees["u"])
    return ring, topic


def _home(topic):
    from trellis.protocols.oscar.labels import hashed

    control = sorted(PLACES, key=hashed)
    return next((name for name in control if hashed(name) >= hashed(topic)), control[0])


def test_a_graft_that_begins_at_a_subscriber_need_not_follow_the_greedy_route():
    ring, topic = amag13("graft")
    ring.join("n20")
    assert ring.path("n20", topic) == ["n0", "n10", "n20"]
    ring.nodes["n60"].membership.views[topic] = View(topic, "n0", (Entry("n20", (topic,)),), 0)
    ring.join("n60")
    # n10 is the grafting point: its next hop towards n60 is n20, and that is a tree link already.
    assert ring.path("n60", topic) == ["n0", "n10", "n20", "n50", "n60"]
    assert greedy_route(ring.places, ring.down, "n0", "n60") == ["n0", "n50", "n60"]


def test_a_greedy_path_join_follows_it_wherever_it_begins():
    ring, topic = amag13("greedy-path")
    ring.join("n20")
    ring.nodes["n60"].membership.views[topic] = View(topic, "n0", (Entry("n20", (topic,)),), 0)
    ring.join("n60")
    assert ring.path("n60", topic) == ["n0", "n50", "n60"]


def test_a_subscriber_in_the_view_that_is_not_in_the_tree_sends_the_join_to_the_home_location():
    ring, topic = amag13("graft")
    ring.nodes["n60"].membership.views[topic] = View(topic, "n0", (Entry("n20", (topic,)),), 0)
    ring.join("n60")
    assert ring.path("n60", topic) == ["n0", "n50", "n60"]


def test_a_child_whose_parent_has_lost_it_joins_again():
    ring, topic = amag13("graft")
    ring.join("n20")
    tree = ring.nodes["n10"].trees.forest.trees[topic]
    ring.nodes["n10"].trees.forest.drop_child(tree, "n20")
    ring.talk.carry_out("n20", ring.nodes["n20"].trees.on_timer())
    ring.talk.run(1_000)
    assert "n20" in tree.children
    assert ring.path("n20", topic) == ["n0", "n10", "n20"]


def test_a_node_that_hears_nothing_of_the_root_for_long_joins_again_at_the_home_location():
    ring, topic = amag13("graft")
    ring.join("n20")
    node = ring.nodes["n20"]
    node.trees.forest.trees[topic].silence = node.config.root_silence_max
    sent = [effect.message for effect in node.trees.on_timer() if isinstance(effect, Send)]
    assert "JoinAt" in {type(message.body).__name__ for message in sent if isinstance(message, ToHome)}


def test_the_count_of_the_root_reaches_the_whole_tree_within_one_heartbeat():
    """So that a piece that was cut off is known by few heartbeats, however deep the tree is."""
    ring, topic = amag13("graft")
    ring.join("n20")
    root, deepest = ring.path("n20", topic)[0], ring.nodes["n20"].trees.forest.trees[topic]
    before = deepest.count
    ring.talk.carry_out(root, ring.nodes[root].trees.on_timer())
    ring.talk.run(500)  # no other node has had a heartbeat
    assert ring.nodes[root].trees.forest.trees[topic].count > before
    assert deepest.count == ring.nodes[root].trees.forest.trees[topic].count


def test_a_loose_piece_of_a_tree_is_joined_again_after_few_heartbeats():
    """Its nodes have parents and children; only the root's count does not come any more."""
    ring, _ = amag13("graft")
    ring.join("n20")
    trees = ring.nodes["n20"].trees
    for beat in range(5):
        sent = [effect.message for effect in trees.on_timer() if isinstance(effect, Send)]
        joins = [one for one in sent if isinstance(one, ToHome) and type(one.body).__name__ == "JoinAt"]
        assert bool(joins) == (beat == 4)


# Samples


def members(k=3, **more):
    config = MagnetConfig(sample_size=k, **more)
    control = Oscar("control", "m", lambda: None, Random(1))
    control.table.move(b"\x10")
    control.table.successors = [Peer("s", b"\x20")]
    control.table.predecessor = Peer("b", b"\x0f")
    control.table.touch()
    return Membership("m", control, Random(1), config)


def entries(*names):
    return tuple(Entry(name, ("t1",)) for name in names)


def test_an_inner_node_sends_up_k_of_what_it_was_sent_and_its_own_interest():
    member = members()
    member.subscribe(("t1",))
    member.announce(Entry("m", ("t1",)))
    member.on_sample_up("c1", SampleUp("t1", entries("a", "b"), 2, 0))
    member.on_sample_up("c2", SampleUp("t1", entries("c", "d", "a"), 9, 0))
    (round_,) = [effect for effect in member.on_timer() if isinstance(effect, Send)]
    (up,) = round_.message.parts
    assert len(up.sample) == 3
    assert {entry.node for entry in up.sample} <= {"a", "b", "c", "d", "m"}
    assert up.count == 12


def test_a_round_sends_all_topics_that_go_to_the_same_parent_in_few_messages():
    member = members()
    topics = [f"t{number}" for number in range(80)]
    for topic in topics:
        member.on_sample_up("c1", SampleUp(topic, entries("a"), 1, 0))
    rounds = [
        effect for effect in member.on_timer() if isinstance(effect, Send) and isinstance(effect.message, SamplesUp)
    ]
    told = [part.topic for effect in rounds for part in effect.message.parts]
    homes = list(member.homes)
    assert sorted(told + homes) == sorted(topics)
    assert {effect.to for effect in rounds} == {"s"}
    assert [len(effect.message.parts) for effect in rounds] == [32, 32, len(told) - 64]

    above = members()
    for effect in rounds:
        above.on_samples_up("m", effect.message)
    assert list(above.trees) == told
    assert all(list(tree.children) == ["m"] for tree in above.trees.values())


def test_a_child_that_is_silent_for_some_rounds_is_forgotten():
    member = members()
    member.on_sample_up("c1", SampleUp("t1", entries("a"), 1, 0))
    assert any(isinstance(effect, Send) for effect in member.on_timer())
    for _ in range(4):
        effects = member.on_timer()
    assert not any(isinstance(effect, Send) for effect in effects)
    assert member.trees == {}


def test_uniform_sampling_does_not_favour_small_subtrees():
    drawn = {"as-written": 0, "uniform": 0}
    for sampling in drawn:
        member = members(k=2, sampling=sampling)
        member.on_sample_up("small", SampleUp("t1", entries("a"), 1, 0))
        member.on_sample_up("large", SampleUp("t1", entries("b", "c"), 99, 0))
        for _ in range(300):
            drawn[sampling] += any(entry.node == "a" for entry in member._merged("t1", member.trees["t1"])[0])
    assert drawn["as-written"] > 150  # two of three
    assert drawn["uniform"] < 30  # one of a hundred, twice


def test_a_view_that_came_down_already_is_not_handed_on_again():
    member = members()
    member.on_sample_up("c1", SampleUp("t1", entries("a"), 1, 0))
    view = View("t1", "h", entries("a"), 4)
    assert member.on_view(view) == [Send("c1", view)]
    assert member.on_view(view) == []
    assert member.on_view(View("t1", "h2", entries("a"), 3)) == []


# The system


INTERESTS = {f"n{number}": (f"t{number % 3}", f"t{(number * 7) % 5}") for number in range(24)}


def test_a_run_builds_trees_that_reach_everybody_from_the_home_location_and_draws_its_pictures(tmp_path):
    from trellis.simulate.systems.magnet_figures import draw_world

    system = Magnet(links=8, join_gap_ms=50)
    engine = Engine(system, INTERESTS, seed=1)
    engine.run(15_000)
    for topic in ("t0", "t1", "t2", "t3", "t4"):
        found = reach(engine.world, topic)
        assert found.home == home_of(engine.world, topic)
        assert found.reached == len(found.subscribers)
    assert system.metrics(engine.world)["reached"] == 1.0
    draw_world(engine.world, tmp_path)
    assert (tmp_path / "ring.png").stat().st_size > 1_000
    assert (tmp_path / "tree.png").stat().st_size > 1_000


def test_the_first_nodes_join_further_apart_where_asked_for():
    assert Magnet(join_gap_ms=20).begins_ms(4) == [0, 20, 40, 60]
    begins = Magnet(join_gap_ms=20, first_gap_ms=500).begins_ms(400)
    gaps = [later - before for before, later in pairwise(begins)]
    assert gaps[:11] == [500] * 11
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[100] == 50  # a fifth of those who are there comes within a second
    assert gaps[250:] == [20] * 149


def test_the_strawman_places_nodes_by_name_only():
    from trellis.protocols.oscar.labels import hashed

    engine = Engine(Scribe(links=8, join_gap_ms=50), INTERESTS, seed=1)
    engine.run(8_000)
    assert all(engine.world.node(name).skewed.me.label == hashed(name) for name in engine.world.living)


def test_a_change_of_interest_moves_a_node_only_as_often_as_it_was_told():
    engine = Engine(Magnet(links=8, join_gap_ms=50, rejoin_changes=2), INTERESTS, seed=1)
    engine.run(15_000)
    node = engine.world.node("n4")
    engine.subscribe("n4", "t2")
    assert node.placement.stage == "placed"
    engine.unsubscribe("n4", "t1")
    assert node.placement.stage == "asking"
    engine.run(30_000)
    assert node.placement.stage == "placed"
    assert engine.system.metrics(engine.world)["reached"] == 1.0


@pytest.mark.parametrize(
    "options",
    [{"tree": "oak"}, {"sampling": "none"}, {"links": 1}, {"samples": 1}, {"period_ms": 0}, {"first_gap_ms": -1}],
)
def test_options_without_sense_are_refused_in_one_line(options):
    with pytest.raises(InputError) as error:
        maker_of("magnet")(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("tree", ["graft", "greedy-path"])
def test_newcomers_take_nobody_out_of_a_tree_whose_home_stays(tree):
    """Each comes between two neighbours, over whose link trees lie: they move before it is given up."""
    names = [f"n{number:02}" for number in range(40)]
    interests = {name: (f"t{number % 4}", f"t{4 + number % 3}") for number, name in enumerate(names)}
    late = names[::4]
    engine = Engine(Magnet(links=6, tree=tree, join_gap_ms=50), interests, seed=3, absent=late)
    world = engine.world
    engine.run(30_000)
    for name in late:
        topics = sorted({topic for topics in interests.values() for topic in topics})
        before = {topic: reach(world, topic, home_of(world, topic)) for topic in topics}
        engine.join(name, interests[name])
        stay = [topic for topic in topics if home_of(world, topic) == before[topic].home]
        for _ in range(300):
            engine.run(world.now_ms + 10)
            for topic in stay:
                now = reach(world, topic, before[topic].home).parents
                gone = [one for one in before[topic].subscribers if one not in now]
                assert not gone, f"{topic}: {gone} are cut off {world.now_ms} ms, after {name} has come"
        engine.run(world.now_ms + 5_000)
    assert all(not node.skewed.table.parting for node in map(world.node, world.living)), "a link is never given up"
