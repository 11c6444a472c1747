"""Candidates that are drawn: they can connect every topic, they are the best of those met, and chance is fair."""

from __future__ import annotations

from itertools import combinations, pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference import lowoda as reference
from strategies import interests, overlays, seeds
from trellis import plan
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.plan import candidates
from trellis.plan.candidates import Sampling, sampled
from trellis.plan.construction import GREEDY_RULES

some = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SAMPLINGS = st.builds(Sampling, sample=st.integers(1, 4), keep=st.integers(1, 4))


def names_of(over: Interests) -> reference.Interest:
    return {node: set(over.topics.take(over.topics_of(index)).to_pylist()) for index, node in enumerate(over.nodes)}


def links_of(overlay: Overlay) -> list[tuple[str, str]]:
    return [(overlay.nodes[u], overlay.nodes[v]) for u, v in zip(overlay.u, overlay.v, strict=True)]


def drawn_for(over: Interests, sampling: Sampling, meetings: int, seed: int | str) -> set[tuple[int, int]]:
    """Candidate pairs of the instance as it is, without ranks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "MEETINGS", meetings)
        found = sampled(over.node_offsets, over.node_topics, len(over.topics), sampling, seed)
    rows = np.repeat(np.arange(len(over.nodes)), np.diff(found.row_start))
    pairs = list(zip(rows.tolist(), found.columns.tolist(), strict=True))
    assert pairs == sorted(set(pairs)), "each pair once, ascending"
    assert all(i < j for i, j in pairs)
    return set(pairs)


def skewed(nodes: int, topics: int, seed: int) -> Interests:
    chance = np.random.default_rng(seed)
    weights = 1 / np.arange(1, topics + 1)
    sizes = chance.integers(1, min(12, topics) + 1, nodes)
    return Interests.from_pairs(
        {
            node: chance.choice(topics, size, replace=False, p=weights / weights.sum()).tolist()
            for node, size in enumerate(sizes)
        }
    )


@some
@given(interests(nodes_max=12), SAMPLINGS, st.integers(1, 12), seeds)
def test_the_candidates_alone_connect_every_topic_even_without_any_one_node(over, sampling, meetings, seed):
    pairs = drawn_for(over, sampling, meetings, seed)
    names = list(over.nodes)
    assert not reference.split_topics(names_of(over), [(names[i], names[j]) for i, j in pairs])
    for topic in range(len(over.topics)):  # without any one of its nodes as well
        members = set(over.nodes_of(topic).tolist())
        graph = nx.Graph(pair for pair in pairs if members.issuperset(pair))
        assert len(members) < 3 or nx.is_biconnected(graph)
    assert len(pairs) <= sampling.pairs_max(len(names), over.subscriptions)


@some
@given(st.data(), st.sampled_from(GREEDY_RULES), SAMPLINGS, st.integers(1, 12), seeds)
def test_whatever_is_drawn_the_overlay_is_a_tco_and_keeps_what_was_there(data, algorithm, sampling, meetings, seed):
    over = data.draw(interests(nodes_max=12))
    start = data.draw(overlays(over))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "MEETINGS", meetings)
        built = plan.construct(over, algorithm, existing=start, sampling=sampling, seed=seed)
    assert not len(built.split_topics)
    assert not reference.split_topics(names_of(over), links_of(built.overlay))
    assert set(links_of(start)) <= set(links_of(built.overlay))


@some
@given(interests(nodes_max=12), st.sampled_from(GREEDY_RULES), seeds)
def test_where_nothing_is_left_out_the_edges_are_those_of_all_pairs(over, algorithm, seed):
    everything = Sampling(sample=12, keep=12)
    whole = plan.construct(over, algorithm, seed=seed)
    built = plan.construct(over, algorithm, sampling=everything, seed=seed)
    assert built.new_u.tolist() == whole.new_u.tolist()
    assert built.new_v.tolist() == whole.new_v.tolist()
    assert built.candidates is not None
    assert whole.candidates is None


def weight(over: Interests, node: int, other: int) -> int:
    """What two nodes share: each topic counts the more, the rarer it is."""
    both = set(over.topics_of(node).tolist()) & set(over.topics_of(other).tolist())
    shares = [len(over.nodes_of(topic)) / len(over.nodes) for topic in both]
    return sum(min(max(round(share**-0.5), 1), 64) for share in shares)


def table_of(over: Interests) -> np.ndarray:
    count = len(over.nodes)
    table = np.zeros((count, count), int)
    for i, j in combinations(range(count), 2):
        table[i, j] = table[j, i] = weight(over, i, j)
    return table


@pytest.mark.parametrize("topics", [4, 30, 300])
def test_a_node_that_meets_all_others_keeps_those_that_share_the_most(topics):
    over, keep = skewed(80, topics, seed=topics), 5
    table = table_of(over)
    rings = [[*over.nodes_of(topic).tolist(), over.nodes_of(topic)[0]] for topic in range(len(over.topics))]
    steps = {(min(pair), max(pair)) for ring in rings for pair in pairwise(ring)}
    pairs = drawn_for(over, Sampling(sample=1, keep=keep), 10**9, seed=1)
    for node in range(len(over.nodes)):
        least = np.sort(table[node])[-keep]
        for other in np.flatnonzero(table[node] > least).tolist():
            assert (min(node, other), max(node, other)) in pairs
    for i, j in pairs - steps:  # beyond the rings, no pair is there that neither end counts among its best
        assert min(np.count_nonzero(table[end] > table[i, j]) for end in (i, j)) < keep


def test_subscribers_beyond_the_stretch_are_weighed_right():
    # One meeting: the stretch holds next to nobody, so all candidates come from the sample of each topic.
    over, keep = skewed(80, 30, seed=1), 5
    table = table_of(over)
    alone = drawn_for(over, Sampling(sample=80, keep=keep), 1, seed=1)
    whole = drawn_for(over, Sampling(sample=1, keep=keep), 10**9, seed=1)

    def best(pairs: set[tuple[int, int]], node: int) -> list[int]:
        return sorted((int(table[i, j]) for i, j in pairs if node in (i, j)), reverse=True)[:keep]

    for node in range(len(over.nodes)):
        assert best(alone, node) == best(whole, node)


def test_ties_go_round_the_topics():
    # Node 0 shares one topic with each other node. Of 4 topics with 20 nodes each, none may fill the list alone.
    rows = {"0": list("abcd")} | {f"{topic}{nth}": [topic] for topic in "abcd" for nth in range(20)}
    over = Interests.from_pairs(rows)
    zero = over.nodes.ids_of(["0"])[0]
    for seed in range(5):
        pairs = drawn_for(over, Sampling(sample=20, keep=8), 10**9, seed)
        mine = {i + j - zero for i, j in pairs if zero in (i, j)}
        met = [int(over.topics_of(other)[0]) for other in mine]
        assert min(np.bincount(met, minlength=4)) >= 2, seed


def test_the_same_seed_draws_the_same_candidates_and_another_seed_others():
    over = skewed(300, 30, seed=1)
    first, again, other = (drawn_for(over, Sampling(4, 4), 50, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_no_node_is_drawn_more_than_its_share():
    # One topic, so that all nodes are alike: each is in the lists of 8 others on average.
    over = Interests.from_pairs({node: ["t"] for node in range(2000)})
    pairs = drawn_for(over, Sampling(sample=8, keep=8), 100, seed=1)
    ends = np.bincount(np.array(list(pairs)).ravel(), minlength=2000)
    assert ends.mean() == pytest.approx(18, abs=1)
    assert ends.max() < 50


def test_a_small_topic_gives_all_its_pairs():
    over = Interests.from_pairs(dict.fromkeys(range(9), "abc"))
    assert drawn_for(over, Sampling(50, 50), 10**9, seed=1) == set(combinations(range(9), 2))
