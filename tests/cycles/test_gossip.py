"""Gossip in cycles: kernels against slow twins draw by draw, and against the protocol's own functions."""

from __future__ import annotations

from functools import partial
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import cycles_gossip as slow
from trellis.cycles.chance import below, draw, shuffle, stream, unit
from trellis.cycles.cyclon import cyclon_cycle, make_shuffled
from trellis.cycles.newscast import ages_of, make_views, merge, newscast_cycle, peers_of
from trellis.cycles.ring import make_rings, places_of, ring_cycle
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.newscast import Newscast, NewscastConfig
from trellis.protocols.ring import Ring, identifier

seeds = st.integers(0, 2**32)


def contacts_of(nodes: int, count: int, seed: int) -> np.ndarray:
    random = Random(seed)
    found = np.full((nodes, count), -1, np.int32)
    for node in range(nodes):
        others = [other for other in range(nodes) if other != node]
        known = random.sample(others, min(random.randint(0, count), len(others)))
        found[node, : len(known)] = known
    return found


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**31))
def test_a_stream_is_splitmix64(state, count):
    chance, twin = np.array([state], np.uint64), slow.Chance(state)
    assert [int(draw(chance)) for _ in range(3)] == [twin.draw() for _ in range(3)]
    assert below(chance, count) == twin.below(count)
    assert 0 <= unit(chance) < 1
    order, expected = np.arange(9, dtype=np.int32), list(range(9))
    twin.draw()
    shuffle(order, chance)
    twin.shuffle(expected)
    assert order.tolist() == expected


def test_streams_of_other_seeds_and_names_differ():
    drawn = {int(stream(seed, name)[0]) for seed in (1, 2) for name in ("newscast", "tables")}
    assert len(drawn) == 4
    assert stream(1, "newscast")[0] == stream(1, "newscast")[0]


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 3), st.integers(1, 6), st.integers(1, 8), seeds)
def test_newscast_is_its_twin_draw_by_draw(nodes, contacts, size, age_max, seed):
    known = contacts_of(nodes, contacts, seed)
    views, chance = make_views(known, size), stream(seed, "newscast")
    twin = slow.Newscast(known.tolist(), size, age_max, 2, slow.Chance(chance[0]))
    order, mark, expected = np.arange(nodes, dtype=np.int32), np.zeros(nodes, np.int32), list(range(nodes))
    for _ in range(6):
        assert newscast_cycle(views, np.ones(nodes, np.bool_), order, chance, mark, age_max, 2) == twin.cycle(expected)
        for node in range(nodes):
            found = dict(zip(peers_of(views, node).tolist(), ages_of(views, node).tolist(), strict=True))
            assert found == twin.views[node]
    assert int(chance[0]) == twin.chance.state


