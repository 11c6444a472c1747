"""Magnet in cycles: samples, positions and trees against slow twins and the protocol's own nodes."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import cycles_magnet as slow
from reference.cycles_gossip import Chance
from reference.magnet import StillRing
from trellis.cycles.calendar import enter, make_calendar, next_time, take
from trellis.cycles.chance import stream
from trellis.cycles.instance import make_instance
from trellis.cycles.members import asked_sample, begin_part, make_members, more_members, sampling_round, send_up
from trellis.cycles.oscar import add_finger, home_of, labels_of, make_oscar, next_hop, owns, put_behind
from trellis.cycles.parts import find_part, make_part, make_parts, more_parts
from trellis.cycles.trees import NONE, ROOT, join, lose_child, make_trees, more_trees, play_part, reach, use_link
from trellis.protocols.magnet import MagnetConfig
from trellis.protocols.magnet.membership import TopicMembers
from trellis.protocols.magnet.messages import Entry, View

NODES, TOPICS = [f"v{number:02}" for number in range(13)], [f"t{number}" for number in range(5)]
seeds = st.integers(0, 2**32)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=80))
def test_parts_are_numbered_as_they_come(pairs):
    parts, expected = make_parts(4), {}
    for node, topic in pairs:
        if parts.used[0] + 1 >= len(parts.node):
            parts = more_parts(parts, 2 * len(parts.node))
        assert find_part(parts, node, topic) == expected.get((node, topic), -1)
        known = (node, topic) in expected
        number = expected.setdefault((node, topic), len(expected))
        assert make_part(parts, node, topic) == (number, not known)
    assert [find_part(parts, *pair) for pair in expected] == list(range(len(expected)))


@given(st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=60))
def test_events_come_in_the_order_of_their_times_and_entries(script):
    calendar, expected = make_calendar(64), []
    for number, time in enumerate(script):
        if time is not None:
            enter(calendar, time, number % 3, number)
            expected.append((time, number))
        elif expected:
            first = min(expected)
            expected.remove(first)
            assert next_time(calendar) == first[0]
            assert take(calendar) == (first[1] % 3, first[1])
    assert next_time(calendar) == min((time for time, _ in expected), default=-1)


def random_ring(random: Random, names, on_it=None, places=None):
    """A ring by name, or at given places, with random fingers."""
    ring = make_oscar(len(names), 8, np.random.default_rng(random.getrandbits(32)))
    labels = labels_of(names) if places is None else places
    order = sorted(range(len(names)) if on_it is None else on_it, key=lambda node: labels[node])
    for turn, node in enumerate(order):
        put_behind(ring, node, order[turn - 1] if turn else -1, labels[node])
    for node in order:
        others = [peer for peer in order if peer not in (node, ring.after[node])]
        for slot, peer in enumerate(random.sample(others, min(len(others), random.randint(0, ring.wanted[node])))):
            add_finger(ring, node, slot, peer)
    return ring


@settings(max_examples=80)
@given(seeds, st.integers(2, 5))
def test_samples_are_those_of_the_twin_draw_by_draw(seed, size):
    random = Random(seed)
    wanted = {name: tuple(sorted(random.sample(TOPICS, random.randint(1, 4)))) for name in NODES}
    instance = make_instance(wanted)
    rings = [random_ring(random, NODES) for _ in range(2)]  # The second one has other fingers.
    places, chance = labels_of(instance.topics), stream(seed, "members")
    current = [rings[0]]

    def parent(node: int, topic: int) -> int | None:
        ring = current[0]
        if owns(ring, node, places[topic]):
            return None
        hop = next_hop(ring, node, places[topic])
        return int(hop if hop >= 0 else ring.after[node])

    members, twin = make_members(len(NODES), len(instance.topics), size, 20), slow.Members(
        size, parent, Chance(int(chance[0]))
    )  # fmt: skip
    waiting = list(range(len(NODES)))
    for turn in range(60):
        current[0] = rings[turn // 30]
        if members.parts.used[0] > len(members.table) - 50:
            members = more_members(members, len(members.table) + 50)
        if waiting and random.random() < 0.4:
            node = waiting.pop()
            topics = instance.wants.topics[instance.wants.offsets[node] : instance.wants.offsets[node + 1]]
            for topic in topics:
                send_up(members, current[0], begin_part(members, node, topic), places, chance)
            twin.announce(node, topics.tolist())
        else:
            node = random.randrange(len(NODES))
            sampling_round(members, current[0], node, places, chance)
            twin.round(node)
    for topic, _ in enumerate(instance.topics):
        count = members.view_sizes[topic]
        assert members.views[topic, :count].tolist() == twin.views.get(topic, [])
        home = int(home_of(current[0], 0, places[topic])[0])
        answer = members.entries[: asked_sample(members, home, topic, chance)].tolist()
        assert answer == (twin.merged((home, topic)) if (home, topic) in twin.children else [])


@given(seeds)
def test_a_merged_sample_has_the_entries_that_the_protocol_merges(seed):
    """The protocol gets the samples of the twin's children. Without truncation both have the same entries."""
    random = Random(seed)
    node = StillRing({"a": Fraction(0)}, {}, {"a": "t"}, MagnetConfig(sample_size=64)).nodes["a"]
    node.membership.entry = Entry("a", ("t",), 1, 0)
    twin = slow.Members(64, lambda *_: None, Chance(1))
    twin._take_part(0, 0)
    twin.own.add((0, 0))
    tree = TopicMembers()
    for child in range(1, random.randint(1, 5)):
        sample = random.sample(range(20), random.randint(1, 6))
        twin.children[0, 0].append((child, 0))
        twin.sample[child, 0] = sample
        entries = tuple(Entry("a" if one == 0 else f"n{one}", ("t",), 1, 0) for one in sample)
        tree.children[f"c{child}"] = entries, len(entries), 0
    merged, _ = node.membership._merged("t", tree)
    assert sorted(entry.node for entry in merged) == sorted("a" if n == 0 else f"n{n}" for n in twin.merged((0, 0)))


