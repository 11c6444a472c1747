"""Every generator draws from the distribution that its definition names.

Each check is a chi-square or Kolmogorov-Smirnov test at level LEVEL: a correct generator passes all but one seed in
ten thousand. Seeds are fixed, so a test that passes always passes. Where topics are drawn without repeats the
popularity of a topic is no longer p_i, so p_i is tested on subscriptions of one topic: the first draw.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest

from lazy import stats
from trellis.workloads.configs import Correlated, Exponential, Multimodal, Spatial, Uniform, Zipf
from trellis.workloads.generate import generate, node_sizes
from trellis.workloads.popularity import even_bounds, exponential_rate
from trellis.workloads.sizes import Sizes
from trellis.workloads.spatial import points

LEVEL = 1e-4
ONE = Sizes(1, 1)


def chi_square(observed, probabilities) -> float:
    """The p-value of counts under probabilities; rare cells are put together until 10 are expected."""
    order = np.argsort(probabilities)
    expected = np.asarray(probabilities, float)[order] / np.sum(probabilities) * np.sum(observed)
    group = np.minimum(np.floor(np.cumsum(expected) / 10), np.floor(np.sum(expected) / 10) - 1).astype(int)
    group = np.unique(group, return_inverse=True)[1]
    return stats.chisquare(np.bincount(group, np.asarray(observed)[order]), np.bincount(group, expected)).pvalue


def draw_probability(wanted: set[int], p) -> float:
    """Chance that drawing by p, repeats discarded, gives this set: by definition, over all orders of coming."""
    total = 0.0
    for order in permutations(wanted):
        chance, left = 1.0, 1.0
        for topic in order:
            chance *= p[topic] / left
            left -= p[topic]
        total += chance
    return total


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        (Uniform(50_000, 150, ONE), np.ones(150)),
        (Zipf(50_000, 150, ONE, alpha=0.5), np.arange(1, 151) ** -0.5),
        (Zipf(50_000, 150, ONE, alpha=2.0), np.arange(1, 151) ** -2.0),
        (Exponential(50_000, 100, ONE), np.exp(-0.0798 * np.arange(1, 101))),
        (Exponential(50_000, 200, ONE), np.exp(-0.0399 * np.arange(1, 201))),
    ],
    ids=["uniform", "zipf-0.5", "zipf-2", "exponential-100", "exponential-200"],
)
def test_the_first_draw_follows_the_popularity(config, weights):
    assert chi_square(generate(config, seed=3).popularity, weights) > LEVEL


@pytest.mark.parametrize(("topics", "top"), [(100, 10), (200, 20), (37, 4), (1000, 100)])
def test_the_top_tenth_of_exponential_takes_55_percent_of_the_draws(topics, top):
    popularity = generate(Exponential(100_000, topics, ONE), seed=1).popularity
    assert popularity[:top].sum() / popularity.sum() == pytest.approx(0.55, abs=0.01)


@pytest.mark.parametrize(("topics", "rate"), [(100, 0.0798), (200, 0.0399)])
def test_the_exponential_rate_is_the_one_that_was_worked_out_by_hand(topics, rate):
    assert exponential_rate(Exponential(topics=topics)) == pytest.approx(rate, abs=5e-5)


@pytest.mark.parametrize(
    ("alpha", "subs"),
    [
        pytest.param(0.5, 3, id="repeats are rare: drawn one by one"),
        pytest.param(2.0, 4, id="repeats are common: some nodes draw the rest in the other form"),
        # The first topic has p = 0.98: seven repeats before a second topic, 9 times in 10.
        pytest.param(6.0, 3, id="nearly all are repeats: nearly all nodes draw the rest in the other form"),
    ],
)
def test_both_forms_of_the_weighted_draw_give_each_set_its_chance(alpha, subs):
    interests = generate(Zipf(40_000, 6, Sizes(subs, subs), alpha), seed=5)
    p = np.arange(1, 7) ** -alpha
    p /= p.sum()
    seen = Counter(tuple(row) for row in interests.node_topics.reshape(-1, subs).tolist())
    sets = list(combinations(range(6), subs))
    chances = [draw_probability(set(wanted), p) for wanted in sets]
    assert sum(chances) == pytest.approx(1)
    assert chi_square([seen[wanted] for wanted in sets], chances) > LEVEL


def test_a_uniform_draw_gives_each_set_the_same_chance():
    interests = generate(Uniform(30_000, 6, Sizes(3, 3)), seed=5)
    seen = Counter(tuple(row) for row in interests.node_topics.reshape(-1, 3).tolist())
    assert chi_square(list(seen.values()), np.ones(len(seen))) > LEVEL
    assert len(seen) == 20


@pytest.mark.parametrize("exponent", [2.0, 3.0])
def test_power_law_sizes_fall_with_their_exponent(exponent):
    sizes = node_sizes(Sizes(10, 90, "powerlaw", exponent), 11, 0, 50_000)
    chances = np.arange(10, 91) ** -exponent
    assert chi_square(np.bincount(sizes, minlength=91)[10:], chances) > LEVEL


def test_power_law_sizes_have_the_mean_that_was_worked_out_for_both_readings():
    """E-1, CHECKED: mean size 17 (g = 3) or 24 (g = 2)."""
    assert round(node_sizes(Sizes(10, 90, "powerlaw", 3.0), 1, 0, 50_000).mean()) == 17
    assert round(node_sizes(Sizes(10, 90, "powerlaw", 2.0), 1, 0, 50_000).mean()) == 24


def test_interval_sizes_are_uniform_with_both_ends():
    sizes = node_sizes(Sizes(10, 30), 2, 0, 50_000)
    assert (sizes.min(), sizes.max()) == (10, 30)
    assert chi_square(np.bincount(sizes)[10:], np.ones(21)) > LEVEL


@pytest.mark.parametrize(("level", "buckets", "each"), [("low", 5, 10), ("high", 2, 25)])
def test_a_correlated_node_takes_equally_many_topics_from_its_buckets(level, buckets, each):
    interests = generate(Correlated(nodes=500, level=level), seed=4)
    for row in (interests.node_topics // 50).reshape(500, 50):
        assert sorted(Counter(row.tolist()).values()) == [each] * buckets


def test_correlated_nodes_choose_any_two_buckets_and_any_topics_in_them_alike():
    interests = generate(Correlated(20_000, topics=60, subs=4, buckets=10, level="high"), seed=9)
    rows = interests.node_topics.reshape(-1, 4)
    pairs = Counter(tuple(sorted(set(row))) for row in (rows // 6).tolist())
    assert len(pairs) == 45
    assert chi_square(list(pairs.values()), np.ones(45)) > LEVEL
    in_bucket = Counter(tuple(row) for row in (rows % 6)[:, :2].tolist())  # ascending: the first bucket's two
    assert len(in_bucket) == 15
    assert chi_square(list(in_bucket.values()), np.ones(15)) > LEVEL


def test_random_interests_of_vitis_are_uniform_over_all_topics():
    popularity = generate(Correlated(4000, level="random"), seed=2).popularity
    # 50 different topics a node: counts spread a little less than independent draws would, so the test is safe.
    assert chi_square(popularity, np.ones(5000)) > LEVEL


def test_multimodal_nodes_stay_in_their_categories():
    interests = generate(Multimodal(400, 1000, Sizes(50, 50), b_p=3, b_n=30), seed=6)
    for row in (np.searchsorted(even_bounds(1000, 30), interests.node_topics, side="right")).reshape(400, 50):
        assert len(set(row.tolist())) <= 3


def test_multimodal_topics_are_drawn_by_rank_within_categories_of_unequal_size():
    interests = generate(Multimodal(60_000, 23, ONE, b_p=2, b_n=5, alpha=1.0), seed=6)
    bounds = even_bounds(23, 5)
    assert sorted(np.diff(bounds).tolist()) == [4, 4, 5, 5, 5]
    weights = [
        1 / rank / sum(1 / r for r in range(1, size + 1)) for size in np.diff(bounds) for rank in range(1, size + 1)
    ]
    assert chi_square(interests.popularity, weights) > LEVEL


@pytest.mark.parametrize("categories", [[range(0, 2), range(2, 5)], [range(0, 2), range(2, 5), range(5, 8)]])
def test_multimodal_sets_have_the_chance_that_two_categories_and_a_weighted_draw_give(categories):
    """Categories of two and three topics: what is drawn in the other form must weigh both alike."""
    topics, b_n = categories[-1].stop, len(categories)
    interests = generate(Multimodal(200_000, topics, Sizes(4, 4), b_p=2, b_n=b_n, alpha=2.0), seed=8)
    p = {
        topic: (topic - category.start + 1) ** -2.0 / sum(rank**-2.0 for rank in range(1, len(category) + 1)) / 2
        for category in categories
        for topic in category
    }
    chances: Counter[tuple[int, ...]] = Counter()
    for pair in combinations(categories, 2):
        for wanted in combinations([topic for category in pair for topic in category], 4):
            chances[wanted] += draw_probability(set(wanted), p) / math.comb(b_n, 2)
    assert sum(chances.values()) == pytest.approx(1)
    seen = Counter(tuple(row) for row in interests.node_topics.reshape(-1, 4).tolist())
    assert seen.keys() <= chances.keys()
    assert chi_square([seen[wanted] for wanted in chances], list(chances.values())) > LEVEL


def test_users_are_uniform_on_the_square():
    at = points(Spatial(20_000), seed=3)
    assert stats.kstest(at[:, 0], "uniform").pvalue > LEVEL
    assert stats.kstest(at[:, 1], "uniform").pvalue > LEVEL
    cells = np.histogram2d(at[:, 0], at[:, 1], bins=10, range=[[0, 1], [0, 1]])[0].ravel()
    assert chi_square(cells, np.ones(100)) > LEVEL


@pytest.mark.parametrize("mean", [8.0, 16.0, 32.0])
def test_spatial_hits_its_target_mean(mean):
    """Pairs come two subscriptions at a time: the mean is off by one in all at most."""
    interests = generate(Spatial(nodes=3001, mean=mean), seed=12)
    assert abs(interests.subscriptions - 3001 * mean) <= 1
