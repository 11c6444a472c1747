"""Links that an operator opens and drops: a drop never splits a topic, and is no crash. All without the net."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

import msgspec
import pytest

from trellis.protocols.omen import messages as m
from trellis.simulate.engine import Engine
from trellis.simulate.systems.omen import OMen

OTHERS = [f"p{number}" for number in range(4)]  # a mesh beside, so that the ring has successors left
RING = ["ab", "bc", "cd", "ad"]


def mesh(interests, links, *, seed=1, **options):
    """12 s old."""
    interests = interests | dict.fromkeys(OTHERS, ("other",))
    overlay = tuple(tuple(sorted(link)) for link in [*links, *pairwise(OTHERS)])
    engine = Engine(OMen(net=False, **options), interests, seed=seed, overlay=overlay)
    engine.run(12_000)
    return engine


def after(engine, seconds):
    engine.run(engine.world.now_ms + round(1000 * seconds))
    engine.check_always()
    return engine


def node_of(engine, name):
    return engine.world.actors[name].node


def ask(engine, change, one, other, via=()):
    node = node_of(engine, one)
    engine._perform(engine.world.actors[one], node.drop_link(other, via) if change == "drop" else node.open_link(other))


def told(engine, name):
    return [(one.change, one.peer, one.state) for one in node_of(engine, name).requests.latest]


def why(engine, name):
    return node_of(engine, name).requests.latest[-1].why


def linked(engine, names="abcdefgh"):
    return {"".join(sorted(pair)) for pair in engine.world.links() if set(pair) <= set(names)}


def split(engine):
    """Topics whose living subscribers are not connected through each other."""
    world, found = engine.world, set()
    near = [(one, other) for pair in world.links() for one, other in (pair, pair[::-1])]
    for topic in {topic for name in world.living for topic in world.topics_of(name)}:
        left = {name for name in world.living if topic in world.topics_of(name)}
        stack = [min(left)]
        while stack:
            node = stack.pop()
            if node in left:
                left.discard(node)
                stack += [other for one, other in near if one == node]
        if left:
            found.add(topic)
    return found


def test_a_link_that_no_topic_needs_is_dropped_at_both_ends_and_stays_so():
    engine = mesh(dict.fromkeys("abc", ("t",)), ["ab", "bc", "ac"])
    ask(engine, "drop", "a", "b")
    after(engine, 1)
    assert told(engine, "a") == [("drop", "b", "done")]
    assert linked(engine) == {"bc", "ac"}
    after(engine, 60)
    assert linked(engine) == {"bc", "ac"}, "nobody took it for a crash, or for a link that was lost"
    assert [one.node for one in node_of(engine, "a").parts.own.record.neighbours] == ["c"]
    assert not engine.sent_by_type().get("Report")


def test_a_link_that_connects_a_topic_is_kept():
    engine = mesh({"a": ("t", "s"), "b": ("t", "s"), "c": ("t",)}, ["ab", "bc", "ac"])
    ask(engine, "drop", "a", "b", via=("c",))
    after(engine, 3)
    assert told(engine, "a") == [("drop", "b", "refused")]
    assert why(engine, "a") == 'nothing else is known to connect topic "s"'
    assert linked(engine) == {"ab", "bc", "ac"}


def test_a_way_around_is_found_although_nobody_names_it():
    engine = mesh(dict.fromkeys("abcdefgh", ("t",)), [*map("".join, pairwise("abcdefgh")), "ah"])
    ask(engine, "drop", "a", "h")
    after(engine, 3)
    assert told(engine, "a") == [("drop", "h", "done")]
    assert not split(engine)


def test_nodes_that_are_named_in_vain_prove_nothing():
    engine = mesh(dict.fromkeys("abc", ("t",)), ["ab", "bc"])
    ask(engine, "drop", "a", "b", via=("c", "p1", "nobody"))
    after(engine, 4)
    assert told(engine, "a") == [("drop", "b", "refused")]
    assert linked(engine) == {"ab", "bc"}


def test_a_crash_after_a_drop_is_repaired_as_ever():
    engine = mesh(dict.fromkeys("abc", ("t",)), ["ab", "bc", "ac"])
    ask(engine, "drop", "a", "b")
    after(engine, 0.5)
    engine.crash("c")
    after(engine, 30)
    assert linked(engine) == {"ab"}


@pytest.mark.parametrize("later_ms", [0, 20, 300])
def test_two_drops_at_a_time_do_not_rest_on_each_other(later_ms):
    for first, second in ((("a", "b"), ("b", "c")), (("a", "b"), ("c", "d")), (("b", "a"), ("d", "a"))):
        engine = mesh(dict.fromkeys("abcd", ("t",)), RING, seed=later_ms)
        ask(engine, "drop", *first)
        engine.run(engine.world.now_ms + later_ms)
        ask(engine, "drop", *second)
        for _ in range(8):
            after(engine, 0.4)
            assert not split(engine), f"{first} and {second}"


@pytest.mark.parametrize("victim", ["b", "c", "d"])
@pytest.mark.parametrize("later_ms", [0, 15, 60, 200])
def test_a_node_that_crashes_during_a_drop_is_repaired_around(victim, later_ms):
    engine = mesh(dict.fromkeys("abcde", ("t",)), [*map("".join, pairwise("abcde")), "ae", "ac"], seed=later_ms)
    ask(engine, "drop", "a", "b")
    engine.run(engine.world.now_ms + later_ms)
    engine.crash(victim)
    after(engine, 25)
    assert not split(engine)


@pytest.mark.parametrize("who", ["a", "b"])
@pytest.mark.parametrize("later_ms", [-20, 0, 10, 60])
def test_a_topic_that_an_end_takes_up_during_a_drop_is_covered(who, later_ms):
    """The link is the only one with that topic, so whoever takes it up counts on the link, or finds another."""
    other = "b" if who == "a" else "a"
    wanted = {"a": ("t",), "b": ("t",), "c": ("t",), other: ("t", "new"), "d": ("new", "other")}
    engine = mesh(wanted, ["ab", "bc", "ac", other + "d", ("d", "p1")], seed=50 + later_ms)
    if later_ms < 0:
        engine.subscribe(who, "new")
        engine.run(engine.world.now_ms - later_ms)
    ask(engine, "drop", "a", "b")
    if later_ms >= 0:
        engine.run(engine.world.now_ms + later_ms)
        engine.subscribe(who, "new")
    after(engine, 20)
    assert not split(engine)


def test_an_end_that_takes_up_a_topic_after_its_answer_does_not_agree():
    engine = mesh({"a": ("t", "new"), "b": ("t",), "c": ("t",)}, ["ab", "bc", "ac"])
    a, b = node_of(engine, "a"), node_of(engine, "b")
    engine._perform(engine.world.actors["b"], b.on_message("a", m.Ask(7, 0, ("t",))))
    agreed = m.Disconnect(a.me.incarnation, b.me.topics_version)
    engine.subscribe("b", "new")
    engine._perform(engine.world.actors["b"], b.on_message("a", agreed))
    after(engine, 5)
    assert linked(engine) == {"ab", "bc", "ac"}


def test_an_end_that_takes_up_a_topic_while_it_drops_a_link_does_not_count_on_that_link():
    wanted = {"a": ("t",), "b": ("t", "new"), "c": ("t",), "d": ("new", "other")}
    engine = mesh(wanted, ["ab", "bc", "ac", "bd", ("d", "p1")])
    ask(engine, "drop", "a", "b", via=("c",))
    requests = node_of(engine, "a").requests
    while not any(drop.is_proven for drop in requests._drops.values()):
        engine.run(engine.world.now_ms + 1)
    engine.subscribe("a", "new")
    after(engine, 20)
    assert told(engine, "a") == [("drop", "b", "done")]
    assert not split(engine)


def test_a_link_on_which_a_repair_may_count_is_kept():
    engine = mesh(dict.fromkeys("abcd", ("t",)), [*RING, "ac"])
    question = m.Ask(7, 0, ("t",))
    engine._perform(engine.world.actors["a"], node_of(engine, "a").on_message("p1", question))
    ask(engine, "drop", "a", "c")
    assert (told(engine, "a"), why(engine, "a")) == (
        [("drop", "c", "refused")],
        "a repair elsewhere may count on this link",
    )
    after(engine, 5)
    ask(engine, "drop", "a", "c")
    after(engine, 1)
    assert told(engine, "a")[-1] == ("drop", "c", "done")


def test_nodes_that_were_asked_for_a_drop_can_drop_links_right_after_it():
    engine = mesh(dict.fromkeys("abcd", ("t",)), [*RING, "ac", "bd"])
    for one, other in (("a", "c"), ("b", "d"), ("a", "b")):
        ask(engine, "drop", one, other)
        after(engine, 0.5)
        assert told(engine, one)[-1] == ("drop", other, "done")
    assert linked(engine) == {"bc", "cd", "ad"}


def test_a_node_that_knows_no_agreement_closes_its_end_and_the_link_is_not_opened_again():
    engine = mesh(dict.fromkeys("abc", ("t",)), ["ab", "bc", "ac"])
    old = node_of(engine, "b")
    newer = old._handlers[m.Disconnect]
    old._handlers[m.Disconnect] = lambda sender, said: newer(sender, msgspec.structs.replace(said, version=0))
    ask(engine, "drop", "a", "b")
    after(engine, 30)
    assert told(engine, "a") == [("drop", "b", "done")]
    assert linked(engine) == {"bc", "ac"}


def test_a_request_to_agree_that_comes_late_is_not_followed():
    """By then others may have dropped links that its proof rests on."""
    engine = mesh(dict.fromkeys("abc", ("t",)), ["ab", "bc", "ac"])
    a, b = node_of(engine, "a"), node_of(engine, "b")
    late = m.Disconnect(a.me.incarnation, b.me.topics_version)
    engine._perform(engine.world.actors["b"], b.on_message("a", late))
    assert "ab" in linked(engine), "it was not asked at all"
    engine._perform(engine.world.actors["b"], b.on_message("a", m.Ask(7, 0, ("t",))))
    after(engine, 2.5)
    engine._perform(engine.world.actors["b"], b.on_message("a", late))
    assert "ab" in linked(engine)
    engine._perform(engine.world.actors["b"], b.on_message("a", m.Ask(8, 0, ("t",))))
    engine._perform(engine.world.actors["b"], b.on_message("a", late))
    assert "ab" not in linked(engine)


def test_a_link_is_opened_and_serves_the_topics_of_both():
    engine = mesh(dict.fromkeys("abc", ("t",)), ["ab", "bc"])
    ask(engine, "open", "a", "c")
    after(engine, 2)
    assert told(engine, "a") == [("open", "c", "done")]
    assert linked(engine) == {"ab", "bc", "ac"}
    ask(engine, "drop", "b", "a")
    after(engine, 1)
    assert linked(engine) == {"bc", "ac"}


def test_a_link_that_serves_no_topic_or_leads_nowhere_is_not_kept():
    engine = mesh(dict.fromkeys("ab", ("t",)), ["ab"])
    ask(engine, "open", "a", "p1")
    ask(engine, "open", "a", "nobody")
    ask(engine, "open", "a", "a")
    after(engine, 12)
    assert [one[2] for one in told(engine, "a")] == ["refused"] * 3
    whys = {one.why for one in node_of(engine, "a").requests.latest}
    assert whys == {"it has no topic of this node", "it did not answer", "it is this node itself"}
    assert set(engine.world.links()) == {("a", "b"), *pairwise(OTHERS)}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_drops_and_crashes_in_any_order_leave_every_topic_connected(seed):
    chance = Random(seed)
    names = [f"n{number}" for number in range(8)]
    wanted = {name: tuple(sorted(chance.sample(["r", "s", "t", "u"], 2))) for name in names}
    links = [pair for pair in combinations(names, 2) if set(wanted[pair[0]]) & set(wanted[pair[1]])]
    engine = mesh(wanted, links, seed=seed)
    for step in range(40):
        living = [name for name in names if name in engine.world.living]
        pairs = sorted(pair for pair in engine.world.links() if set(pair) <= set(living))
        if step in (15, 30):
            engine.crash(chance.choice(living))
        elif pairs:
            one, other = chance.choice(pairs)
            ask(engine, "drop", *(chance.choice([(one, other), (other, one)])))
        engine.run(engine.world.now_ms + chance.choice([5, 50, 200, 600]))
        if step < 15:
            assert not split(engine), f"seed {seed}, step {step}"
    after(engine, 40)
    assert not split(engine), f"seed {seed}"
    assert len(engine.world.links()) < len(links), "some were dropped"