@settings(max_examples=120)
@given(seeds, st.sampled_from(["graft", "greedy-path"]))
def test_trees_are_those_of_the_protocol_join_by_join(seed, form):
    """The same tables and the same order of joins. Grafts begin at the same subscribers, in the tree or not."""
    random = Random(seed)
    nodes = NODES[: random.randint(2, len(NODES))]
    drawn = random.sample(range(64), len(nodes))
    places = {name: Fraction(place, 64) for name, place in zip(nodes, drawn, strict=True)}
    wanted = {name: tuple(sorted(random.sample(TOPICS, random.randint(0, 3)))) for name in nodes}
    wanted[nodes[0]] = tuple(TOPICS)
    instance = make_instance(wanted)
    labels = np.array([int(places[name] * 2**64) for name in nodes], np.uint64)
    ring, control = random_ring(random, nodes, places=labels), random_ring(random, nodes)
    fingers = {name: [nodes[peer] for peer in ring.fingers[node] if peer >= 0] for node, name in enumerate(nodes)}
    config = MagnetConfig(tree=form)
    protocol = StillRing(places, fingers, {name: wanted[name] for name in nodes}, config)
    homes = np.array([home_of(control, 0, place)[0] for place in labels_of(instance.topics)], np.int32)
    assert [nodes[home] for home in homes] == [protocol.home(topic) for topic in instance.topics]
    trees, wants = make_trees(homes, 4), instance.wants
    order = random.sample(range(len(nodes)), len(nodes))
    for node in order:
        if trees.parts.used[0] + 40 > len(trees.parent):
            trees = more_trees(trees, len(trees.parent) + 80)
        for topic in wants.topics[wants.offsets[node] : wants.offsets[node + 1]].tolist():
            others = [one for one in range(len(nodes)) if TOPICS[topic] in wanted[nodes[one]] and one != node]
            start = random.choice(others) if others and random.random() < 0.8 else -1
            name = TOPICS[topic]
            sample = (Entry(nodes[start], wanted[nodes[start]], 1, 0),) if start >= 0 else ()
            protocol.nodes[nodes[node]].membership.views[name] = View(name, nodes[homes[topic]], sample, 1)
            join(trees, ring, wants, node, topic, start, form == "graft")
        protocol.join(nodes[node])
        for topic, name in enumerate(instance.topics):
            for other, other_name in enumerate(nodes):
                tree, part = protocol.nodes[other_name].trees.forest.get(name), find_part(trees.parts, other, topic)
                parent = trees.parent[part] if part >= 0 else NONE
                held = None if parent < 0 else nodes[trees.parts.node[parent]]
                assert held == (None if tree is None else tree.parent)
                assert (parent == ROOT) == (tree is not None and tree.is_root)
                if part >= 0 and parent != NONE:
                    assert trees.children[part] == len(tree.children)
    assert_uses_count_the_trees(trees, ring)
    found = reach(trees, len(instance.topics))
    for topic, name in enumerate(instance.topics):
        paths = {n: protocol.path(n, name) for n in nodes if name in wanted[n]}
        in_tree = {n for n in nodes if protocol.parent(n, name) is not None or n == protocol.home(name)}
        assert found.reached[topic] == len(paths)
        assert found.hops[topic] == sum(len(path) - 1 for path in paths.values())
        assert found.relays[topic] == len(in_tree - paths.keys())


