"""Vitis in cycles: kernels against the protocol's own functions, on the same random inputs, ties included.

Identifiers are chosen, not hashed, so that distances can be equal: the protocol's are the kernels' times 2^96.
"""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.cycles.chance import stream
from trellis.cycles.gateways import elect_cycle, is_shorter, make_proposals
from trellis.cycles.instance import Instance, make_instance
from trellis.cycles.newscast import make_views
from trellis.cycles.presence import make_presence
from trellis.cycles.spread import next_hop
from trellis.cycles.tables import Links, Rule, gather, make_candidates, make_tables, select
from trellis.protocols import ring
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.lookup import Compass
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis import VitisConfig
from trellis.protocols.vitis.gateways import Gateways
from trellis.protocols.vitis.messages import Proposal
from trellis.protocols.vitis.neighbors import FIRM, Neighbor, Neighbors
from trellis.protocols.vitis.select import Utility, around, friends, take_long_links, take_ring

NODES = [f"v{number:02}" for number in range(14)]
TOPICS = [f"t{number}" for number in range(6)]
SCALE = 1 << 96
few_places = st.lists(st.integers(0, 40), min_size=len(NODES), max_size=len(NODES), unique=True)
seeds = st.integers(0, 2**32)


@pytest.fixture(autouse=True)
def forget_identifiers():
    yield
    for name in (*NODES, *TOPICS):
        ring._identifiers.pop(name, None)


