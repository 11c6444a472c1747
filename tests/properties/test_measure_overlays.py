"""Connectivity, diameters and degrees of overlays agree with networkx on drawn instances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lazy import nx
from reference import measures as reference
from strategies import interests, overlays, seeds
from trellis.measure import diameters as diameters_module
from trellis.measure import induced as induced_module
from trellis.measure.connectivity import connectivity
from trellis.measure.diameters import topic_diameters
from trellis.measure.distributions import degrees
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay

MANY = settings(max_examples=500, deadline=None)


@st.composite
def instances(draw: st.DrawFn) -> tuple[Interests, Overlay]:
    """Small interests and any overlay over them."""
    over = draw(interests())
    return over, draw(overlays(over))


@st.composite
def larger_instances(draw: st.DrawFn) -> tuple[Interests, Overlay]:
    """Up to 200 nodes, so that a topic needs several words of searches; some nodes and topics may stay idle.

    A random tree on each topic, or on most, makes many topics connected, some by long paths.
    """
    nodes, topics = draw(st.integers(1, 200)), draw(st.integers(1, 5))
    wanting, extra = draw(st.floats(0.05, 1.0)), draw(st.integers(0, 200))
    tree_share, reach = draw(st.sampled_from([0.0, 0.8, 1.0])), draw(st.sampled_from([1, 3, 1000]))
    rng = np.random.default_rng(draw(seeds))
    node_ids, topic_ids = np.nonzero(rng.random((nodes, topics)) < wanting)
    names = Names(f"n{node:03d}" for node in range(nodes))
    over = Interests.from_ids(names, Names(f"t{topic}" for topic in range(topics)), node_ids, topic_ids)
    links = {tuple(sorted(pair)) for pair in rng.integers(0, nodes, (extra, 2)).tolist() if pair[0] != pair[1]}
    for topic in range(topics):
        members = rng.permutation(over.nodes_of(topic)).tolist()
        if rng.random() < tree_share:
            links |= {
                tuple(sorted((members[i], members[rng.integers(max(0, i - reach), i)]))) for i in range(1, len(members))
            }
    return over, Overlay.from_ids(names, [u for u, _ in links], [v for _, v in links])


def agree_on_connectivity(over: Interests, overlay: Overlay) -> None:
    found, graph, interest = connectivity(over, overlay), overlay.to_networkx(), reference.wanted(over)
    assert found.is_tco == reference.is_tco(graph, interest)
    missing = 0
    for topic, name in enumerate(over.topics):
        expected = reference.components(graph, interest, name)
        assert found.components[topic] == len(expected)
        assert (topic in found.split) == (len(expected) > 1)
        missing += max(len(expected) - 1, 0)
        begin, end = over.topic_offsets[topic], over.topic_offsets[topic + 1]
        members = np.array(over.nodes.take(over.topic_nodes[begin:end]).to_pylist(), object)
        label = found.component[begin:end]
        assert {frozenset(members[label == first]) for first in set(label.tolist())} == expected
        assert found.links[topic] == reference.induced(graph, interest, name).number_of_edges()
    assert found.missing == missing
    assert found.idle_links == sum(not interest[u] & interest[v] for u, v in graph.edges)


def agree_on_diameters(over: Interests, overlay: Overlay) -> None:
    found, graph, interest = topic_diameters(over, overlay), overlay.to_networkx(), reference.wanted(over)
    expected = [reference.diameter_and_radius(graph, interest, name) for name in over.topics]
    assert list(zip(found.diameter.tolist(), found.radius.tolist(), strict=True)) == expected
    measured = [pair for pair in expected if pair[0] >= 0]
    assert found.maximum == max((diameter for diameter, _ in measured), default=None)
    assert found.radius_maximum == max((radius for _, radius in measured), default=None)
    if measured:
        assert found.mean == pytest.approx(np.mean([diameter for diameter, _ in measured]))
        assert found.radius_mean == pytest.approx(np.mean([radius for _, radius in measured]))
    else:
        assert found.mean is None


@MANY
@given(instances())
def test_components_and_split_topics_are_those_of_networkx(drawn):
    agree_on_connectivity(*drawn)


@settings(max_examples=100, deadline=None)
@given(larger_instances())
def test_components_of_larger_topics_are_those_of_networkx(drawn):
    agree_on_connectivity(*drawn)


@MANY
@given(instances())
def test_diameters_and_radii_are_those_of_networkx(drawn):
    agree_on_diameters(*drawn)


@settings(max_examples=100, deadline=None)
@given(larger_instances())
def test_diameters_and_radii_of_larger_topics_are_those_of_networkx(drawn):
    agree_on_diameters(*drawn)


@MANY
@given(instances())
def test_degrees_are_those_of_networkx(drawn):
    _, overlay = drawn
    expected = sorted(degree for _, degree in overlay.to_networkx().degree)
    found = degrees(overlay)
    assert np.repeat(found.values, found.counts).tolist() == expected
    assert (found.maximum, found.minimum) == (expected[-1], expected[0])
    assert found.mean == pytest.approx(2 * len(overlay) / len(overlay.nodes))


@settings(max_examples=100, deadline=None)
@given(instances(), st.data())
def test_a_link_removes_as_many_components_as_its_contribution(drawn, data):
    over, overlay = drawn
    graph = overlay.to_networkx()
    absent = sorted(nx.non_edges(graph))
    assume(absent)
    u, v = data.draw(st.sampled_from(absent))
    longer = Overlay.from_pairs(overlay.nodes, [*graph.edges, (u, v)])
    gain = reference.contribution(graph, reference.wanted(over), u, v)
    assert connectivity(over, overlay).missing - connectivity(over, longer).missing == gain


@settings(max_examples=50, deadline=None)
@given(larger_instances())
def test_neither_blocks_of_links_nor_parts_of_the_search_change_a_figure(drawn):
    over, overlay = drawn
    whole, far = connectivity(over, overlay), topic_diameters(over, overlay)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(induced_module, "BLOCK", 7)
        patch.setattr(diameters_module, "PART_COST", 50)
        pieces, near = connectivity(over, overlay), topic_diameters(over, overlay, threads=3)
    assert np.array_equal(whole.component, pieces.component)
    assert np.array_equal(whole.links, pieces.links)
    assert whole.idle_links == pieces.idle_links
    assert np.array_equal(far.diameter, near.diameter)
    assert np.array_equal(far.radius, near.radius)
