"""Overlays built from small interests whose answer can be told by hand."""

from __future__ import annotations

import tracemalloc
from math import inf, nan

import numpy as np
import pytest

from trellis import ids, plan
from trellis.errors import InputError
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay
from trellis.plan import ties
from trellis.plan.candidates import Sampling
from trellis.plan.edges import low_edges
from trellis.plan.state import BITS, LISTS, TRIANGLE
from trellis.plan.tables import Shape
from trellis.workloads.generate import generate
from trellis.workloads.presets import PRESETS

FIVE = Interests.from_pairs({"a": "xyz", "b": "xy", "c": "yz", "d": "xz", "e": "x"})


def links(overlay: Overlay) -> set[frozenset[str]]:
    return {frozenset((overlay.nodes[u], overlay.nodes[v])) for u, v in zip(overlay.u, overlay.v, strict=True)}


def in_order(built: plan.Construction) -> list[set[str]]:
    """The new links as they were chosen."""
    nodes = built.overlay.nodes
    return [{nodes[u], nodes[v]} for u, v in zip(built.new_u, built.new_v, strict=True)]


def skewed(nodes: int, topics: int, seed: int) -> Interests:
    """Popularity of the i-th topic ~ 1/i, 2 to 12 topics a node."""
    chance = np.random.default_rng(seed)
    weights = 1 / np.arange(1, topics + 1)
    return Interests.from_pairs(
        {
            node: chance.choice(topics, chance.integers(2, 13), replace=False, p=weights / weights.sum()).tolist()
            for node in range(nodes)
        }
    )


def test_gm_takes_the_largest_contributions_first():
    # a shares two topics with each of b, c and d; e wants x alone, and any of its three edges brings 1.
    built = plan.construct(FIVE, "gm")
    assert built.contributions.tolist() == [2, 2, 2, 1]
    assert links(built.overlay) > {frozenset("ab"), frozenset("ac"), frozenset("ad")}


def test_minmax_spends_a_poorer_edge_to_spare_the_degree():
    # After one edge of a, D is 1: MinMax links two nodes that have no link yet before a gets its second.
    built = plan.construct(FIVE, "minmax")
    assert built.contributions.tolist()[:2] == [2, 1]
    first, second = ({built.new_u[edge], built.new_v[edge]} for edge in (0, 1))
    assert not first & second


def test_lowoda_takes_e1_only_when_it_brings_strictly_more_than_rho_times_e2():
    # hub has the maximum degree. hub - two brings 4, but raises it; u - v brings 1 and does not.
    over = Interests.from_pairs({"hub": "pqrsx", "one": "pqrx", "two": "pqrs", "u": "k", "v": "k"})
    start = Overlay.from_pairs(over.nodes, [("hub", "one")])
    for rho, first in [(1, 4), (2, 4), (3.9, 4), (4, 1), (inf, 1)]:
        built = plan.construct(over, "lowoda", rho=rho, existing=start)
        assert built.contributions[0] == first, rho


def test_a_tie_goes_to_the_pair_with_the_smallest_key_then_to_the_smallest_other_key():
    over = Interests.from_pairs({name: ["t"] for name in "pqrst"})
    for seed in range(20):
        by_key = sorted("pqrst", key=lambda name: ids.key(seed, name))
        a, b, c, d, e = by_key
        # All edges bring 1: two pairs without a link are linked first, then whatever raises the degree to 2 only.
        for algorithm in ("gm", "minmax", "lowoda"):
            built = plan.construct(over, algorithm, seed=seed)
            found = [(over.nodes[u], over.nodes[v]) for u, v in zip(built.new_u, built.new_v, strict=True)]
            assert found == [(a, b), (c, d), (a, c), (b, e)]


def test_a_tie_in_minmax_goes_to_the_edge_with_the_end_that_has_the_fewest_uncovered_topics():
    # Both edges bring t. "done" needs nothing else; a and b each have another topic to find.
    over = Interests.from_pairs({"a": "tu", "b": "tv", "done": "t"})
    both = Overlay.from_pairs(over.nodes, [("a", "b"), ("a", "done")])
    for seed in range(20):
        built = plan.construct(over, "minmax", candidates=both, seed=seed)
        assert in_order(built) == [{"a", "done"}, {"a", "b"}]


