"""Tables keep what they are given: any name, in every format, with the same bytes for the same table."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.model import ChurnTrace, Interests, Names, Overlay, read_churn, read_interests, read_overlay, write_table
from trellis.model.graphml import write_graphml

FORMATS = [".parquet", ".tsv", ".csv", ".tsv.gz", ".csv.gz"]
# Any text that UTF-8 can carry: tabs, quotes, line ends, blanks, emoji. Empty is no name.
any_name = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@st.composite
def named_interests(draw):
    rows = draw(st.lists(st.tuples(any_name, any_name), min_size=1, max_size=12, unique=True))
    return Interests.from_pairs(rows)


def there_and_back(table: pa.Table, suffix: str, read):
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, f"a{suffix}"), Path(folder, f"b{suffix}")
        write_table(table, first)
        result = read(first)
        write_table(result.to_table(), second)
        assert first.read_bytes() == second.read_bytes()
        return result


@pytest.mark.parametrize("suffix", FORMATS)
@given(interests=named_interests())
def test_interests_with_any_names_come_back_from_every_format(suffix, interests):
    again = there_and_back(interests.to_table(), suffix, read_interests)
    assert again.to_table().equals(interests.to_table())
    assert again.nodes == interests.nodes


@pytest.mark.parametrize("suffix", FORMATS)
@given(interests=named_interests(), data=st.data())
def test_overlays_with_any_names_come_back_from_every_format(suffix, interests, data):
    pairs = [(u, v) for u in range(len(interests.nodes)) for v in range(u)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    overlay = Overlay.from_ids(interests.nodes, [u for u, _ in chosen], [v for _, v in chosen])
    again = there_and_back(overlay.to_table(), suffix, lambda path: read_overlay(path, interests.nodes))
    assert again.to_table().equals(overlay.to_table())


@pytest.mark.parametrize("suffix", FORMATS)
@given(
    names=st.lists(any_name, min_size=1, max_size=5, unique=True),
    times=st.lists(st.floats(-1e12, 1e12), max_size=8),
)
def test_churn_traces_come_back_from_every_format(suffix, names, times):
    kinds = ["join", "leave", "crash", "subscribe", "unsubscribe"]
    rows = [
        (time, names[place % len(names)], kinds[place % 5], names[0] if place % 5 > 2 else None)
        for place, time in enumerate(sorted(times))
    ]
    trace = ChurnTrace.from_rows(rows)
    again = there_and_back(trace.to_table(), suffix, read_churn)
    assert again.to_table().equals(trace.to_table())


@given(interests=named_interests(), data=st.data())
def test_ids_do_not_depend_on_the_order_of_the_rows(interests, data):
    rows = list(zip(*interests.to_table().to_pydict().values(), strict=True))
    shuffled = Interests.from_pairs(data.draw(st.permutations(rows)))
    assert shuffled.nodes == interests.nodes
    assert np.array_equal(shuffled.node_topics, interests.node_topics)


@given(names=st.lists(any_name, unique=True))
def test_ids_are_in_shortlex_order(names):
    ordered, ids = Names.in_order(names)
    assert list(ordered) == sorted(names, key=lambda name: (len(name.encode()), name.encode()))
    assert [ordered[place] for place in ids] == names
    assert list(ordered.ids_of(names)) == list(ids)


@given(interests=named_interests())
def test_both_directions_of_the_interests_agree(interests):
    forward = {(node, topic) for node in range(len(interests.nodes)) for topic in interests.topics_of(node)}
    backward = {(node, topic) for topic in range(len(interests.topics)) for node in interests.nodes_of(topic)}
    assert forward == backward
    assert list(interests.popularity) == [len(interests.nodes_of(topic)) for topic in range(len(interests.topics))]


@given(
    names=st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cn"]), min_size=1), unique=True, min_size=2
    )
)
def test_graphml_says_the_same_graph_as_networkx(names):
    import networkx

    nodes, _ = Names.in_order(names)
    overlay = Overlay.from_ids(nodes, range(1, len(nodes)), [0] * (len(nodes) - 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "overlay.graphml")
        write_graphml(overlay, path)
        read = networkx.read_graphml(path)
    assert set(read.nodes) == set(nodes)
    assert {frozenset(edge) for edge in read.edges} == {frozenset(edge) for edge in overlay.to_networkx().edges}
