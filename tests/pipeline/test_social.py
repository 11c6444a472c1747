"""Samples of a social graph, against a search that one can read."""

from __future__ import annotations

import random

import pytest

from lazy import functions as F
from trellis.errors import InputError
from trellis.model.read import read_interests
from trellis.pipeline import jobs
from trellis.pipeline.chance import key
from trellis.pipeline.schemas import EDGES
from trellis.pipeline.stages import graphs


def reference_bfs(edges, keys_of, target, seeds):
    """OMen's sample by the book: levels, each in the random order of its keys, cut at the target.  [E-14]"""
    friends = {}
    for u, v in edges:
        friends.setdefault(u, set()).add(v)
        friends.setdefault(v, set()).add(u)
    by_seed = sorted(friends, key=lambda node: (keys_of["seeds"][node], node))
    frontier = by_seed[: min(seeds, target)]
    reached, batch = list(frontier), 1
    while len(reached) < target:
        level = {friend for node in frontier for friend in friends[node]} - set(reached)
        frontier = sorted(level, key=lambda node: (keys_of["level"][node], node))[: target - len(reached)]
        reached += frontier
        if not level:
            frontier = [node for node in by_seed if node not in reached][: min(batch, target - len(reached))]
            reached += frontier
            batch *= 2
    return set(reached)


def keys(spark, nodes, seed):
    table = spark.createDataFrame([(node,) for node in nodes], "node string")
    purposes = ("seeds", "level")
    rows = table.select("node", *[key(seed, purpose, F.col("node")).alias(purpose) for purpose in purposes]).collect()
    return {purpose: {row.node: row[purpose] for row in rows} for purpose in purposes}


def random_graph(chance, nodes, edges):
    return {tuple(chance.sample(range(nodes), 2)) for _ in range(edges)}


def text_of(edges):
    return "".join(f"{u} {v}\n" for u, v in edges)


def rows_of(folder):
    return [(row["node"], row["topic"]) for row in read_interests(folder).to_table().to_pylist()]


@pytest.mark.parametrize(
    ("nodes", "links", "target", "seeds"),
    [(60, 150, 25, 5), (40, 22, 22, 3), (30, 200, 30, 5), pytest.param(80, 45, 50, 3, marks=pytest.mark.slow)],
)
def test_a_sample_is_the_one_that_breadth_first_search_gives(spark, write, tmp_path, nodes, links, target, seeds):
    """One component, many small ones (further seeds are drawn), and the whole graph."""
    chance = random.Random(nodes)
    edges = random_graph(chance, nodes, links)
    target = min(target, len({node for edge in edges for node in edge}))
    report = jobs.social(
        spark, write("g.txt", text_of(edges)), tmp_path / "out", sample_nodes=target, seeds=seeds, seed=nodes
    )
    names = {(str(u), str(v)) for u, v in edges}
    reached = reference_bfs(names, keys(spark, {n for edge in names for n in edge}, nodes), target, seeds)
    expected = {(u, v) for u, v in names if {u, v} <= reached}
    assert set(rows_of(tmp_path / "out")) == expected | {(v, u) for u, v in expected}
    assert report.facts["sample_nodes"] == target


@pytest.mark.parametrize("counts", [(1, 7), pytest.param((1, 2, 7, 64), marks=pytest.mark.slow)])
def test_the_same_seed_gives_the_same_rows_on_any_number_of_partitions(spark, write, tmp_path, partitions, counts):
    chance = random.Random(4)
    lines = [f"{u} {v}\n" for u, v in random_graph(chance, 120, 260)]
    samples = []
    for count in counts:
        chance.shuffle(lines)
        for part in range(min(count, 7)):
            write(f"in{count}/part-{part}", "".join(lines[part :: min(count, 7)]))
        with partitions(count):
            jobs.social(spark, tmp_path / f"in{count}", tmp_path / f"out{count}", sample_nodes=40, seed=9)
        samples.append(rows_of(tmp_path / f"out{count}"))
    assert samples[0]
    assert all(sample == samples[0] for sample in samples)


def test_another_seed_gives_another_sample(spark, write, tmp_path):
    source = write("g.txt", text_of(random_graph(random.Random(5), 100, 200)))
    for seed in (1, 2):
        jobs.social(spark, source, tmp_path / f"out{seed}", sample_nodes=20, seed=seed)
    assert rows_of(tmp_path / "out1") != rows_of(tmp_path / "out2")


def test_friends_want_each_other_and_followers_only_whom_they_follow(spark, write, tmp_path):
    jobs.social(spark, write("f.txt", "1 2\n"), tmp_path / "friends", format="facebook")
    jobs.social(spark, write("t.txt", "1\t2\n"), tmp_path / "followers", format="twitter")
    jobs.social(spark, write("k.txt", "% asym\n1 2 \n"), tmp_path / "konect")
    jobs.social(spark, write("e.txt", "1 2\n"), tmp_path / "directed", directed=True)
    assert rows_of(tmp_path / "friends") == [("1", "2"), ("2", "1")]
    assert rows_of(tmp_path / "followers") == [("2", "1")]  # `user follower`
    assert rows_of(tmp_path / "konect") == [("1", "2")]
    assert rows_of(tmp_path / "directed") == [("1", "2")]


