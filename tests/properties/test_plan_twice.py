"""Two-connected topics: what is planned survives any single loss, and the blocks are those of the definition."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from strategies import interests, overlays, seeds
from trellis import plan
from trellis.measure.connectivity import connectivity
from trellis.measure.cuts import find_cuts, pieces_without
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.plan.blocks import block_contribution, fill_blocks, link_blocks
from trellis.plan.candidates import Sampling
from trellis.plan.state import TOPIC

some = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def graph_of(over: Interests, overlay: Overlay, topic: int) -> nx.Graph:
    members = set(over.nodes_of(topic).tolist())
    graph = nx.Graph()
    graph.add_nodes_from(members)
    links = zip(overlay.u.tolist(), overlay.v.tolist(), strict=True)
    graph.add_edges_from(link for link in links if members.issuperset(link))
    return graph


def split_by(over: Interests, overlay: Overlay) -> dict[tuple[int, int], int]:
    """The slow reference: take each node out of each of its topics. Pieces by (topic, node), where they are several."""
    found = {}
    for topic in range(len(over.topics)):
        graph = graph_of(over, overlay, topic)
        for node in list(graph):
            part = graph.subgraph(nx.node_connected_component(graph, node)).copy()
            part.remove_node(node)
            if (pieces := nx.number_connected_components(part)) > 1:
                found[topic, node] = pieces
    return found


@some
@given(st.data(), st.sampled_from(plan.ALGORITHMS), seeds)
def test_no_loss_of_a_single_node_splits_a_topic(data, algorithm, seed):
    over = data.draw(interests(nodes_max=12))
    start = data.draw(overlays(over))
    once = plan.construct(over, algorithm, existing=start, seed=seed)
    twice = plan.construct(over, algorithm, existing=start, connectivity=2, seed=seed)
    assert connectivity(over, twice.overlay).is_tco
    assert not split_by(over, twice.overlay)
    links = set(zip(twice.overlay.u.tolist(), twice.overlay.v.tolist(), strict=True))
    assert links >= set(zip(once.overlay.u.tolist(), once.overlay.v.tolist(), strict=True))
    assert len(links) == len(start) + len(twice.new_u)
    assert np.all(twice.contributions > 0) or algorithm in ("ring", "star")


@some
@given(st.data())
def test_cuts_are_those_of_the_definition(data):
    over = data.draw(interests(nodes_max=9))
    overlay = data.draw(overlays(over))
    expected = split_by(over, overlay)
    pieces = pieces_without(over, overlay)
    topics = np.repeat(np.arange(len(over.topics)), np.diff(over.topic_offsets))
    found = zip(topics.tolist(), over.topic_nodes.tolist(), pieces.tolist(), strict=True)
    assert {(topic, node): count for topic, node, count in found if count > 1} == expected
    cuts = find_cuts(over, overlay, topics_max=100)
    assert cuts.topics == len(cuts.worst) == len({topic for topic, _ in expected})
    assert cuts.nodes == len({node for _, node in expected})
    for cut in cuts.worst:
        own = {over.nodes[node]: count for (topic, node), count in expected.items() if over.topics[topic] == cut.topic}
        assert (cut.nodes, cut.pieces) == (len(own), max(own.values()))
        assert own[cut.node] == cut.pieces


@some
@given(st.data(), seeds)
def test_an_edge_contributes_the_blocks_that_it_removes(data, seed):
    over = data.draw(interests(nodes_max=9))
    start = plan.construct(over, "random", existing=data.draw(overlays(over)), seed=seed).overlay
    count = len(over.nodes)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    assume(pairs)
    slots = np.zeros((over.subscriptions, 6), np.int32)
    slots[:, TOPIC] = over.node_topics
    room = 2 * over.subscriptions * max(len(start), 1)
    first, neighbors = np.zeros(over.subscriptions + 1, np.int64), np.zeros(room, np.int32)
    left = fill_blocks(over.node_offsets, slots, start.u, start.v, first, neighbors)
    assert left == too_many(over, start)
    for i, j in data.draw(st.lists(st.sampled_from(pairs), max_size=4)):
        links = {*zip(start.u.tolist(), start.v.tolist(), strict=True), (i, j)}
        more = Overlay.from_ids(over.nodes, *map(list, zip(*sorted(links), strict=True)))
        gain = block_contribution(over.node_offsets, slots, i, j)
        assert gain == too_many(over, start) - too_many(over, more)
        link_blocks(over.node_offsets, slots, i, j)
        start = more


def too_many(over: Interests, overlay: Overlay) -> int:
    """Blocks of all topics, less the one that each topic of two nodes or more needs."""
    blocks = [len(list(nx.biconnected_components(graph_of(over, overlay, topic)))) for topic in range(len(over.topics))]
    return sum(count - 1 for count in blocks if count)


def test_larger_topics_survive_any_loss_with_sampled_candidates_too():
    chance = np.random.default_rng(1)
    weights = 1 / np.arange(1, 31)
    rows = {
        node: chance.choice(30, chance.integers(1, 7), replace=False, p=weights / weights.sum()).tolist()
        for node in range(120)
    }
    over = Interests.from_pairs(rows)
    for sampling in (None, Sampling(2, 2)):
        built = plan.construct(over, sampling=sampling, connectivity=2)
        assert not split_by(over, built.overlay)
    assert split_by(over, plan.construct(over).overlay), "a plan for connectivity 1 would not do"
    with pytest.raises(Exception, match="connectivity is 3; give 1 or 2"):
        plan.construct(over, connectivity=3)
