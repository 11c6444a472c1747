"""Plans of whole instances on Spark: drawn by executors, chosen on the driver, and the links of `trellis plan`."""

from __future__ import annotations

import random

import networkx as nx
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import lowoda as reference
from strategies import seeds
from trellis.model.interests import Interests
from trellis.model.read import read_overlay
from trellis.pipeline.jobs.plan import plan
from trellis.pipeline.schemas import INTERESTS
from trellis.pipeline.stages import numbers
from trellis.pipeline.stages.draw import drawn_candidates, kept_of
from trellis.plan import candidates
from trellis.plan.candidates import Sampling, drawn, subscribers_of, with_rings
from trellis.plan.construction import construct
from trellis.plan.ties import in_rank_order, ranks_of


@st.composite
def odd_rows(draw) -> list[tuple[str, str]]:
    """Rows of interests with topics of one, of two, of a few and of all nodes, and with repeated rows."""
    nodes = [f"n{number}" for number in range(draw(st.integers(1, 24)))]
    some = st.lists(st.sampled_from(nodes), min_size=1, max_size=6, unique=True)
    rows = [(node, "hub") for node in nodes if draw(st.booleans())]
    for topic in range(draw(st.integers(0, 8))):
        rows += [(node, f"pair{topic}") for node in draw(some)[:2]]
    for topic in range(draw(st.integers(0, 4))):
        rows += [(node, f"few{topic}") for node in draw(some)]
    rows += [(node, "all") for node in nodes]
    return rows + draw(st.lists(st.sampled_from(rows), max_size=5))


def names_of(interests: Interests) -> reference.Interest:
    return {
        node: set(interests.topics.take(interests.topics_of(index)).to_pylist())
        for index, node in enumerate(interests.nodes)
    }


def packed_rows(interests: Interests, pieces: int, chance: random.Random) -> list[dict[str, bytes]]:
    """PACKED as Spark gives it: pieces of nodes in any order, and the pieces in any order."""
    order = in_rank_order(interests.nodes, 0)
    rank = ranks_of(order)
    places = list(range(len(order)))
    chance.shuffle(places)
    rows = []
    for piece in range(pieces):
        mine = places[piece::pieces]
        lists = [interests.topics_of(node) for node in mine]
        cells = ([rank[node] for node in mine], [len(one) for one in lists], np.concatenate([[], *lists]))
        rows.append({name: np.asarray(cell, np.int32).tobytes() for name, cell in zip(_NAMES, cells, strict=True)})
    return rows


_NAMES = ("ranks", "sizes", "topics")


@given(odd_rows(), st.integers(1, 3), st.integers(1, 3), st.integers(1, 12), st.integers(1, 5), seeds)
@settings(max_examples=150, deadline=None)
def test_candidates_drawn_in_pieces_connect_every_topic_even_without_any_one_node(
    rows, sample, keep, meetings, slab, seed
):
    interests, chance = Interests.from_pairs(set(rows)), random.Random(seed)
    nodes, topics = len(interests.nodes), len(interests.topics)
    packed = packed_rows(interests, min(nodes, slab), chance)
    table = numbers.unpacked(packed, nodes, interests.subscriptions, topics)
    sampling = Sampling(sample, keep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "MEETINGS", meetings)
        slabs = [
            {"first": first, "kept": drawn(table, first, min(first + slab, nodes), sampling, seed).tobytes()}
            for first in range(0, nodes, slab)
        ]
        chance.shuffle(slabs)
        found = with_rings(table, kept_of(slabs, nodes, sampling))
        whole = candidates.sampled(table.offsets, table.topics, topics, sampling, seed)
    assert found.row_start.tolist() == whole.row_start.tolist()
    assert found.columns.tolist() == whole.columns.tolist()
    names = interests.nodes.take(in_rank_order(interests.nodes, 0)).to_pylist()
    rows_of = np.repeat(np.arange(nodes), np.diff(found.row_start))
    pairs = [(names[i], names[j]) for i, j in zip(rows_of, found.columns, strict=True)]
    interest = names_of(interests)
    assert not reference.split_topics(interest, pairs)
    for topic in interests.topics:
        members = {node for node, wanted in interest.items() if topic in wanted}
        assert len(members) < 3 or nx.is_biconnected(nx.Graph(pair for pair in pairs if members.issuperset(pair)))