def test_then_to_the_one_whose_other_end_has_the_fewest_if_it_brings_a_single_topic():
    # l is the light end of both edges. m has fewer uncovered topics than n.
    over = Interests.from_pairs({"l": "t", "m": "tu", "n": "tvw"})
    both = Overlay.from_pairs(over.nodes, [("l", "m"), ("l", "n")])
    for seed in range(20):
        assert in_order(plan.construct(over, "minmax", candidates=both, seed=seed)) == [{"l", "m"}, {"l", "n"}]
    # Of edges that bring two topics, keys decide.
    over = Interests.from_pairs({"l": "st", "m": "stu", "n": "stvw"})
    both = Overlay.from_pairs(over.nodes, [("l", "m"), ("l", "n")])
    firsts = [in_order(plan.construct(over, "minmax", candidates=both, seed=seed))[0] for seed in range(20)]
    assert {"l", "m"} in firsts
    assert {"l", "n"} in firsts


def test_minmax_counts_uncovered_topics_only_when_the_maximum_degree_rises():
    # It is 2 from the start and stays. x - p covers two of the three topics of x, and leaves x with fewer than y.
    # But it is their first number that counts: 3 for x and m, 2 for y.
    over = Interests.from_pairs({"x": "abt", "p": "ab", "m": "t12", "y": "s3", "n": "s45", **dict.fromkeys("qrw", "z")})
    start = Overlay.from_pairs(over.nodes, [("q", "r"), ("r", "w")])
    for seed in range(20):
        built = plan.construct(over, "minmax", existing=start, seed=seed)
        assert in_order(built) == [{"x", "p"}, {"y", "n"}, {"x", "m"}]


def test_nodes_with_equal_keys_are_ranked_by_name(monkeypatch):
    names = Names(["b", "c", "aa", "d"])
    monkeypatch.setattr(Names, "keys", lambda self, seed: np.array([7, 3, 7, 9], np.uint64))
    assert [names[place] for place in ties.in_rank_order(names, 0)] == ["c", "aa", "b", "d"]


def test_another_seed_breaks_ties_otherwise():
    over = skewed(40, 15, seed=1)
    assert links(plan.construct(over, seed=1).overlay) == links(plan.construct(over, seed=1).overlay)
    assert links(plan.construct(over, seed=1).overlay) != links(plan.construct(over, seed=2).overlay)


def test_a_ring_visits_its_nodes_in_the_order_of_keys_and_two_nodes_have_one_link():
    over = Interests.from_pairs({"a": ["big", "two"], "b": ["big", "two"], "c": ["big"], "d": ["big"], "e": ["one"]})
    order = sorted("abcd", key=lambda name: ids.key(5, name))
    ring = {frozenset(pair) for pair in zip(order, order[1:] + order[:1], strict=True)}
    assert links(plan.construct(over, "ring", seed=5).overlay) == ring | {frozenset("ab")}


def test_a_star_has_the_smallest_key_of_each_topic_in_its_middle():
    built = plan.construct(FIVE, "star", seed=3)
    expected = set()
    for wanted in (set("abde"), set("abc"), set("acd")):
        middle = min(wanted, key=lambda name: ids.key(3, name))
        expected |= {frozenset((middle, other)) for other in wanted - {middle}}
    assert links(built.overlay) == expected


def test_ring_and_star_add_only_links_that_are_not_there():
    start = Overlay.from_pairs(FIVE.nodes, [("a", "b"), ("d", "e")])
    for algorithm in ("ring", "star"):
        alone = links(plan.construct(FIVE, algorithm).overlay)
        built = plan.construct(FIVE, algorithm, existing=start)
        assert links(built.overlay) == alone | links(start)
        assert len(built.new_u) == len(alone - links(start))


def test_every_random_link_contributes_and_other_seeds_draw_other_links():
    over = skewed(200, 30, seed=2)
    drawn = [plan.construct(over, "random", seed=seed) for seed in (1, 1, 2)]
    assert all(np.all(built.contributions > 0) for built in drawn)
    assert links(drawn[0].overlay) == links(drawn[1].overlay) != links(drawn[2].overlay)