@settings(max_examples=40)
@given(
    st.dictionaries(st.integers(2, 19), st.integers(0, 9), max_size=8),
    st.dictionaries(st.integers(1, 19), st.integers(1, 9), max_size=8),
    seeds,
)
def test_newscast_keeps_what_the_protocol_keeps(own, told, seed):
    """The same ages, and the same nodes up to the draw among the oldest."""
    size = 8
    views = make_views(np.full((20, 1), -1, np.int32), size)
    for node, entries in ((0, own), (1, {peer: age - 1 for peer, age in told.items() if peer != 1})):
        ranked = sorted(entries.items(), key=lambda one: (one[1], one[0]))
        for place, (peer, age) in enumerate(ranked):
            views.entries[node * (size + 1) + place] = age * 2**26 + peer
        views.count[node] = len(ranked)
    kept = np.empty(3 * size + 3, np.uint32)
    oldest = np.uint32(9 * 2**26 + 2**26 - 1)
    count = merge(views, 0, 1, stream(seed, "x"), np.zeros(20, np.int32), 1, oldest, kept)
    found = {int(entry) % 2**26: int(entry) >> 26 for entry in kept[:count]}

    names = [f"n{node}" for node in range(20)]
    config = NewscastConfig(view_size=size, age_max=9)
    part = Newscast(partial(Descriptor, names[0]), [], Random(seed), config)
    part.table.merge([Descriptor(names[peer], age) for peer, age in own.items()])
    part.learn([Descriptor(names[1]), *(Descriptor(names[peer], age) for peer, age in told.items() if peer != 1)])
    expected = {names.index(node): part.table.age(node) for node in part.peers}
    assert sorted(found.values()) == sorted(expected.values())
    last = max(expected.values())
    assert {peer for peer in found if found[peer] < last} == {peer for peer in expected if expected[peer] < last}


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 12), seeds)
def test_cyclon_is_its_twin_draw_by_draw(nodes, contacts, size, shuffled, age_max, seed):
    known, shuffled = contacts_of(nodes, contacts, seed), min(size, shuffled)
    views, chance = make_shuffled(known, size), stream(seed, "cyclon")
    twin = slow.Cyclon(known.tolist(), size, shuffled, age_max, slow.Chance(chance[0]))
    order, expected = np.arange(nodes, dtype=np.int32), list(range(nodes))
    for _ in range(6):
        assert cyclon_cycle(views, order, chance, shuffled, age_max) == twin.cycle(expected)
        for node in range(nodes):
            count = views.count[node]
            found = [[int(p), int(a)] for p, a in zip(views.peers[node, :count], views.ages[node, :count], strict=True)]
            assert found == twin.views[node]


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 3), st.integers(1, 3), st.integers(2, 12), seeds)
def test_the_ring_is_its_twin_draw_by_draw(nodes, contacts, kept, age_max, seed):
    known, places = contacts_of(nodes, contacts, seed), places_of(f"n{node}" for node in range(nodes))
    views, chance, other = make_views(known, 4), stream(seed, "newscast"), stream(seed, "ring")
    newscast = slow.Newscast(known.tolist(), 4, age_max, 5, slow.Chance(chance[0]))
    rings, there = make_rings(nodes, kept), np.ones(nodes, np.bool_)
    twin = slow.Ring([int(place) for place in places], kept, age_max, newscast, slow.Chance(other[0]))
    order, mark, expected = np.arange(nodes, dtype=np.int32), np.zeros(nodes, np.int32), list(range(nodes))
    for _ in range(5):
        newscast_cycle(views, np.ones(nodes, np.bool_), order, chance, mark, age_max, 5)
        newscast.cycle(expected)
        assert ring_cycle(rings, places, views, there, ~there, order, other, mark, age_max) == twin.cycle(expected)
        for node in range(nodes):
            found = list(zip(rings.peers[node].tolist(), rings.ages[node].tolist(), strict=True))[: rings.count[node]]
            assert found == list(twin.rings[node].items())


def test_the_ring_closes_as_the_protocol_would_have_it():
    """After a few cycles every node has its true neighbors, those that `protocols.ring.Ring` selects."""
    nodes = 200
    names = [f"n{node}" for node in range(nodes)]
    places = places_of(names)
    contacts = np.array([[(node + away) % nodes for away in (1, 50, 120)] for node in range(nodes)])
    views, rings, there = make_views(contacts, 20), make_rings(nodes, 5), np.ones(nodes, np.bool_)
    order, mark = np.arange(nodes, dtype=np.int32), np.zeros(nodes, np.int32)
    chance, other = stream(1, "newscast"), stream(1, "ring")
    for _ in range(40):
        newscast_cycle(views, np.ones(nodes, np.bool_), order, chance, mark, 30, 5)
        ring_cycle(rings, places, views, there, ~there, order, other, mark, 30)
    for node in range(0, nodes, 20):
        part = Ring(partial(Descriptor, names[node]), list, Random(1), length=1, spare=4)
        chosen = part._nearest([Descriptor(name) for name in names if name != names[node]])
        assert [names[peer] for peer in rings.peers[node]] == chosen
    assert int(places[0]) == identifier("n0") >> 96
