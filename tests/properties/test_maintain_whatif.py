"""What-if answers are what would happen, by definition and by replay."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lazy import nx
from reference import shadows as slow
from strategies import interests, seeds
from trellis.model.churn import ChurnTrace
from trellis.plan.maintain import Maintenance
from trellis.plan.maintain_config import MaintainConfig
from trellis.plan.whatif import Degrees, what_if_leave, what_if_worst

MANY = settings(max_examples=100, deadline=None)


def extra_components(graph: nx.Graph, interest: slow.Topics, gone: set[str]) -> dict[str, int]:
    """Of each topic that would split: its components, once `gone` has left."""
    return slow.split_topics(graph.subgraph(set(graph) - gone), interest)


@MANY
@given(interests(), seeds, st.data())
def test_an_answer_for_one_node_is_what_maintain_would_do_first(over, seed, data):
    overlay, node = slow.any_tco(over, seed), data.draw(st.sampled_from(list(over.nodes)))
    config = MaintainConfig(algorithm=data.draw(st.sampled_from(["shadows", "naive"])), seed=seed)
    answer = what_if_leave(over, overlay, [node], config)
    run = Maintenance(over, ChurnTrace.from_rows([(0, node, "leave", None)]), overlay, config)
    (round_,) = run.rounds()
    before, after = overlay.to_networkx(), run.overlay().to_networkx()
    assert {frozenset(link) for link in answer.links_new} == edges(after) - edges(before)
    assert {frozenset(link) for link in answer.links_lost} == edges(before) - edges(after)
    assert (answer.shadow_set, answer.after.maximum) == (round_.shadow_set, round_.degree_max)
    assert answer.after.mean == pytest.approx(round_.degree_mean)
    degree = dict(before.degree)
    assert answer.before == Degrees(max(degree.values()), pytest.approx(sum(degree.values()) / len(degree)))
    changes = {name: (degree[name], after.degree[name]) for name in after if degree[name] != after.degree[name]}
    assert {name: (was, will_be) for name, was, will_be in answer.degree_changes} == changes


@MANY
@given(interests(), seeds, st.data())
def test_a_group_that_leaves_at_once_is_mended_as_one_event(over, seed, data):
    """Also where the leavers are neighbours, and one could be thought to hold together what another tears apart."""
    overlay = slow.any_tco(over, seed)
    gone = data.draw(st.sets(st.sampled_from(list(over.nodes)), min_size=1))
    config = MaintainConfig(coverage_factor=data.draw(st.integers(0, 2)), seed=seed)
    answer = what_if_leave(over, overlay, sorted(gone), config)
    graph, interest = overlay.to_networkx(), slow.named_topics(over)
    split = extra_components(graph, interest, gone)
    assert {found.topic: found.components for found in answer.splits} == split
    assert answer.extra_components == sum(split.values()) - len(split)
    graph.remove_nodes_from(gone)
    graph.add_edges_from(answer.links_new)
    assert slow.split_topics(graph, interest) == {}
    assert not answer.links_new or split


@MANY
@given(interests(), seeds, st.integers(1, 15))
def test_the_worst_nodes_are_those_whose_loss_splits_most(over, seed, count):
    overlay = slow.any_tco(over, seed)
    graph, interest = overlay.to_networkx(), slow.named_topics(over)
    losses = {}
    for name in over.nodes:
        split = extra_components(graph, interest, {name})
        losses[name] = (sum(split.values()) - len(split), len(split), graph.degree[name], len(interest[name]))
    ranked = sorted((name for name in over.nodes if losses[name][0]), key=lambda name: -losses[name][0])
    found = what_if_worst(over, overlay, count)
    assert [loss.node for loss in found] == ranked[:count]
    for loss in found:
        assert (loss.extra_components, loss.split_topics, loss.degree, loss.subscriptions) == losses[loss.node]


def edges(graph: nx.Graph) -> set[frozenset[str]]:
    return {frozenset(link) for link in graph.edges}