def instance_at(places: list[int], seed: int, rates: dict[str, float] | None = None) -> tuple[Instance, dict]:
    """Nodes at these places, in steps that make the ring small; topics in between and at the same places."""
    random = Random(seed)
    step = 2**64 // 41
    for name, place in zip(NODES, places, strict=True):
        ring._identifiers[name] = (place * step) * SCALE
    for name in TOPICS:
        ring._identifiers[name] = (random.randrange(82) * step // 2) * SCALE
    wanted = {name: tuple(sorted(random.sample(TOPICS, random.randint(0, len(TOPICS))))) for name in NODES}
    wanted[NODES[0]] = tuple(TOPICS)  # every topic has a subscriber
    return make_instance(wanted, rates), wanted


@settings(max_examples=80)
@given(few_places, seeds, st.integers(0, 3), st.integers(3, 8), st.booleans(), st.booleans())
def test_tables_are_those_that_the_protocol_selects(places, seed, long_links, size, strangers, rated):
    random = Random(seed)
    rates = {topic: random.choice([0.0, 0.5, 1.0, 4.0]) for topic in TOPICS} if rated else None
    instance, wanted = instance_at(places, seed, rates)
    size = max(size, long_links + 2)
    order = random.sample(range(1, len(NODES)), random.randint(1, len(NODES) - 1))
    held = random.randint(0, min(size, len(order)))
    rule = Rule(size, long_links + 2, strangers, 1_000)
    tables = make_tables(len(NODES), rule, stream(seed, "x"))
    distances = [random.randrange(82) * (2**64 // 41) // 2 for _ in range(long_links)]
    tables.distances[0] = distances
    utility = Utility(TopicTable(), wanted[NODES[0]], rates)
    tables.peers[0, :held], tables.count[0] = order[:held], held
    tables.utility[0, :held] = [utility.of(wanted[NODES[node]]) for node in order[:held]]
    views = make_views(np.full((len(NODES), 1), -1, np.int32), 2)
    links = Links(np.zeros(len(NODES) + 1, np.int64), np.empty(0, np.uint32))
    mark = np.zeros(len(NODES), np.int32)
    scratch = make_candidates(tables, instance.wants, views, links, mark)
    teller, told = (order[held], order[held + 1 :]) if held < len(order) else (order[0], [])
    given_ = np.array([*told, *[0] * size], np.uint32)
    there = make_presence(len(NODES), 5, 10)
    changed = select(tables, instance.wants, views, links, there, 0, teller, given_, len(told), scratch, 1, rule)

    entries = {NODES[node]: (0, Descriptor(NODES[node], 0, 1, wanted[NODES[node]])) for node in order}
    left = around(ring.identifier(NODES[0]), entries)
    taken = take_ring(left)
    taken += take_long_links(left, [distance * SCALE for distance in distances])
    expected = taken + friends(entries, taken, utility.of, size - max(rule.sw_neighbors, len(taken)), strangers)
    assert [NODES[node] for node in tables.peers[0, : tables.count[0]]] == expected
    assert changed == (set(expected) != {NODES[node] for node in order[:held]})
    beside = [NODES[node] if node >= 0 else None for node in tables.beside[0].tolist()]
    assert beside == [*taken[:2], None, None][:2]


@settings(max_examples=80)
@given(few_places, seeds, st.integers(1, 4), st.booleans())
def test_proposals_are_those_that_the_protocol_elects(places, seed, hops_max, take_back):
    random = Random(seed)
    instance, wanted = instance_at(places, seed)
    wants, proposals = instance.wants, make_proposals(instance.wants)
    topic_names = instance.topics
    linked = random.sample(range(1, len(NODES)), random.randint(0, 8))
    for slot in range(len(wants.topics)):
        proposals.gateway[slot] = random.choice([0, *range(len(NODES))])
        # A parent has told of the topic, so it wants it.
        topic = topic_names[wants.topics[slot]]
        parents = [node for node in [0, *linked, *range(len(NODES))] if topic in wanted[NODES[node]]]
        proposals.parent[slot] = random.choice(parents)
        proposals.hops[slot] = random.randint(0, 4)
    own = slice(wants.offsets[0], wants.offsets[1])
    config = VitisConfig(gateway_hops=hops_max, take_back=take_back)
    neighbors = Neighbors()
    told = {name: {} for name in NODES}
    for node, name in enumerate(NODES):
        for slot in range(wants.offsets[node], wants.offsets[node + 1]):
            parts = NODES[proposals.gateway[slot]], NODES[proposals.parent[slot]], int(proposals.hops[slot])
            told[name][topic_names[wants.topics[slot]]] = Proposal(*parts)
    gateways = Gateways(NODES[0], wanted[NODES[0]], neighbors, config)
    gateways.proposals.update(told[NODES[0]])
    for node in linked:
        one = Neighbor(NODES[node], 1, wanted[NODES[node]], 0)
        one.parting = FIRM
        one.listed = tuple(told[NODES[node]][topic] for topic in wanted[NODES[node]])
        neighbors.all[one.node] = one
        gateways.came(one)
    gateways.update()
    offsets = np.zeros(len(NODES) + 1, np.int64)
    offsets[1:] = len(linked)
    links = Links(offsets, np.array(linked, np.uint32))
    mark, order = np.zeros(len(NODES), np.int32), np.zeros(1, np.int32)
    there = np.ones(len(NODES), np.bool_)
    elect_cycle(proposals, wants, links, there, order, stream(1, "x"), mark, hops_max, take_back)
    rows = zip(proposals.gateway[own], proposals.parent[own], proposals.hops[own].tolist(), strict=True)
    found = [(NODES[gateway], NODES[parent], hops) for gateway, parent, hops in rows]
    expected = [gateways.proposals[topic] for topic in topic_names]
    assert found == [(one.gateway, one.parent, one.hops) for one in expected]


@settings(max_examples=80)
@given(few_places, seeds, st.integers(0, 81))
def test_lookups_go_where_the_compass_points(places, seed, target):
    random = Random(seed)
    instance, _ = instance_at(places, seed)
    linked = random.sample(range(1, len(NODES)), random.randint(0, len(NODES) - 1))
    place = target * (2**64 // 41) // 2
    offsets = np.array([0, len(linked)], np.int64)
    hop = next_hop(instance.wants.places, offsets, np.array(linked, np.uint32), 0, np.uint64(place))
    expected = Compass(NODES[0], [NODES[node] for node in linked]).next_hop(place * SCALE)
    assert (NODES[hop] if hop >= 0 else None) == expected


def test_of_two_ways_to_a_gateway_the_shorter_the_present_and_the_smaller_parent_wins():
    """In this order. Two ways never have the same parent: a neighbor proposes once."""
    for hops, known_hops in product(range(3), repeat=2):
        for parent, known, present in product(range(4), repeat=3):
            if parent != known:
                expected = (hops, parent != present, parent) < (known_hops, known != present, known)
                assert is_shorter(hops, parent, known_hops, known, present) == expected


def test_the_scratch_of_a_selection_has_room_for_as_many_candidates_as_there_can_be():
    """The table of the node, the teller and its table, the samples of both, and all links: none is there twice."""
    size, samples, linked = 6, 5, 20
    groups = iter(np.arange(1, 60, dtype=np.uint32))
    take = lambda count: np.array([next(groups) for _ in range(count)], np.uint32)  # noqa: E731
    held, teller, told, peers_of_links = take(size), int(take(1)[0]), take(size), take(linked)
    instance = make_instance({f"n{number:02}": ("t",) for number in range(60)})
    tables = make_tables(60, Rule(size, 3, True, 60), stream(1, "x"))
    views = make_views(np.full((60, 1), -1, np.int32), samples)
    for node in (0, teller):
        views.entries[node * (samples + 1) :][:samples] = take(samples)
        views.count[node] = samples
    offsets = np.zeros(61, np.int64)
    offsets[1:] = linked
    links, mark = Links(offsets, peers_of_links), np.zeros(60, np.int32)
    tables.beats[:], tables.turns[:] = 0, 1
    peers = np.empty(200, np.uint32)
    peers[:size] = held
    mark[[0, *held]] = 7
    count = gather(
        views.entries, views.count, views.size, links.offsets, links.peers, tables.beats, tables.turns, 0, teller,
        told, size, peers, mark, 7, size,
    )  # fmt: skip
    assert count == len(set(peers[:count].tolist())) == 2 * size + 1 + 2 * samples + linked
    scratch = make_candidates(tables, instance.wants, views, links, np.zeros(60, np.int32))
    for room in (scratch.peers, scratch.utility, scratch.away, scratch.free):
        assert len(room) >= count


def test_a_node_with_the_most_topics_has_room_for_all_of_its_proposals():
    """Node a has most topics. The scratch of an election is made for it, so its proposals are all renewed."""
    instance = make_instance({"a": tuple(f"t{number}" for number in range(40)), "b": ("t7",), "c": ()})
    proposals, wants = make_proposals(instance.wants), instance.wants
    proposals.gateway[:40] = 1
    offsets, peers = np.zeros(4, np.int64), np.empty(0, np.uint32)
    elect_cycle(
        proposals, wants, Links(offsets, peers), np.ones(3, np.bool_), np.arange(3, dtype=np.int32), stream(1, "x"),
        np.zeros(3, np.int32), 5, False,
    )  # fmt: skip
    assert proposals.gateway.tolist() == [0] * 40 + [1]


@settings(max_examples=30)
@given(few_places, seeds)
def test_an_election_of_all_nodes_is_one_of_each_after_the_other(places, seed):
    """Scratch of one node's election must not reach the next one's."""
    random = Random(seed)
    instance, _ = instance_at(places, seed)
    wants, alive = instance.wants, np.ones(len(NODES), np.bool_)
    rows = [sorted(random.sample(range(len(NODES)), random.randint(0, 6))) for _ in NODES]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    links = Links(offsets, np.array([peer for row in rows for peer in row], np.uint32))
    together, apart = make_proposals(wants), make_proposals(wants)
    mark, chance, order = np.zeros(len(NODES), np.int32), stream(seed, "x"), np.arange(len(NODES), dtype=np.int32)
    for _ in range(3):
        elect_cycle(together, wants, links, alive, order, chance, mark, 3, False)
        for node in order.tolist():  # It was shuffled in place.
            elect_cycle(apart, wants, links, alive, np.array([node], np.int32), stream(1, "y"), mark, 3, False)
        for one, other in zip(together, apart, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_gateways_equally_near_the_topic_the_one_with_the_smaller_place_wins(order):
    ring._identifiers.update({"v00": SCALE << 40, "v01": 900 * SCALE, "v02": 1_100 * SCALE, "t0": 1_000 * SCALE})
    wants = make_instance({"v00": ("t0",), "v01": ("t0",), "v02": ("t0",)}).wants
    proposals, mark = make_proposals(wants), np.zeros(3, np.int32)
    links = Links(np.array([0, 2, 2, 2], np.int64), np.array(order, np.uint32))
    elect_cycle(
        proposals, wants, links, np.ones(3, np.bool_), np.zeros(1, np.int32), stream(1, "x"), mark, 5, False
    )  # fmt: skip
    assert proposals.gateway[0] == proposals.parent[0] == 1
