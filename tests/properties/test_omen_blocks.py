"""Blocks of a topic: what `blocks.py` finds is what removing every node in turn finds."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.protocols.omen.blocks import Blocks, Wanted, blocks_of, in_one_block, joining_edges

NODES = [f"n{number}" for number in range(9)]
some = settings(max_examples=200, deadline=None)


@st.composite
def graphs(draw, nodes_min=1):
    nodes = NODES[: draw(st.integers(nodes_min, len(NODES)))]
    links = draw(st.sets(st.sampled_from(list(combinations(nodes, 2)) or [("n0", "n0")])))
    return graph_of(nodes, [link for link in links if link[0] != link[1]])


@st.composite
def connected(draw, nodes_min=2):
    """A graph of one part: each node is linked to one before it, and there are further links."""
    graph = draw(graphs(nodes_min))
    nodes = list(graph)
    for place in range(1, len(nodes)):
        other = nodes[draw(st.integers(0, place - 1))]
        graph[nodes[place]].add(other)
        graph[other].add(nodes[place])
    return graph


def graph_of(nodes, links):
    graph = {node: set() for node in nodes}
    for one, other in links:
        graph[one].add(other)
        graph[other].add(one)
    return graph


# The slow readable reference: remove every node in turn.


def reaches(graph, start, without=()):
    reached, todo = {start}, [start]
    while todo:
        new = graph[todo.pop()] - reached - {*without}
        reached |= new
        todo += new
    return reached


def survives(graph, one, other):
    """Whether the two are connected, and stay so without any single other node."""
    lost = [(), *[(node,) for node in graph if node not in (one, other)]]
    return all(other in reaches(graph, one, without) for without in lost)


def is_linked_or_survives(graph, one, other):
    return other in graph[one] or survives(graph, one, other)


def cutting(graph, required):
    """The nodes without which required nodes that are left are not connected, though they are with it."""
    found = []
    for node in graph:
        left = sorted({*required} - {node})
        if left and not {*left} <= reaches(graph, left[0], (node,)):
            found.append(node)
    return sorted(found)


@some
@given(graphs())
def test_two_nodes_share_a_block_exactly_if_they_are_linked_or_survive_the_loss_of_any_other(graph):
    found = blocks_of(graph)
    for one, other in combinations(graph, 2):
        shared = sum({one, other} <= block for block in found)
        assert shared == is_linked_or_survives(graph, one, other)
        assert in_one_block(graph, (one, other)) == bool(shared)
    assert all(len(block & other) <= 1 for block, other in combinations(found, 2))


@some
@given(connected(), st.data())
def test_the_nodes_between_blocks_are_those_whose_loss_disconnects_required_nodes(graph, data):
    required = data.draw(st.sets(st.sampled_from(list(graph)), min_size=1))
    blocks = Blocks(graph, required)
    assert blocks.cuts() == cutting(graph, required)
    assert (len(blocks.between) <= 1) == (len(required) == 1 or in_one_block(graph, required))


@some
@given(st.lists(connected(), min_size=1, max_size=3), st.data())
def test_new_links_bring_the_required_nodes_of_every_topic_into_one_block(topics, data):
    """Links that exist on one topic exist on each topic that both ends have."""
    links = {frozenset((one, other)) for graph in topics for one in graph for other in graph[one]}
    graphs = [graph_of(graph, [tuple(sorted(link)) for link in links if link <= graph.keys()]) for graph in topics]
    required = [data.draw(st.sets(st.sampled_from(list(graph)), min_size=1)) for graph in graphs]
    ends = [data.draw(st.sets(st.sampled_from(list(graph)))) for graph in graphs]
    wanted = {
        1 << index: Wanted({node: {*near} for node, near in graph.items()}, frozenset(need), frozenset(able))
        for index, (graph, need, able) in enumerate(zip(graphs, required, ends, strict=True))
    }
    degrees = {node: len({other for graph in graphs for other in graph.get(node, ())}) for node in NODES}
    keys = {node: number for number, node in enumerate(NODES)}
    linked = {tuple(sorted(link)) for link in links}
    chosen = joining_edges(wanted, degrees, keys, linked=linked)
    assert not {*chosen} & linked
    assert len({*chosen}) == len(chosen)
    for graph, need in zip(graphs, required, strict=True):
        after = graph_of(graph, [*((one, other) for one in graph for other in graph[one])])
        for one, other in chosen:
            if one in after and other in after:
                after[one].add(other)
                after[other].add(one)
        assert all(is_linked_or_survives(after, one, other) for one, other in combinations(sorted(need), 2))
        if all(in_one_block(each, want) or len(want) == 1 for each, want in zip(graphs, required, strict=True)):
            assert not chosen


@some
@given(connected(3), st.data())
def test_a_topic_that_was_one_block_is_one_block_again_after_crashes(graph, data):
    """The argument of `blocks.py`: neighbors of crashed nodes in one block are enough, by what they alone know."""
    whole = Wanted(graph, frozenset(graph), frozenset())
    joining_edges({1: whole}, dict.fromkeys(NODES, 0), {node: number for number, node in enumerate(NODES)})
    gone = data.draw(st.sets(st.sampled_from(list(graph)), min_size=1, max_size=len(graph) - 1))
    required = frozenset(node for node in graph if node not in gone and graph[node] & gone)
    left = {node: near - gone for node, near in graph.items() if node not in gone}
    # What a coordinator knows: links of required nodes, and some others that it has asked.
    told = required | data.draw(st.sets(st.sampled_from(list(left))))
    known = {node: {peer for peer in near if peer in told} for node, near in left.items() if node in told}
    ordered = sorted(required)
    for one, other in pairwise(ordered):  # Alg. 1 has connected them.
        if other not in reaches(known, one):
            known[one].add(other)
            known[other].add(one)
            left[one].add(other)
            left[other].add(one)
    keys = {node: number for number, node in enumerate(NODES)}
    for one, other in joining_edges({1: Wanted(known, required, frozenset())}, dict.fromkeys(NODES, 0), keys):
        left[one].add(other)
        left[other].add(one)
    assert all(survives(left, one, other) for one, other in combinations(left, 2)) or len(left) == 2
