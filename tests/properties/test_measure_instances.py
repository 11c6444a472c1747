"""Similarity, fairness, distributions and bounds agree with their definitions on drawn instances."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import measures as reference
from strategies import interests
from trellis.measure.bounds import links_lower_bound, most_shared
from trellis.measure.distributions import Distribution, popularity, subscription_sizes
from trellis.measure.fairness import gini
from trellis.measure.similarity import BINS, similarity

numbers = st.lists(st.integers(0, 60), min_size=1, max_size=60)


@settings(max_examples=200, deadline=None)
@given(interests(), st.integers(1, 15))
def test_tdi_is_the_mean_over_nodes_of_the_mean_over_the_d_best(over, d_max):
    found, interest = similarity(over, d_max=d_max), reference.wanted(over)
    assert len(found.top_intersection) == d_max
    for d in range(1, d_max + 1):
        assert found.tdi(d) == pytest.approx(reference.tdi(interest, d))


@settings(max_examples=200, deadline=None)
@given(interests())
def test_the_intersections_of_all_pairs_are_counted_and_averaged(over):
    found, interest = similarity(over), reference.wanted(over)
    pairs = [(n, m) for n, m in permutations(interest, 2)]
    values = [reference.intersection(interest, n, m) for n, m in pairs]
    assert found.mean == pytest.approx(np.mean(values) if values else 0)
    expected = np.bincount([int(np.ceil(round(value / 10, 9))) for value in values], minlength=BINS)
    assert found.histogram.tolist() == expected.tolist()


@settings(max_examples=100, deadline=None)
@given(interests(nodes_max=12), st.integers(1, 11), st.integers(0, 5))
def test_a_sample_measures_drawn_nodes_against_all_others(over, sample, seed):
    found, interest = similarity(over, d_max=3, sample=sample, seed=seed), reference.wanted(over)
    assert found.measured == min(sample, len(interest))
    assert (found.seed is None) == (sample >= len(interest))
    assert found.histogram.sum() == found.measured * (len(interest) - 1)
    again = similarity(over, d_max=3, sample=sample, seed=seed)
    assert found.top_intersection.tolist() == again.top_intersection.tolist()


@settings(max_examples=200, deadline=None)
@given(numbers)
def test_gini_is_half_the_relative_mean_difference(loads):
    assert gini(loads) == pytest.approx(reference.gini(loads), abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(numbers, st.floats(0, 100))
def test_a_distribution_has_the_moments_and_percentiles_of_its_numbers(drawn, percent):
    found = Distribution.of(drawn)
    assert np.repeat(found.values, found.counts).tolist() == sorted(drawn)
    assert (found.minimum, found.maximum, found.total, found.sum) == (min(drawn), max(drawn), len(drawn), sum(drawn))
    assert found.mean == pytest.approx(np.mean(drawn))
    assert found.variance == pytest.approx(np.var(drawn), abs=1e-9)
    assert found.percentile(percent) == np.percentile(drawn, percent, method="inverted_cdf")
    assert found.ccdf.tolist() == pytest.approx([np.mean(np.array(drawn) >= value) for value in found.values])


@settings(max_examples=100, deadline=None)
@given(interests())
def test_popularity_and_sizes_count_the_same_subscriptions(over):
    interest = reference.wanted(over)
    assert subscription_sizes(over).sum == popularity(over).sum == sum(map(len, interest.values()))
    wanted_by = [sum(topic in topics for topics in interest.values()) for topic in over.topics]
    assert popularity(over).counts.tolist() == np.unique(wanted_by, return_counts=True)[1].tolist()


@settings(max_examples=150, deadline=None)
@given(interests(nodes_max=5, topics_max=5))
def test_no_tco_has_fewer_links_than_the_lower_bound(over):
    fewest = reference.fewest_links(reference.wanted(over))
    assert links_lower_bound(over) <= fewest
    assert links_lower_bound(over, steps_max=0) <= links_lower_bound(over)


@settings(max_examples=100, deadline=None)
@given(interests())
def test_most_shared_is_the_largest_overlap_with_another_node(over):
    interest = reference.wanted(over)
    expected = [max((len(interest[n] & interest[m]) for m in interest if m != n), default=0) for n in over.nodes]
    assert most_shared(over).tolist() == expected
