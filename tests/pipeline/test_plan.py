"""Plans made in parts and merged: always a TCO, with true degrees, and the same on any cluster."""

from __future__ import annotations

import random
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import interests as drawn_interests
from trellis.errors import InputError
from trellis.measure.connectivity import connectivity
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.model.read import read_overlay
from trellis.pipeline.jobs.plan import plan
from trellis.pipeline.package import zip_package
from trellis.pipeline.schemas import INTERESTS
from trellis.pipeline.stages import parts as parts_stage
from trellis.pipeline.stages.merge import ALGORITHMS, CONNECTED, Rules, connect_group
from trellis.pipeline.stages.parts import MEMBERS
from trellis.pipeline.stages.plan_cover import cover
from trellis.pipeline.stages.plan_kernels import zip_of
from trellis.plan.construction import construct

_TYPES = {
    "group": pa.int64(),
    "part": pa.int64(),
    "node": pa.string(),
    "topics": pa.list_(pa.string()),
    "closes": pa.list_(pa.int32()),
    "degree": pa.int64(),
    "degree_max": pa.int64(),
}


def members_of(interests, part_of, fan_in, levels):
    """MEMBERS by the book: a topic closes where all its parts are in one group."""
    reach = {}
    for node, topic in zip(interests.subscription_nodes, interests.node_topics, strict=True):
        reach.setdefault(int(topic), set()).add(part_of[node])
    closes = {
        topic: next(level for level in range(levels + 1) if len({part // fan_in**level for part in found}) == 1)
        for topic, found in reach.items()
    }
    return [
        {
            "part": part_of[node],
            "node": interests.nodes[node],
            "topics": [interests.topics[topic] for topic in interests.topics_of(node)],
            "closes": [closes[int(topic)] for topic in interests.topics_of(node)],
            "degree": 0,
            "degree_max": 0,
        }
        for node in range(len(interests.nodes))
    ]


def planned_in_memory(interests, part_of, fan_in, rules):
    """The whole tree without Spark: the links of each level and the rows of the last."""
    levels = parts_stage.levels_of(max(part_of) + 1, fan_in)
    members, links = members_of(interests, part_of, fan_in, levels), []
    for level in range(levels + 1):
        groups = {}
        for row in members:
            groups.setdefault(row["part"] if level == 0 else row["part"] // fan_in, []).append(row)
        done = []
        for group, rows in groups.items():
            table = pa.Table.from_pylist([{**row, "group": group} for row in rows], pa.schema(_TYPES))
            result = connect_group(table, level, fan_in, rules)
            assert result.column_names == CONNECTED.names
            done += result.to_pylist()
        links.append([(row["node"], other) for row in done for other in row["links"]])
        members = [row for row in done if row["topics"] is not None]
        degree = Counter(end for one in links for link in one for end in link)
        for row in members:
            assert row["degree"] == degree[row["node"]]
            assert row["degree_max"] >= row["degree"]
    assert members == []  # nobody is left to represent anything
    return links


@given(st.data(), drawn_interests(nodes_max=14), st.integers(1, 9), st.integers(2, 4), st.integers(1, 3))
@settings(max_examples=120, deadline=None)
def test_parts_merged_through_representatives_are_a_tco_of_different_links(data, interests, parts, fan_in, times):
    part_of = data.draw(
        st.lists(st.integers(0, parts - 1), min_size=len(interests.nodes), max_size=len(interests.nodes))
    )
    rules = Rules(data.draw(st.sampled_from(ALGORITHMS)), 3.0, times, 7)
    links = planned_in_memory(interests, part_of, fan_in, rules)
    overlay = Overlay.from_pairs(interests.nodes, [link for one in links for link in one])  # refuses repeats
    found = connectivity(interests, overlay)
    assert found.is_tco
    assert found.idle_links == 0


@given(drawn_interests(), st.sampled_from(ALGORITHMS))
@settings(max_examples=40, deadline=None)
def test_a_single_part_is_planned_as_the_one_machine_planner_does(interests, algorithm):
    links = planned_in_memory(interests, [0] * len(interests.nodes), 2, Rules(algorithm, 3.0, 1, "s"))
    expected = construct(interests, algorithm, rho=3.0, seed="s").overlay.to_table().to_pylist()
    names = {tuple(sorted(link)) for link in links[0]}
    assert names == {tuple(sorted((row["u"], row["v"]))) for row in expected}


@given(drawn_interests(nodes_max=10), st.integers(1, 4), st.data())
@settings(max_examples=80, deadline=None)
def test_representatives_cover_every_topic_as_often_as_asked_or_possible(interests, times, data):
    count = len(interests.nodes)
    degrees = np.array(data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))
    chosen = cover(interests.node_offsets, interests.node_topics, len(interests.topics), degrees, times)
    assert list(chosen) == sorted(set(chosen))
    covered = Counter(int(topic) for node in chosen for topic in interests.topics_of(node))
    for topic, subscribers in enumerate(interests.popularity):
        assert covered[topic] >= min(times, subscribers)


def test_of_two_nodes_with_the_same_topics_the_one_with_fewer_links_represents_them():
    twins = Interests.from_pairs({"a": ["x", "y"], "b": ["x", "y"]})
    for degrees, chosen in (([5, 1], [1]), ([1, 5], [0]), ([2, 2], [0])):
        assert list(cover(twins.node_offsets, twins.node_topics, 2, np.array(degrees), 1)) == chosen


def test_one_busy_node_with_all_topics_does_not_speak_where_two_idle_ones_can():
    interests = Interests.from_pairs({"a": ["x", "y"], "b": ["x"], "c": ["y"]})
    assert list(cover(interests.node_offsets, interests.node_topics, 2, np.array([9, 0, 0]), 1)) == [1, 2]
    assert list(cover(interests.node_offsets, interests.node_topics, 2, np.array([0, 0, 0]), 1)) == [0]


def test_members_know_where_each_topic_closes(spark):
    """Parts 0..6, three a merge: groups 012, 345, 6, then all."""
    placed = {"x": [0, 2], "y": [2, 3], "z": [4, 4], "w": [0, 6], "v": [3, 4, 5]}
    rows = [(f"n{part}-{place}", topic, part) for topic, found in placed.items() for place, part in enumerate(found)]
    table = spark.createDataFrame(rows, "node string, topic string, part bigint")
    members = parts_stage.members_of_parts(table, fan_in=3, levels=parts_stage.levels_of(7, 3))
    assert members.schema.names == MEMBERS.names
    assert [field.dataType for field in members.schema] == [field.dataType for field in MEMBERS]
    found = {}
    for row in members.collect():
        assert (row.degree, row.degree_max) == (0, 0)
        found |= dict(zip(row.topics, row.closes, strict=True))
    assert found == {"x": 1, "y": 2, "z": 0, "w": 2, "v": 1}


@pytest.mark.parametrize(("parts", "fan_in", "levels"), [(1, 2, 0), (2, 2, 1), (3, 2, 2), (8, 8, 1), (9, 8, 2)])
def test_a_tree_has_just_the_levels_that_it_needs(parts, fan_in, levels):
    assert parts_stage.levels_of(parts, fan_in) == levels


def test_minhash_mixes_fewer_communities_in_parts_of_one_size(spark, partitions):
    """Six communities of 20 nodes with topics of their own, names in no order of them."""
    chance = random.Random(3)
    rows = [(f"n{node}", f"c{node % 6}-{topic}") for node in range(120) for topic in chance.sample(range(4), 3)]
    interests = spark.createDataFrame(rows, INTERESTS)
    placements = []
    for count in (1, 7):
        with partitions(count):
            table = parts_stage.in_similar_parts(interests.repartition(count), nodes=120, parts=6, seed=1)
            placements.append({(row.node, row.part) for row in table.collect()})
    similar = placements[0]
    assert similar == placements[1]
    assert Counter(part for _, part in similar) == dict.fromkeys(range(6), 20)
    at_random = {(row.node, row.part) for row in parts_stage.in_random_parts(interests, parts=6, seed=1).collect()}

    def met(placed):
        return len({(int(node[1:]) % 6, part) for node, part in placed})

    assert 2 * met(similar) <= met(at_random)


@pytest.fixture(scope="module")
def workload():
    chance = random.Random(11)
    return Interests.from_pairs({f"n{n}": {f"t{chance.randrange(25)}" for _ in range(4)} for n in range(90)})


@pytest.fixture
def source(workload, tmp_path):
    pq.write_table(workload.to_table(), tmp_path / "interests.parquet")
    return str(tmp_path / "interests.parquet")


def links_in(folder, interests):
    return read_overlay(folder, interests.nodes).to_table().to_pylist()


@pytest.mark.parametrize(
    "options",
    [{}, {"partitioner": "minhash", "algorithm": "minmax", "representatives": 1}, {"algorithm": "gm", "partitions": 1}],
)
def test_the_job_writes_a_tco_and_reports_its_degrees(spark, tmp_path, workload, source, options):
    options = {"partitions": 7, "fan_in": 3, **options}
    report = plan(spark, source, tmp_path / "out", seed=5, **options)
    overlay = read_overlay(tmp_path / "out", workload.nodes)
    assert connectivity(workload, overlay).is_tco
    facts = report.facts
    assert facts["links"] == len(overlay) == report.rows["table"]
    assert facts["degree"] == {"max": overlay.degrees.max(), "mean": overlay.degrees.mean()}
    assert facts["nodes"] == len(workload.nodes)
    assert sum(step["links"] for step in facts["steps"] if step["step"].startswith(("planning", "merge"))) == len(
        overlay
    )
    assert all(step["seconds"] >= 0 for step in facts["steps"])


@pytest.mark.parametrize("counts", [(1, 7), pytest.param((1, 2, 7, 64), marks=pytest.mark.slow)])
def test_a_seed_gives_the_same_links_on_any_number_of_partitions(spark, tmp_path, partitions, workload, source, counts):
    table = spark.read.parquet(source)
    found = []
    for count in counts:
        given_ = tmp_path / f"in{count}"
        table.repartition(count).write.parquet(str(given_))
        with partitions(count):
            plan(spark, given_, tmp_path / f"out{count}", partitions=5, fan_in=2, seed=5)
        found.append(links_in(tmp_path / f"out{count}", workload))
    assert found[0]
    assert all(links == found[0] for links in found)
    plan(spark, source, tmp_path / "other", partitions=5, fan_in=2, seed=6)
    assert links_in(tmp_path / "other", workload) != found[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitioner": "metis"}, 'partitioner "metis" is unknown; choose random or minhash'),
        ({"algorithm": "ring"}, 'algorithm "ring" is unknown; choose one of gm, minmax, lowoda'),
        ({"rho": 0.5}, "rho 0.5; give 1 or more"),
        ({"rho": float("nan")}, "rho nan; give 1 or more"),
        ({"representatives": 0}, "0 representatives; give 1 or more"),
        ({"partitions": 0}, "0 partitions; give 1 or more"),
        ({"fan_in": 1}, "a fan-in of 1 joins nothing; give 2 or more"),
        ({"candidates": "some"}, 'candidates "some" are unknown; choose one of auto, all, sampled'),
        ({"keep": 0}, "keep is 0; give a number from 1 to 100,000"),
    ],
)
def test_what_makes_no_plan_is_refused(spark, tmp_path, source, options, message):
    with pytest.raises(InputError, match=message):
        plan(spark, source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("partitions", [None, 2])
def test_a_subscription_given_twice_counts_once(spark, write, tmp_path, partitions):
    source = write("twice.tsv", "node\ttopic\na\tx\nb\tx\na\tx\na\tx\n")
    facts = plan(spark, source, tmp_path / "out", partitions=partitions).facts
    found = {name: facts[name] for name in ("nodes", "subscriptions", "repeated_rows", "links")}
    assert found == {"nodes": 2, "subscriptions": 2, "repeated_rows": 2, "links": 1}


def test_a_module_in_a_zip_is_told_from_one_in_a_folder(tmp_path):
    archive = zip_package(tmp_path)
    assert zipfile.is_zipfile(archive)
    assert zip_of(archive / "trellis" / "plan" / "kernel.py") == archive
    assert zip_of(Path(parts_stage.__file__)) is None
