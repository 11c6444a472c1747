"""Trees on still rings: what `graft` and `greedy-path` promise, whatever the labels, fingers and order of joins."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from reference.magnet import StillRing, clockwise, greedy_route, similarity
from trellis.protocols.magnet import CODEC, MagnetConfig
from trellis.protocols.magnet.messages import Entry, View
from trellis.protocols.magnet.similarity import Similarity
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis.select import Utility


@st.composite
def still_rings(draw, tree):
    count = draw(st.integers(2, 12))
    places = draw(st.lists(st.integers(0, 255), min_size=count, max_size=count, unique=True))
    names = [f"n{number}" for number in range(count)]
    fingers = {name: draw(st.lists(st.sampled_from(names), max_size=4, unique=True)) for name in names}
    interests = {name: draw(st.sampled_from(["x", "y", "xy"])) for name in names}
    at = {name: Fraction(place, 256) for name, place in zip(names, places, strict=True)}
    return StillRing(at, fingers, interests, MagnetConfig(tree=tree)), draw(st.permutations(names))


def tell_views(ring, joined):
    """Everybody knows all who have joined: a graft may begin at any of them."""
    for node in ring.nodes.values():
        for topic in node.topics:
            others = tuple(Entry(one, ring.nodes[one].topics) for one in joined if topic in ring.nodes[one].topics)
            node.membership.views[topic] = View(topic, ring.home(topic), others[:10], 0)


def assert_one_tree(ring, topic, joined):
    home = ring.home(topic)
    for name, node in ring.nodes.items():
        node.check()
        tree = node.trees.forest.get(topic)
        if name in joined and topic in node.topics:
            assert ring.path(name, topic)[0] == home
        if tree is None or not tree.is_attached:
            continue
        assert tree.is_root == (name == home)
        if tree.parent is not None:
            assert name in ring.nodes[tree.parent].trees.forest.trees[topic].children
            assert name in ring.down[tree.parent], "a tree link lies over no link"
            nearer = clockwise(ring.places[home], ring.places[tree.parent])
            assert nearer < clockwise(ring.places[home], ring.places[name])
        for child in tree.children:
            assert ring.parent(child, topic) == name


@given(still_rings("greedy-path"))
@settings(max_examples=60)
def test_a_greedy_path_tree_follows_the_greedy_route_from_the_home_location(drawn):
    ring, order = drawn
    for at, name in enumerate(order):
        tell_views(ring, order[:at])
        ring.join(name)
        for topic in ring.nodes[name].topics:
            route = greedy_route(ring.places, ring.down, ring.home(topic), name)
            assert ring.path(name, topic) == route
            assert_one_tree(ring, topic, order[: at + 1])


@given(still_rings("graft"))
@settings(max_examples=60)
def test_grafts_make_one_tree_over_links_rooted_at_the_home_location(drawn):
    ring, order = drawn
    for at, name in enumerate(order):
        tell_views(ring, order[:at])
        ring.join(name)
    for topic in "xy":
        assert_one_tree(ring, topic, order)


@given(still_rings("graft"), st.data())
@settings(max_examples=40)
def test_every_subscriber_gets_a_publication_once_and_relays_leave_with_the_last_who_needs_them(drawn, data):
    ring, order = drawn
    for at, name in enumerate(order):
        tell_views(ring, order[:at])
        ring.join(name)
    topic = data.draw(st.sampled_from("xy"))
    publisher = data.draw(st.sampled_from(order))
    ring.talk.carry_out(publisher, ring.nodes[publisher].publish(topic, b"hello"))
    ring.talk.run(1_000)
    wanted = sorted(name for name, node in ring.nodes.items() if topic in node.topics)
    assert sorted(name for name, event in ring.talk.delivered if event.topic == topic) == wanted
    for name in wanted:
        ring.talk.carry_out(name, ring.nodes[name].trees.unsubscribe(topic))
        ring.talk.run(200)
    left = [name for name, node in ring.nodes.items() if node.trees.forest.get(topic) is not None]
    assert left in ([], [ring.home(topic)])


interests = st.sets(st.sampled_from("abcdefgh"))


@given(interests, interests, st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.1, 10)))
def test_similarity_is_shared_topics_over_all_topics_weighted_by_rate(one, other, rates):
    table = TopicTable()
    plain = Similarity(tuple(sorted(one)), table)
    assert plain.of(tuple(sorted(other))) == similarity(one, other)
    weighted = Similarity(tuple(sorted(one)), table, rates)
    assert abs(weighted.of(tuple(sorted(other))) - similarity(one, other, rates)) < 1e-9
    # A topic without a known rate counts the same in both systems, which share the formula [VI Eq. 1].
    utility = Utility(table, tuple(sorted(one)), rates)
    assert abs(weighted.of(tuple(sorted(other))) - utility.of(tuple(sorted(other)))) < 1e-9
    equal = Similarity(tuple(sorted(one)), table, dict.fromkeys("abcdefgh", 3.0))
    assert abs(equal.of(tuple(sorted(other))) - similarity(one, other)) < 1e-9


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data):
    from trellis.protocols.wire import WireError

    try:
        message = CODEC.decode(data)
    except WireError:
        return
    assert CODEC.decode(CODEC.encode(message)) == message