def odd_instance(nodes: int, seed: int) -> list[tuple[str, str]]:
    """Hubs so large that a node looks at a part of them only; topics of one, of two and of a few; repeated rows."""
    chance = random.Random(seed)
    rows = [(f"n{node}", f"hub{hub}") for node in range(nodes) for hub in range(4) if hub == 0 or chance.random() < 0.9]
    rows += [(f"n{chance.randrange(nodes)}", f"one{number}") for number in range(40)]
    for number in range(nodes // 2):
        rows += [(f"n{node}", f"two{number}") for node in chance.sample(range(nodes), 2)]
    for number in range(nodes // 8):
        rows += [(f"n{node}", f"few{number}") for node in chance.sample(range(nodes), 9)]
    return rows + chance.choices(rows, k=50)


def written(rows, path) -> Interests:
    interests = Interests.from_pairs(set(rows))
    pq.write_table(interests.to_table(), path)
    return interests


def links_in(folder, interests):
    return read_overlay(folder, interests.nodes).to_table().to_pylist()


def test_ids_on_spark_are_those_of_the_planner(spark, partitions):
    rows = odd_instance(300, 1)
    interests = Interests.from_pairs(set(rows))
    order = in_rank_order(interests.nodes, 7)
    for count in (1, 7):
        with partitions(count):
            given_ = spark.createDataFrame(rows, INTERESTS).repartition(count)
            topics = numbers.topic_ids(given_)
            found = numbers.ranked(given_, topics, 7)
            nodes = found.orderBy("rank").collect()
            table = numbers.unpacked(
                numbers.packed(found).collect(), len(order), interests.subscriptions, len(interests.topics)
            )
        assert [row.node for row in nodes] == interests.nodes.take(order).to_pylist()
        assert [row["rank"] for row in nodes] == list(range(len(order)))
        assert [row.topic for row in topics.orderBy("id").collect()] == list(interests.topics)
        assert sum(row.rows for row in nodes) == len(rows)
        expected = [interests.topics_of(node).tolist() for node in order]
        assert [row.topics for row in nodes] == expected
        assert np.split(table.topics, table.offsets[1:-1])[5].tolist() == expected[5]
        assert table.topics.tolist() == [topic for own in expected for topic in own]


def test_candidates_that_executors_draw_are_those_of_one_machine_and_the_plan_splits_no_topic(spark, tmp_path):
    rows, sampling = odd_instance(1200, 2), Sampling(3, 4)
    interests = Interests.from_pairs(set(rows))
    expected = construct(interests, sampling=sampling, seed=5)
    given_ = tmp_path / "in"
    spark.createDataFrame(rows, INTERESTS).write.parquet(str(given_))
    report = plan(spark, given_, tmp_path / "out", candidates="sampled", sample=3, keep=4, seed=5)
    assert links_in(tmp_path / "out", interests) == expected.overlay.to_table().to_pylist()
    assert report.facts["candidates"] == expected.candidates
    assert report.facts["repeated_rows"] == 50
    assert report.facts["degree"]["max"] == expected.overlay.degrees.max()
    links = [(row["u"], row["v"]) for row in links_in(tmp_path / "out", interests)]
    assert not reference.split_topics(names_of(interests), links)


def test_a_slab_of_nodes_is_a_row_whatever_the_task(spark):
    interests = Interests.from_pairs(set(odd_instance(200, 3)))
    table = subscribers_of(interests.node_offsets, interests.node_topics, len(interests.topics))
    arrays = spark.sparkContext.broadcast(tuple(table))
    sampling = Sampling(2, 5)
    rows = drawn_candidates(spark, arrays, len(interests.nodes), sampling, 9, slab=64).collect()
    assert sorted(row["first"] for row in rows) == [0, 64, 128, 192]
    whole = drawn(table, 0, len(interests.nodes), sampling, 9)
    assert kept_of(rows, len(interests.nodes), sampling).tolist() == whole.tolist()
    arrays.destroy()


@pytest.mark.parametrize("algorithm", ["gm", "minmax", "lowoda"])
def test_a_small_instance_is_planned_among_all_pairs_as_on_one_machine(spark, tmp_path, algorithm):
    interests = written(odd_instance(120, 4), tmp_path / "in.parquet")
    report = plan(spark, tmp_path / "in.parquet", tmp_path / "out", algorithm=algorithm, seed=5)
    expected = construct(interests, algorithm, seed=5).overlay
    assert links_in(tmp_path / "out", interests) == expected.to_table().to_pylist()
    assert "candidates" not in report.facts
    assert report.facts["links"] == len(expected)


def test_a_plan_beyond_the_memory_is_made_in_parts_and_says_so(spark, tmp_path):
    interests = written(odd_instance(120, 4), tmp_path / "in.parquet")
    source = tmp_path / "in.parquet"
    within = plan(spark, source, tmp_path / "within", candidates="sampled", keep=1)
    need = within.facts["memory_bytes"]
    again = plan(spark, source, tmp_path / "again", keep=1, memory_bytes_max=need)
    assert again.facts["candidates"] == within.facts["candidates"]  # all pairs would need more memory
    beyond = plan(spark, source, tmp_path / "beyond", keep=1, memory_bytes_max=need - 1)
    assert beyond.facts["parts"] == 1
    assert beyond.facts["in_parts_because"].startswith("a whole plan needs ")
    assert beyond.facts["in_parts_because"].endswith(" MiB are allowed (--memory)")
    links = [(row["u"], row["v"]) for row in links_in(tmp_path / "beyond", interests)]
    assert not reference.split_topics(names_of(interests), links)
