"""What holds for every workload, whatever its parameters and seed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import interests as drawn_interests
from strategies import seeds
from trellis.workloads import kernels
from trellis.workloads.configs import (
    Correlated,
    Exponential,
    Hierarchical,
    Multimodal,
    Spatial,
    Uniform,
    Zipf,
)
from trellis.workloads.generate import generate, generate_range, numbered
from trellis.workloads.popularity import even_bounds
from trellis.workloads.rates import rates
from trellis.workloads.sizes import Sizes
from trellis.workloads.spatial import near_pairs, points


@st.composite
def sizes_up_to(draw, topics):
    low, high = sorted((draw(st.integers(1, topics)), draw(st.integers(1, topics))))
    return Sizes(low, high, draw(st.sampled_from(["uniform", "powerlaw"])), draw(st.floats(0, 50)))


@st.composite
def range_configs(draw):
    """Generators whose nodes are independent of each other."""
    nodes, topics = draw(st.integers(1, 30)), draw(st.integers(1, 40))
    kind = draw(st.sampled_from([Uniform, Zipf, Exponential, Correlated, Multimodal]))
    if kind is Correlated:
        level = draw(st.sampled_from(["random", "low", "high"]))
        if level == "random":
            return Correlated(nodes, topics, draw(st.integers(1, topics)), level=level)
        buckets_chosen, each = {"low": 5, "high": 2}[level], draw(st.integers(1, 4))
        buckets = draw(st.integers(buckets_chosen, 9))
        topics = buckets * each + draw(st.integers(0, 30))
        return Correlated(nodes, topics, buckets_chosen * each, buckets, level)
    if kind is Multimodal:
        b_n = draw(st.integers(1, min(6, topics)))
        b_p = draw(st.integers(1, b_n))
        subs = draw(sizes_up_to(b_p * (topics // b_n)))
        return Multimodal(nodes, topics, subs, b_p, b_n, draw(st.floats(0, 400)))
    subs = draw(sizes_up_to(topics))
    if kind is Zipf:
        return Zipf(nodes, topics, subs, draw(st.floats(0, 400)))
    return kind(nodes, topics, subs)


def same(a, b) -> bool:
    return np.array_equal(a.node_offsets, b.node_offsets) and np.array_equal(a.node_topics, b.node_topics)


@given(range_configs(), seeds)
def test_topics_of_a_node_are_different_ascending_and_as_many_as_asked_for(config, seed):
    interests = generate(config, seed)
    assert len(interests.nodes) == config.nodes
    assert len(interests.topics) == config.topics
    subs = Sizes(config.subs, config.subs) if isinstance(config, Correlated) else config.subs
    assert subs.low <= interests.sizes.min()
    assert interests.sizes.max() <= subs.high
    for node in range(config.nodes):
        topics = interests.topics_of(node)
        assert np.all(np.diff(topics) > 0)
        assert topics[0] >= 0
        assert topics[-1] < config.topics


@given(range_configs(), seeds, st.lists(st.integers(0, 40), max_size=4))
def test_ranges_put_together_are_the_whole(config, seed, cuts):
    cuts = sorted({0, config.nodes, *(cut for cut in cuts if cut < config.nodes)})
    parts = [generate_range(config, seed, first, last) for first, last in pairwise(cuts)]
    whole = generate(config, seed)
    assert np.array_equal(np.concatenate([part.topics for part in parts]), whole.node_topics)
    assert np.array_equal(np.concatenate([np.diff(part.offsets) for part in parts]), whole.sizes)


@given(range_configs(), seeds, st.integers(1, 20))
def test_a_node_does_not_depend_on_how_many_others_there_are(config, seed, more):
    few, many = generate(config, seed), generate_range(config, seed, 0, config.nodes + more)
    assert np.array_equal(few.node_topics, many.topics[: few.subscriptions])
    assert np.array_equal(few.node_offsets, many.offsets[: config.nodes + 1])


@pytest.mark.parametrize(
    "config",
    [
        Uniform(50, 40, Sizes(5, 20)),
        Zipf(50, 40, Sizes(5, 20)),
        Exponential(50, 40, Sizes(5, 20)),
        Correlated(50, level="random"),
        Correlated(50, level="low"),
        Correlated(50, level="high"),
        Multimodal(50, 100, Sizes(10, 10)),
        Spatial(100, mean=5.0),
        Hierarchical(100, 128, 4.0),
    ],
    ids=lambda config: type(config).__name__ + getattr(config, "level", ""),
)
def test_the_same_seed_gives_the_same_interests_and_another_seed_does_not(config):
    assert same(generate(config, 7), generate(config, 7))
    assert same(generate(config, 7), generate(config, "7"))  # a seed counts as text
    assert not same(generate(config, 7), generate(config, 8))


@given(st.integers(1, 40), seeds, st.floats(0, 1.5))
def test_spatial_subscribes_exactly_to_users_within_the_radius(nodes, seed, radius):
    config = Spatial(nodes, radius=radius)
    at = points(config, seed)
    interests = generate(config, seed)
    for node in range(nodes):
        near = [other for other in range(nodes) if ((at[node] - at[other]) ** 2).sum() <= radius * radius]
        assert interests.topics_of(node).tolist() == near


@given(st.integers(1, 60), seeds, st.data())
def test_spatial_takes_just_the_nearest_pairs_for_its_mean(nodes, seed, data):
    config = Spatial(nodes, mean=data.draw(st.floats(1, nodes)))
    at = points(config, seed)
    pairs = near_pairs(config, at)
    assert abs(2 * len(pairs) + nodes - nodes * config.target_mean) <= 1.0001
    distance = sorted(((at[u] - at[v]) ** 2).sum() for u in range(nodes) for v in range(u))
    taken = sorted(((at[pairs[:, 0]] - at[pairs[:, 1]]) ** 2).sum(axis=1))
    assert taken == distance[: len(pairs)]


@given(st.integers(1, 40), st.integers(1, 5), st.floats(0, 0.5), st.floats(2, 9), st.floats(0, 2), seeds, st.data())
def test_hierarchical_has_no_idle_node_no_empty_topic_and_at_least_its_mean(
    nodes, height, init_frac, alpha0, lambda_, seed, data
):
    topics = 2**height
    least = max(1.0, topics / nodes)
    if least > topics / 2:
        return
    z = data.draw(st.floats(least, max(least, topics / 2)))
    interests = generate(Hierarchical(nodes, topics, z, init_frac, alpha0, lambda_), seed)
    assert interests.sizes.min() >= 1
    assert interests.popularity.min() >= 1
    assert interests.subscriptions >= round(z * nodes)
    assert interests.subscriptions <= max(round(z * nodes), topics) + nodes


@given(st.integers(1, 200), st.integers(1, 200))
def test_categories_cover_all_topics_and_differ_in_size_by_one_at_most(topics, parts):
    bounds = even_bounds(topics, parts)
    assert (bounds[0], bounds[-1]) == (0, topics)
    assert np.ptp(np.diff(bounds)) <= 1


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50).filter(lambda weights: sum(weights) > 1e-3))
def test_an_alias_table_gives_every_slot_its_weight(weights):
    weights = np.array(weights)
    keep, other = np.empty(len(weights)), np.empty(len(weights), np.int64)
    kernels.alias_table(weights, keep, other)
    got = keep + np.bincount(other, 1 - keep, minlength=len(weights))
    assert np.allclose(got / len(weights), weights / weights.sum(), atol=1e-12)
    assert np.all(got[weights == 0] == 0)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=40), st.data())
def test_the_kth_smallest_is_the_one_that_sorting_finds(values, data):
    k = data.draw(st.integers(0, len(values) - 1))
    assert kernels.kth_smallest(np.array(values), k) == sorted(values)[k]


@given(st.integers(0, 2000))
def test_numbered_names_count_from_one_in_shortlex_order(count):
    names = list(numbered("n", count))
    assert names == [f"n{number}" for number in range(1, count + 1)]
    assert names == sorted(names, key=lambda name: (len(name), name))


@given(drawn_interests(), st.sampled_from(["popularity", "random"]), st.floats(0, 4), seeds)
def test_rates_have_mean_one_and_fall_as_a_power_law(interests, order, alpha, seed):
    rate = rates(interests, "powerlaw", alpha=alpha, order=order, seed=seed)
    assert rate.mean() == pytest.approx(1)
    falling = np.sort(rate)[::-1]
    assert np.allclose(falling / falling[0], np.arange(1, len(rate) + 1) ** -alpha)
    if order == "popularity" and alpha > 0.1:
        assert np.all(np.diff(interests.popularity[np.argsort(-rate, kind="stable")]) <= 0)


@settings(max_examples=20)
@given(st.integers(2, 300), seeds)
def test_randomly_ordered_rates_are_a_permutation_that_the_seed_decides(topics, seed):
    rate = rates(topics, alpha=1.0, order="random", seed=seed)
    assert np.array_equal(np.sort(rate), np.sort(rates(topics, alpha=1.0)))
    assert np.array_equal(rate, rates(topics, alpha=1.0, order="random", seed=seed))
