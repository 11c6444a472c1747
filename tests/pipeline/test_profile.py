"""Profiles: the numbers against definitions and against scipy, the tables and the picture."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazy import stats
from trellis.errors import InputError
from trellis.pipeline import jobs, statistics
from trellis.pipeline.schemas import INTERESTS
from trellis.pipeline.stages import distributions

samples = st.lists(st.integers(0, 40), min_size=1, max_size=60)


def counted(sample):
    return np.unique(np.array(sample, np.int64), return_counts=True)


@given(samples, samples)
def test_the_distance_is_the_largest_gap_between_the_shares_up_to_a_value(one, other):
    expected = max(abs(np.mean(np.array(one) <= x) - np.mean(np.array(other) <= x)) for x in [*one, *other])
    assert statistics.ks_distance(*counted(one), *counted(other)) == pytest.approx(expected)


@given(samples)
def test_the_ccdf_is_the_share_with_at_least_a_value(sample):
    value, count = counted(sample)
    expected = [np.mean(np.array(sample) >= one) for one in value]
    assert statistics.ccdf(count) == pytest.approx(expected)


@given(samples)
def test_moments_are_those_of_the_population(sample):
    moments = statistics.moments(*counted(sample))
    assert moments["mean"] == pytest.approx(np.mean(sample))
    assert moments["variance"] == pytest.approx(np.var(sample))
    assert moments["maximum"] == max(sample)


@pytest.mark.parametrize("exponent", [1.65, 2.5])
def test_a_fit_finds_the_exponent_it_was_drawn_with(exponent):
    drawn = stats.zipf(exponent).rvs(20_000, random_state=1)
    fit = statistics.power_law(*counted(drawn))
    assert fit is not None
    assert fit.exponent == pytest.approx(exponent, abs=0.05)
    assert fit.distance < 0.02


def test_the_exponent_of_a_tail_is_the_most_likely_one():
    """Against the likelihood on a fine grid: sum of log P(x) with P(x) = x^-a / zeta(a)."""
    value, count = counted(stats.zipf(2.2).rvs(500, random_state=3))
    grid = np.arange(1.5, 4, 0.001)
    likelihood = [np.sum(count * stats.zipf(a).logpmf(value)) for a in grid]
    fit = statistics._fit_tail(value, count.astype(float))
    assert fit.exponent == pytest.approx(grid[int(np.argmax(likelihood))], abs=0.002)


def test_no_tail_no_fit():
    assert statistics.power_law([3], [500]) is None
    assert statistics.power_law([1, 2, 3], [5, 5, 5]) is None


def test_a_straight_ccdf_has_its_slope():
    value = np.arange(1, 1001)
    share = value**-1.5
    count = np.append(-np.diff(share), share[-1]) * 1e9
    assert statistics.loglog_slope(value, count) == pytest.approx(-1.5, abs=1e-6)
    assert np.isnan(statistics.loglog_slope([1, 2], [5, 5]))


def reference_tdi(interest, node, closest):
    """[SpiderCast 3.4] without ties at the last place."""
    others = sorted((len(interest[node] & interest[other]) for other in interest if other != node), reverse=True)
    assert closest >= len(others) or others[closest - 1] > others[closest] or others[closest - 1] == 0
    ranked = sorted((other for other in interest if other != node), key=lambda o: -len(interest[node] & interest[o]))
    shares = [100 * len(interest[node] & interest[o]) / min(len(interest[node]), len(interest[o])) for o in ranked]
    return sum(shares[:closest]) / closest


def test_tdi_is_the_mean_overlap_with_the_closest_nodes(spark):
    # Node k wants topics 0..k: the overlap of any two is the smaller one, and there are few ties.
    interest = {f"n{k}": {f"t{topic}" for topic in range(k + 1)} for k in range(8)} | {"lone": {"nobody else's"}}
    table = spark.createDataFrame([(n, t) for n, topics in interest.items() for t in sorted(topics)], INTERESTS)
    found = distributions.top_intersections(table, closest=8, sample=100, seed=0).collect()
    assert {row.node: row.percentage for row in found} == pytest.approx(
        {node: reference_tdi(interest, node, 8) for node in interest}
    )
    assert {row.node: row.found for row in found}["lone"] == 0
    some = distributions.top_intersections(table, closest=2, sample=3, seed=0).collect()
    assert len(some) == 3


def test_tdi_takes_the_closest_first(spark):
    rows = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("b", "z"), ("c", "x"), ("c", "w")]
    table = spark.createDataFrame(rows, INTERESTS)
    found = {
        r.node: r.percentage for r in distributions.top_intersections(table, closest=1, sample=9, seed=0).collect()
    }
    assert found == {"a": 100.0, "b": 100.0, "c": 50.0}


def test_correlations_are_pearsons(spark):
    chance = random.Random(6)
    pairs = sorted({(f"u{chance.randrange(12)}", f"u{int(chance.random() ** 2 * 12)}") for _ in range(60)})
    size = {node: sum(other == node for other, _ in pairs) for node, _ in pairs}
    popularity = {topic: sum(other == topic for _, other in pairs) for _, topic in pairs}
    found = {
        row.measure: row.value for row in distributions.correlations(spark.createDataFrame(pairs, INTERESTS)).collect()
    }
    both = sorted(size.keys() & popularity.keys())
    assert found == pytest.approx(
        {
            "size_popularity": np.corrcoef([(size[n], popularity[t]) for n, t in pairs], rowvar=False)[0, 1],
            "followers_followees": np.corrcoef([(size[n], popularity[n]) for n in both], rowvar=False)[0, 1],
        }
    )


def test_nothing_to_compare_has_no_correlation(spark):
    found = distributions.correlations(spark.createDataFrame([("a", "x")], INTERESTS)).collect()
    assert {row.measure: row.value for row in found} == {"size_popularity": None, "followers_followees": None}


def test_a_profile_has_its_tables_and_its_picture(spark, write, tmp_path):
    drawn = stats.zipf(2.0).rvs(400, random_state=2)
    text = "node\ttopic\n" + "".join(f"n{n}\tt{t}\n" for n, many in enumerate(drawn) for t in range(min(many, 60)))
    source = write("i.tsv", text)
    report = jobs.profile(spark, source, tmp_path / "out", tdi_closest=3, tdi_sample=10)
    folder = tmp_path / "out"
    ccdf = [row for row in pq.ParquetDataset(folder / "ccdf.parquet").read().to_pylist() if row["quantity"] == "size"]
    assert ccdf[0]["ccdf"] == 1
    assert sum(row["count"] for row in ccdf) == 400 == report.facts["nodes"]
    assert all(one["value"] < two["value"] and one["ccdf"] > two["ccdf"] for one, two in pairwise(ccdf))
    fits = {row["quantity"]: row for row in pq.ParquetDataset(folder / "fits.parquet").read().to_pylist()}
    assert fits["size"]["mean"] == pytest.approx(np.minimum(drawn, 60).mean())
    assert 1.5 < fits["size"]["exponent"] < 2.5
    assert len(pq.ParquetDataset(folder / "tdi.parquet").read()) == 10
    assert len(pq.ParquetDataset(folder / "correlation.parquet").read()) == 2
    picture = (folder / "ccdf.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    jobs.profile(spark, source, tmp_path / "again", tdi_sample=0)
    assert (tmp_path / "again" / "ccdf.png").read_bytes() == picture


def test_a_graph_is_profiled_as_its_interests(spark, write, tmp_path):
    source = write("g.txt", "1 2\n1 3\n1 4\n4 1\n")
    directed = jobs.profile(spark, source, tmp_path / "a", format="edges", directed=True, tdi_sample=0)
    friends = jobs.profile(spark, source, tmp_path / "b", format="edges", tdi_sample=0)
    assert (directed.facts["subscriptions"], directed.facts["nodes"], directed.facts["topics"]) == (4, 2, 4)
    assert (friends.facts["subscriptions"], friends.facts["nodes"], friends.facts["topics"]) == (6, 4, 4)
    with pytest.raises(InputError, match='format "avt" is not read here'):
        jobs.profile(spark, source, tmp_path / "c", format="avt")