def assert_uses_count_the_trees(trees, ring) -> None:
    expected = np.zeros_like(ring.uses)
    for part in range(trees.parts.used[0]):
        if trees.parent[part] >= 0:
            node, peer = trees.parts.node[trees.parent[part]], trees.parts.node[part]
            slots = [slot for slot in range(ring.wanted[node]) if ring.fingers[node, slot] == peer]
            assert slots or ring.after[node] == peer
            expected[node, slots[0] if slots else -1] += 1
    assert np.array_equal(ring.uses, expected)


@settings(max_examples=40)
@given(seeds)
def test_a_node_that_changes_its_parent_gives_the_link_back(seed):
    """Over a finger and over the link to the successor. The former parent leads nowhere then, and leaves the tree."""
    random = Random(seed)
    ring = random_ring(random, NODES)
    wants = make_instance(dict.fromkeys(NODES, ("t",))).wants
    first = random.randrange(len(NODES))
    ways = [int(peer) for peer in ring.fingers[first] if peer >= 0] + [int(ring.after[first])]
    for child in ways:
        trees = make_trees(np.array([first], np.int32), 40)
        parent, part = (play_part(trees, wants, node, 0) for node in (first, child))
        before = ring.uses.copy()
        trees.parent[part], trees.children[parent] = parent, 1
        use_link(trees, ring, part, parent, 1)
        assert ring.uses.sum() == before.sum() + 1
        lose_child(trees, ring, part, parent)
        assert np.array_equal(ring.uses, before)
        assert trees.children[parent] == 0


def test_a_forwarder_stays_as_long_as_it_has_a_child():
    """The home 0 has the forwarder 1, whose children 2 and 3 subscribe to the topic."""
    ring = random_ring(Random(1), NODES)
    wants = make_instance({name: ("t",) if name in NODES[2:4] else ("other",) for name in NODES[:4]}).wants
    trees = make_trees(np.zeros(2, np.int32), 40)
    home, forwarder, *children = (play_part(trees, wants, node, 1) for node in range(4))
    trees.parent[[home, forwarder, *children]] = ROOT, home, forwarder, forwarder
    trees.children[[home, forwarder]] = 1, 2
    lose_child(trees, ring, children[0], forwarder)
    assert (trees.parent[forwarder], trees.children[forwarder], trees.children[home]) == (home, 1, 1)
    lose_child(trees, ring, children[1], forwarder)
    assert (trees.parent[forwarder], trees.children[forwarder], trees.children[home]) == (NONE, 0, 0)
    assert trees.parent[home] == ROOT
