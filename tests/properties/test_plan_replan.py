"""Changes of a present overlay toward a plan: no prefix of them splits a topic, and few links are left."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strategies import interests, overlays, seeds
from trellis.errors import InputError
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.plan import construct
from trellis.plan.replan import WITHIN, replan

some = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def parts(over: Interests, graph: nx.Graph) -> dict[str, int]:
    """The slow reference: for each topic, in how many parts its subscribers are."""
    found = {}
    for topic, name in enumerate(over.topics):
        members = [over.nodes[node] for node in over.nodes_of(topic).tolist()]
        found[name] = nx.number_connected_components(graph.subgraph(members))
    return found


def graph_of(overlay: Overlay) -> nx.Graph:
    return overlay.to_networkx()


def survives(over: Interests, graph: nx.Graph) -> bool:
    """Whether no loss of a single node splits a topic."""
    for node in list(graph):
        left = graph.copy()
        left.remove_node(node)
        for topic in range(len(over.topics)):
            members = [over.nodes[one] for one in over.nodes_of(topic).tolist() if over.nodes[one] != node]
            if members and nx.number_connected_components(left.subgraph(members)) > 1:
                return False
    return True


def follow(over: Interests, found) -> nx.Graph:
    """Apply each change to a graph, and look at every topic after each of them."""
    graph = graph_of(found.present)
    at_start = parts(over, graph)
    kinds = []
    for change in found.changes():
        kinds.append(change.do)
        assert graph.has_edge(change.u, change.v) == (change.do == "remove"), "a change must change something"
        (graph.add_edge if change.do == "add" else graph.remove_edge)(change.u, change.v)
        now = parts(over, graph)
        assert all(now[topic] <= at_start[topic] for topic in now), f"{change} splits a topic"
        if change.do == "remove":
            assert set(now.values()) <= {1}
    assert kinds == sorted(kinds)  # additions come first
    assert {frozenset(one) for one in graph.edges} == {frozenset(one) for one in graph_of(found.target).edges}
    return graph


@some
@given(st.data(), seeds, st.sampled_from([1.0, WITHIN, 1.5]))
def test_no_prefix_of_the_changes_splits_a_topic(data, seed, within):
    over = data.draw(interests(nodes_max=10, topics_max=6))
    present = data.draw(overlays(over))
    found = replan(over, present, within=within, seed=seed)
    graph = follow(over, found)
    assert set(parts(over, graph).values()) <= {1}
    fresh = construct(over, "lowoda", seed=seed).overlay
    assert found.plan_links == len(fresh)
    assert graph.number_of_edges() <= within * len(fresh)


@some
@given(st.data(), seeds)
def test_no_loss_of_a_node_splits_a_topic_while_links_are_removed(data, seed):
    over = data.draw(interests(nodes_max=8, topics_max=4))
    found = replan(over, data.draw(overlays(over)), connectivity=2, seed=seed)
    follow(over, found)
    graph = graph_of(found.present)
    for change in found.changes():
        (graph.add_edge if change.do == "add" else graph.remove_edge)(change.u, change.v)
        assert change.do == "add" or survives(over, graph)
    assert survives(over, graph)


@some
@given(st.data(), seeds)
def test_a_target_that_is_given_is_reached_exactly(data, seed):
    over = data.draw(interests(nodes_max=10))
    target = construct(over, "random", seed=seed).overlay
    found = replan(over, data.draw(overlays(over)), target=target)
    follow(over, found)
    assert found.surcharge is None


@some
@given(st.data(), seeds)
def test_the_target_of_a_replan_needs_no_further_change(data, seed):
    over = data.draw(interests(nodes_max=10))
    once = replan(over, data.draw(overlays(over)), seed=seed)
    again = replan(over, once.target, target=once.target)
    assert len(again) == 0


def test_a_plan_is_left_as_it_is():
    over = Interests.from_pairs({f"n{node}": [f"t{node % 3}", "all"] for node in range(12)})
    fresh = construct(over, "lowoda").overlay
    assert len(replan(over, fresh)) == 0


def test_a_target_that_splits_a_topic_is_refused():
    over = Interests.from_pairs({"a": ["t"], "b": ["t"], "c": ["t"]})
    whole = Overlay.from_pairs(over.nodes, [("a", "b"), ("b", "c")])
    with pytest.raises(InputError, match="splits 1 topics: t: 2 components"):
        replan(over, whole, target=Overlay.from_pairs(over.nodes, [("a", "b")]))
    with pytest.raises(InputError, match="loss of a single node"):
        replan(over, whole, target=whole, connectivity=2)
    with pytest.raises(InputError, match="within"):
        replan(over, whole, within=0.9)