def test_loops_and_repeats_are_left_out_and_counted(spark, write, tmp_path):
    text = "1 2\n2 1\n1 2\n3 3\n2 3\n"
    friends = jobs.social(spark, write("g.txt", text), tmp_path / "a", format="edges").facts
    assert (friends["rows_read"], friends["edges"], friends["self_loops"], friends["repeated_edges"]) == (5, 2, 1, 2)
    directed = jobs.social(spark, write("g.txt", text), tmp_path / "b", format="edges", directed=True).facts
    assert (directed["edges"], directed["self_loops"], directed["repeated_edges"]) == (3, 1, 1)


def test_vitis_takes_random_users_with_all_whom_they_follow(spark, write, tmp_path):
    """[Vitis IV-E] Twelve users follow ten others each: the first round is one user and its ten."""
    edges = [(f"u{user}", f"u{user}f{followee}") for user in range(12) for followee in range(10)]
    source = write("g.txt", text_of(edges))
    report = jobs.social(
        spark, source, tmp_path / "out", directed=True, sampling="vitis", seeds=4, sample_nodes=60, seed=2
    )
    assert report.facts["sample_nodes"] == 60
    rows = rows_of(tmp_path / "out")
    assert set(rows) <= set(edges)
    assert all(topic.startswith(node + "f") for node, topic in rows)


def test_vitis_cuts_the_last_round_at_the_target_and_keeps_the_rounds_before_whole(spark, write, tmp_path):
    edges = [(f"hub{hub}", f"hub{hub}f{leaf}") for hub in range(3) for leaf in range(30)]
    source = write("g.txt", text_of(edges))
    report = jobs.social(
        spark, source, tmp_path / "out", directed=True, sampling="vitis", seeds=93, sample_nodes=93, seed=2
    )
    assert (report.rows["table"], report.facts["nodes_without_interests"]) == (90, 90)


def test_the_whole_graph_is_at_no_distance_from_itself_and_a_sample_at_some(spark, write, tmp_path):
    source = write("g.txt", text_of(random_graph(random.Random(8), 60, 240)))
    whole = jobs.social(spark, source, tmp_path / "whole").facts["sample"]
    part = jobs.social(spark, source, tmp_path / "part", sample_nodes=15).facts["sample"]
    assert whole["followers"]["ks"] == 0
    assert 0 < part["followers"]["ks"] <= 1
    assert part["followers"]["mean"] < part["followers"]["mean_full"] == whole["followers"]["mean"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_nodes": 4}, "the graph has only 3 users; ask for at most 3"),
        ({"sample_nodes": 0}, "a sample of no users"),
        ({"sample_nodes": 2, "seeds": 0}, "from no seeds"),
        ({"sample_nodes": 2, "sampling": "snowball"}, 'sampling "snowball" is unknown; choose omen or vitis'),
        ({"format": "facebook", "directed": True}, "facebook graphs are not directed; read it as edges instead"),
        ({"format": "avt"}, 'format "avt" is not read here; choose one of edges, facebook, twitter'),
    ],
)
def test_what_cannot_be_sampled_is_refused(spark, write, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        jobs.social(spark, write("g.txt", "1 2\n2 3\n"), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_degrees_count_followers_and_followees_of_every_user(spark):
    edges = spark.createDataFrame([("a", "b"), ("a", "c"), ("c", "b")], EDGES)
    directed = {tuple(row) for row in graphs.degrees(edges, directed=True).collect()}
    assert directed == {("a", 0, 2), ("b", 2, 0), ("c", 1, 1)}
    friends = {tuple(row) for row in graphs.degrees(edges, directed=False).collect()}
    assert friends == {("a", 2, 2), ("b", 2, 2), ("c", 2, 2)}
    alone = graphs.with_isolated(graphs.degrees(edges, directed=True), spark.createDataFrame([("z",)], "node string"))
    assert [tuple(row) for row in alone.collect()] == [("z", 0, 0)]


@pytest.mark.parametrize("small", [True, False])
def test_a_level_is_who_is_linked_to_the_frontier_and_new(spark, small):
    edges = spark.createDataFrame([("a", "b"), ("c", "a"), ("b", "d"), ("a", "r")], EDGES)
    frontier, reached = (spark.createDataFrame([(n,) for n in nodes], "node string") for nodes in ("a", "ar"))

    def level(both_directions):
        found = graphs.next_level(edges, frontier, reached, both_directions=both_directions, small=small)
        return sorted(row.node for row in found.collect())

    assert level(both_directions=False) == ["b"]
    assert level(both_directions=True) == ["b", "c"]
