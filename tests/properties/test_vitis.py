"""The quick parts of Vitis against slow ones that say the same word for word."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from reference import vitis as reference
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.lookup import Compass, rendezvous
from trellis.protocols.ring import identifier
from trellis.protocols.small_world import LongLinks
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis import VitisConfig, VitisNode
from trellis.protocols.vitis.gateways import Gateways
from trellis.protocols.vitis.messages import Proposal
from trellis.protocols.vitis.neighbors import FIRM, Neighbor, Neighbors
from trellis.protocols.vitis.select import Utility, around, friends, take_long_links, take_ring

NAMES = [f"n{number}" for number in range(30)]
TOPICS = [f"t{number}" for number in range(8)]
some_names = st.lists(st.sampled_from(NAMES), unique=True, max_size=12)
some_topics = st.sets(st.sampled_from(TOPICS))
places = st.sampled_from([identifier(name) for name in [*TOPICS, *NAMES]]) | st.integers(0, 2**160 - 1)


@given(some_names, places)
def test_a_compass_points_to_the_closest_neighbour(names, place):
    assert Compass("me", names).next_hop(place) == reference.next_hop("me", names, place)


@given(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=5), st.integers(-1, 1))
def test_a_compass_is_right_in_the_very_middle_between_two(names, beside):
    """Where two are equally close the smaller identifier wins (A-VIT-14)."""
    placed = sorted(identifier(name) for name in ["me", *names])
    for one, other in zip(placed, [*placed[1:], placed[0]], strict=True):
        place = (one + (other - one) % 2**160 // 2 + beside) % 2**160
        assert Compass("me", names).next_hop(place) == reference.next_hop("me", names, place)


@given(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=12), places)
def test_a_lookup_over_ring_links_alone_ends_at_the_rendezvous_node(names, place):
    ring = sorted(names, key=identifier)
    beside = {name: {ring[(at + 1) % len(ring)], ring[at - 1]} - {name} for at, name in enumerate(ring)}
    for name in names:
        hops = 0
        while (hop := Compass(name, beside[name]).next_hop(place)) is not None:
            name, hops = hop, hops + 1
            assert hops <= len(names)
        assert name == rendezvous(place, names) == reference.closest(place, names)


@given(some_topics, some_topics, st.booleans(), st.randoms(use_true_random=False))
def test_utility_is_the_rate_of_what_is_shared_over_the_rate_of_all(one, other, rated, random):
    rates = {topic: random.choice([0.0, 0.5, 1.0, 7.0]) for topic in TOPICS} if rated else None
    quick = Utility(TopicTable(), tuple(sorted(one)), rates)
    expected = reference.utility(one, other, rates)
    assert abs(quick.of(tuple(sorted(other))) - expected) < 1e-12
    assert abs(quick.of(tuple(sorted(other))) - expected) < 1e-12  # from memory
    quick.set(tuple(sorted(other)))
    assert abs(quick.of(tuple(sorted(one))) - expected) < 1e-12


@given(some_names, st.lists(st.integers(0, 2**160 - 1), max_size=4))
def test_the_ring_and_the_long_links_are_taken_as_by_a_full_scan(names, distances):
    ring = around(identifier("me"), dict.fromkeys(names))
    taken = take_ring(ring)
    taken += take_long_links(ring, distances)
    assert taken == reference.small_world("me", names, distances)
    assert sorted([*taken, *(name for _, name in ring)]) == sorted(names)


@given(some_names, some_topics, st.integers(0, 12), st.booleans(), st.randoms(use_true_random=False))
def test_friends_are_those_of_highest_utility_and_the_table_wins_ties(names, mine, count, strangers, random):
    wants = {name: {topic for topic in TOPICS if random.random() < 0.4} for name in names}
    entries = {name: (0, Descriptor(name, 0, 1, tuple(sorted(wants[name])))) for name in names}
    taken = names[: len(names) // 4]
    quick = Utility(TopicTable(), tuple(sorted(mine)))
    chosen = friends(entries, taken, quick.of, count, strangers)
    rest = [name for name in names if name not in taken]
    rest.sort(key=lambda name: -reference.utility(mine, wants[name]))
    if not strangers:
        rest = [name for name in rest if reference.utility(mine, wants[name]) > 0]
    assert chosen == rest[:count]


@given(st.integers(0, 10_000), st.integers(2, 5000), st.integers(0, 13))
def test_long_links_lead_no_further_than_once_around_and_no_nearer_than_a_node(seed, size, count):
    made = LongLinks(identifier("me"), count, Random(seed), network_size=size)
    distances = made.distances(identifier("a"), identifier("b"))
    assert len(distances) == count
    assert all(2**160 // size - 2**110 <= distance < 2**160 for distance in distances)
    assert made.distances(identifier("c"), identifier("d")) == distances  # drawn once (A-VIT-3)


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.booleans())
def test_gateways_that_look_at_what_changed_elect_whom_a_full_look_elects(random, hops_max, take_back):
    """Neighbours come, go and change minds and topics, and so do we; what was not touched is still right."""
    neighbors = Neighbors()
    config = VitisConfig(gateway_hops=hops_max, take_back=take_back)
    gateways = Gateways("me", tuple(TOPICS), neighbors, config)
    for _ in range(14):
        name = random.choice(NAMES[:8])
        one = neighbors.all.get(name)
        wanted = tuple(sorted(random.sample(TOPICS, random.randrange(1, len(TOPICS) + 1))))
        if random.random() < 0.1:
            gateways.set_topics(wanted)
        elif one is None:
            one = neighbors.all[name] = Neighbor(name, 1, wanted, 0)
            one.parting = FIRM
            gateways.came(one)
        elif random.random() < 0.2:
            del neighbors.all[name]
            gateways.went(one)
        elif random.random() < 0.2:
            gateways.went(one)
            one.set_topics(wanted)
            gateways.came(one)
        else:
            told = list(one.listed) or [Proposal(name, name, 0)] * len(one.topics)
            for place in random.sample(range(len(told)), (len(told) + 1) // 2):
                parent = random.choice([name, "me", *NAMES[:10]])
                told[place] = Proposal(random.choice(NAMES[:12]), parent, random.randrange(4))
            gateways.listen(one, tuple(told))
        gateways.update()
        gateways.check()
        for topic, elected in gateways.proposals.items():
            told = {
                node: (proposal.gateway, proposal.parent, proposal.hops)
                for node, heard in neighbors.all.items()
                for at, proposal in zip(heard.topics, heard.listed, strict=False)
                if at == topic
            }
            gateway, hops, parents = reference.elect("me", topic, told, hops_max, take_back)
            assert (elected.gateway, elected.hops) == (gateway, hops)
            assert elected.parent in parents


@given(st.randoms(use_true_random=False), st.integers(3, 6))
def test_a_table_that_passes_over_candidates_at_a_glance_is_the_table_of_one_that_looks_at_all(random, size):
    config = VitisConfig(table_size=size, sw_neighbors=random.choice([2, 3]), network_size=30)
    quick, slow = (VitisNode("me", ("t0", "t1", "t2"), Random(5), config) for _ in range(2))
    slow.table.filter = None
    wants = {name: tuple(topic for topic in TOPICS if random.random() < 0.4) for name in NAMES}
    for _ in range(15):
        if random.random() < 0.2:
            wants[random.choice(NAMES)] = ("t1", "t2")
        told = tuple(Descriptor(name, 0, 1, wants[name]) for name in random.sample(NAMES, 6))
        gone = random.choice(NAMES) if random.random() < 0.1 else None
        for node in (quick, slow):
            node.table.table.advance()
            if gone is not None:
                node.table.table.forget(gone)
            node.table.learn(told)
        assert sorted(quick.table.peers) == sorted(slow.table.peers)
