"""Overlays verified by many tasks, against networkx on each topic's own graph."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazy import nx as networkx
from trellis.errors import InputError
from trellis.pipeline.jobs.verify import verify
from trellis.pipeline.stages import components
from trellis.pipeline.stages.verify import SIZES_SHOWN, span


def random_instance(chance, prefix):
    """Interests and links of a few nodes; from dense and connected to all in pieces."""
    nodes, topics = chance.randint(1, 14), chance.randint(1, 6)
    interests = {
        f"{prefix}n{n}": {f"{prefix}t{t}" for t in chance.sample(range(topics), chance.randint(1, topics))}
        for n in range(nodes)
    }
    pairs = [(u, v) for u in interests for v in interests if u < v]
    links = chance.sample(pairs, min(len(pairs), chance.randint(0, 2 * nodes)))
    return interests, [pair[:: chance.choice((1, -1))] for pair in links]


def path(chance, length):
    """One topic along a path whose names are in no order: the hardest graph for passing on the smallest name."""
    names = [f"p{n}" for n in range(length)]
    chance.shuffle(names)
    return {name: {"long"} for name in names}, list(pairwise(names))


def many_instances(seed, count=25):
    chance = random.Random(seed)
    every = [random_instance(chance, f"i{n}") for n in range(count)] + [path(chance, 40)]
    interests = {node: topics for one, _ in every for node, topics in one.items()}
    return interests, [link for _, links in every for link in links]


def reference(interests, links):
    """topic -> subscribers, links, components, sizes of the largest, by networkx."""
    graph = networkx.Graph()
    graph.add_nodes_from(interests)
    graph.add_edges_from(links)
    found = {}
    for topic in set().union(*interests.values()):
        own = graph.subgraph([node for node, topics in interests.items() if topic in topics])
        sizes = sorted((len(part) for part in networkx.connected_components(own)), reverse=True)
        found[topic] = (len(own), own.number_of_edges(), len(sizes), tuple(sizes[:SIZES_SHOWN]))
    return found


def write_parts(folder, table, parts=3):
    folder.mkdir(parents=True)
    for part in range(parts):
        rows = [row for place, row in enumerate(table.to_pylist()) if place % parts == part]
        pq.write_table(pa.Table.from_pylist(rows, table.schema), folder / f"part-{part}.parquet")
    return str(folder)


def write_instance(folder, interests, links, parts=3):
    rows = [(node, topic) for node, topics in interests.items() for topic in topics]
    given_ = pa.table({"node": [node for node, _ in rows], "topic": [topic for _, topic in rows]})
    overlay = pa.table(
        {"u": pa.array([u for u, _ in links], pa.string()), "v": pa.array([v for _, v in links], pa.string())}
    )
    return write_parts(folder / "interests", given_, parts), write_parts(folder / "overlay", overlay, parts)


def topics_in(folder):
    rows = pq.read_table(folder / "topics.parquet").to_pylist()
    return {r["topic"]: (r["subscribers"], r["links"], r["components"], tuple(r["sizes"])) for r in rows}


@pytest.mark.parametrize("topic_links_max", [2_000_000, 5, 0])
def test_each_topic_has_the_components_that_networkx_finds(spark, tmp_path, topic_links_max):
    """All topics in groups, large ones by the distributed pass, and all by it: the same tables."""
    interests, links = many_instances(1)
    paths = write_instance(tmp_path, interests, links)
    report = verify(spark, *paths, tmp_path / "out", topic_links_max=topic_links_max)
    expected = reference(interests, links)
    assert topics_in(tmp_path / "out") == expected
    facts = json.loads((tmp_path / "out" / "manifest.json").read_text())["facts"]
    assert facts == report.facts
    split = {topic for topic, (_, _, count, _) in expected.items() if count > 1}
    assert (facts["tco"], facts["split_topics"]) == (False, len(split))
    assert {one["topic"] for one in facts["split"]} <= split
    assert facts["large_topics"] == sum(links > topic_links_max for _, links, _, _ in expected.values())
    assert facts["components_missing"] == sum(count - 1 for _, _, count, _ in expected.values())
    wanted = [interests[u] & interests[v] for u, v in links]
    assert (facts["links"], facts["idle_links"]) == (len(links), wanted.count(set()))


def test_degrees_count_every_node_also_those_without_links(spark, tmp_path):
    interests = {"a": {"x"}, "b": {"x"}, "c": {"x"}, "d": {"y"}}
    paths = write_instance(tmp_path, interests, [("a", "b"), ("c", "b")])
    report = verify(spark, *paths, tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "degrees.parquet").to_pydict()
    assert table == {"degree": [0, 1, 2], "nodes": [1, 2, 1]}
    assert report.facts["degree"] == {"max": 2, "mean": 1.0}
    assert report.facts["tco"] is True
    assert report.facts["split"] == []


@pytest.mark.parametrize("counts", [(1, 7), pytest.param((1, 2, 7, 64), marks=pytest.mark.slow)])
def test_the_tables_are_the_same_on_any_number_of_partitions(spark, tmp_path, partitions, counts):
    """With large topics by the distributed pass on 1 and 7; on 64 its rounds would take a minute."""
    chance = random.Random(2)
    every = [random_instance(chance, f"i{n}") for n in range(4)]
    interests = {node: topics for one, _ in every for node, topics in one.items()}
    links = [link for _, more in every for link in more]
    tables = []
    for count in counts:
        folder = tmp_path / str(count)
        random.Random(count).shuffle(links)
        paths = write_instance(folder, interests, links, min(count, 7))
        with partitions(count):
            verify(spark, *paths, folder / "out", topic_links_max=6 if count in (1, 7) else 1000)
        names = ("topics.parquet", "degrees.parquet")
        tables.append([pq.read_table(folder / "out" / name).to_pylist() for name in names])
    assert tables[0][0]
    assert all(table == tables[0] for table in tables)


@pytest.mark.parametrize(
    ("subscriptions", "links", "message"),
    [
        ("a x,b x", "a z,b z", r'overlay.tsv: 1 nodes at the ends of links have no interests: "z"; give the interests'),
        ("a x,b x", "a b,a a", r'overlay.tsv: 1 nodes linked to themselves: "a" - "a"; remove the self-loops'),
        ("a x,b x", "a b,b a", r'overlay.tsv: 1 links repeated: "a" - "b"; give each link once, in one direction'),
    ],
)
def test_tables_that_are_no_overlay_over_their_interests_are_refused(
    spark, write, tmp_path, subscriptions, links, message
):
    def table(head, rows):
        return "\n".join([head, *rows.split(",")]).replace(" ", "\t") + "\n"

    interests = write("interests.tsv", table("node topic", subscriptions))
    overlay = write("overlay.tsv", table("u v", links))
    with pytest.raises(InputError, match=message):
        verify(spark, interests, overlay, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_overlay_without_its_columns_or_with_half_a_link_is_refused(spark, write, tmp_path):
    interests = write("interests.tsv", "node\ttopic\na\tx\n")
    wrong = write_parts(tmp_path / "wrong", pa.table({"u": ["a"], "w": ["b"]}), 1)
    with pytest.raises(InputError, match='there is no column "v"; an overlay has columns u, v'):
        verify(spark, interests, wrong, tmp_path / "out")
    half = write_parts(tmp_path / "half", pa.table({"u": ["a", "b"], "v": [None, "a"]}), 1)
    with pytest.raises(InputError, match="1 links without a node at one end"):
        verify(spark, interests, half, tmp_path / "out")


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 9), st.integers(0, 9)), max_size=40))
@settings(max_examples=80, deadline=None)
def test_one_group_spans_each_of_its_topics_as_networkx_does(rows):
    links = [(topic, str(u), str(v)) for topic, u, v in rows if u != v]
    table = pa.Table.from_pylist(
        [{"topic": topic, "u": u, "v": v} for topic, u, v in links],
        pa.schema({"topic": pa.string(), "u": pa.string(), "v": pa.string()}),
    )
    found = {row["topic"]: (row["united"], row["sizes"]) for row in span(table).to_pylist()}
    for topic in {topic for topic, _, _ in links}:
        graph = networkx.Graph([(u, v) for one, u, v in links if one == topic])
        sizes = sorted((len(part) for part in networkx.connected_components(graph)), reverse=True)
        assert found[topic] == (len(graph) - len(sizes), sizes[:SIZES_SHOWN])
    assert len(found) == len({topic for topic, _, _ in links})


def test_a_large_and_a_small_star_lead_a_path_of_four_to_its_smallest_node(spark):
    path_ = [("t", "b", "a"), ("t", "c", "b"), ("t", "d", "c")]
    edges = spark.createDataFrame(path_, components.STARS)
    large = components.large_star(edges)
    # b links c to a; c links d to b; a and d have themselves and what is smaller.
    assert rows_of(large) == {("t", "b", "a"), ("t", "c", "a"), ("t", "d", "b")}
    small = components.small_star(large)
    assert rows_of(small) == {("t", "b", "a"), ("t", "c", "a"), ("t", "d", "b")}
    assert rows_of(components.not_yet_stars(small)) == {("t", "d")}
    again = components.small_star(components.large_star(small))
    assert rows_of(again) == {("t", "b", "a"), ("t", "c", "a"), ("t", "d", "a")}
    assert rows_of(components.not_yet_stars(again)) == set()


def test_a_node_with_two_roots_is_not_yet_in_a_star(spark):
    edges = spark.createDataFrame([("t", "c", "a"), ("t", "c", "b"), ("s", "c", "b")], components.STARS)
    assert rows_of(components.not_yet_stars(edges)) == {("t", "c")}
    assert rows_of(components.small_star(edges)) == {("t", "c", "a"), ("t", "b", "a"), ("s", "c", "b")}


def rows_of(table):
    return {tuple(row) for row in table.collect()}