def test_random_links_go_to_all_earlier_nodes_alike():
    # One topic: node k is linked to one of the k before it. The mean place of that one is in the middle.
    over = Interests.from_pairs({node: ["t"] for node in range(3000)})
    degrees = plan.construct(over, "random").overlay.degrees
    assert degrees.max() < 40  # random recursive trees: about log2(n) = 11.6; a star or a chain would show
    assert np.sum(degrees == 1) == pytest.approx(1500, abs=100)  # half of them are leaves


def test_gm_has_the_fewest_links_and_minmax_the_lowest_maximum_degree():
    for seed in range(3):
        over = skewed(400, 60, seed)
        gm, minmax, low = (plan.construct(over, name).overlay for name in ("gm", "minmax", "lowoda"))
        assert len(gm) < len(low) <= len(minmax)
        assert minmax.degrees.max() <= low.degrees.max() < gm.degrees.max()


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_on_the_papers_workloads_gm_has_the_fewest_links_and_minmax_the_lowest_maximum_degree(preset):
    over = generate(PRESETS[preset].config, seed=0)
    gm, minmax, low = (plan.construct(over, name).overlay for name in ("gm", "minmax", "lowoda"))
    assert len(gm) <= min(len(low), len(minmax))
    assert minmax.degrees.max() <= low.degrees.max() <= gm.degrees.max()


def test_one_node_or_none_needs_no_links():
    for over in (
        Interests.from_pairs({"a": "xy"}),
        Interests.from_pairs({"a": "x", "b": "y"}),
        Interests.from_pairs([]),
    ):
        for algorithm in plan.ALGORITHMS:
            assert len(plan.construct(over, algorithm).overlay) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rho": 0.9}, "rho is 0.9; give a number of at least 1, or inf"),
        ({"rho": nan}, "rho is nan; give a number of at least 1, or inf"),
        (
            {"algorithm": "magic"},
            'unknown algorithm "magic"; choose one of gm, minmax, lowoda, ring, random, star, ringpt',
        ),
        (
            {"existing": Overlay.from_pairs(Names(["a", "f"]), [("a", "f")])},
            "the existing overlay is over other nodes; give one over the nodes of the interests",
        ),
        (
            {"algorithm": "ring", "candidates": Overlay.from_ids(FIVE.nodes, [0], [1])},
            "ring takes no candidates; choose one of gm, minmax, lowoda",
        ),
        (
            {"sampling": Sampling(), "candidates": Overlay.from_ids(FIVE.nodes, [0], [1])},
            "candidates are given and to be drawn; leave one of them out",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused_in_one_line(arguments, message):
    with pytest.raises(InputError) as refused:
        plan.construct(FIVE, **arguments)
    assert str(refused.value) == message


@pytest.mark.parametrize("algorithm", ["lowoda", "minmax"])
@pytest.mark.parametrize("form", [BITS, TRIANGLE, LISTS])
def test_the_memory_that_is_told_suffices(form, algorithm, monkeypatch):
    monkeypatch.setattr(Shape, "best_form", lambda self: form)
    over = skewed(1500, 300, seed=4)
    plan.construct(FIVE, algorithm)
    offsets, topics = over.node_offsets, over.node_topics
    alone, degrees, light = np.arange(len(topics), dtype=np.int32), np.zeros(1500, np.int64), algorithm == "minmax"
    tracemalloc.start()
    low_edges(offsets, topics, 300, alone, degrees, 0, light=light, form=form)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= plan.memory_needed(over) < 3 * peak


def test_the_memory_that_is_told_suffices_for_sampled_candidates():
    over, sampling = skewed(1500, 300, seed=4), Sampling(16, 16)
    plan.construct(FIVE, sampling=sampling)
    tracemalloc.start()
    plan.construct(over, sampling=sampling)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= plan.memory_needed(over, sampling) < 3 * peak


@pytest.mark.slow  # compiles the kernels for wide contributions
@pytest.mark.parametrize("form", [BITS, TRIANGLE, LISTS])
def test_contributions_may_exceed_what_16_bits_hold(form, monkeypatch):
    monkeypatch.setattr(Shape, "best_form", lambda self: form)
    over = Interests.from_pairs({"a": range(70_000), "b": range(69_000), "c": range(5)})
    for algorithm in ("gm", "minmax"):
        assert plan.construct(over, algorithm).contributions.tolist() == [69_000, 5]
