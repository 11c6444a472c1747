"""Alg. 1 and the backup routines in plain Python against slow ones that recompute everything at every step."""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from operator import or_
from random import Random
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from lazy import nx
from reference.shadows import Chance, build_backups, rank
from trellis import ids
from trellis.protocols.omen.config import Routine
from trellis.protocols.omen.cover import Candidate, choose_backups
from trellis.protocols.omen.shadow import low_edges


@st.composite
def shadows(draw):
    """Parts of some topics over a few nodes, their interests, degrees and links."""
    nodes = [f"n{number}" for number in range(draw(st.integers(2, 8)))]
    topics = draw(st.integers(1, 5))
    interest = {node: draw(st.integers(0, (1 << topics) - 1)) for node in nodes}
    degrees = {node: draw(st.integers(0, 4)) for node in nodes}
    keys = {node: ids.key("ties", node) for node in nodes}
    parts = {}
    for place in range(topics):
        wanting = [node for node in nodes if interest[node] >> place & 1]
        labels = {node: draw(st.integers(0, 3)) for node in wanting}
        groups = [[node for node in wanting if labels[node] == label] for label in set(labels.values())]
        if len(groups) > 1:
            parts[1 << place] = groups
    ranked = sorted(nodes, key=lambda node: (keys[node], node))
    linked = draw(st.sets(st.sampled_from(list(combinations(ranked, 2))), max_size=4))
    return parts, degrees, keys, linked, draw(st.sampled_from([1.0, 1.5, 3.0, 100.0]))


def slow_low_edges(parts, degrees, keys, linked, rho):
    """findLowEdge as it is written: contributions anew at every step."""
    graphs = {}
    for bit, groups in parts.items():
        graphs[bit] = nx.Graph()
        for group in groups:
            nx.add_path(graphs[bit], group)
            graphs[bit].add_nodes_from(group)
    nodes = sorted({node for groups in parts.values() for g in groups for node in g}, key=lambda n: (keys[n], n))
    degree, chosen = dict(degrees), []
    while True:
        gains = {}
        for u, v in combinations(nodes, 2):
            if (u, v) in linked or (u, v) in chosen:
                continue
            gain = sum(1 for graph in graphs.values() if u in graph and v in graph and not nx.has_path(graph, u, v))
            if gain:
                gains[u, v] = gain
        if not gains:
            return chosen
        largest = max(degree[node] for node in nodes)
        low = {pair: gain for pair, gain in gains.items() if max(degree[pair[0]], degree[pair[1]]) < largest}
        first = next(pair for pair in gains if gains[pair] == max(gains.values()))
        if low and max(gains.values()) <= rho * max(low.values()):
            first = next(pair for pair in low if low[pair] == max(low.values()))
        chosen.append(first)
        for end in first:
            degree[end] += 1
        for graph in graphs.values():
            if first[0] in graph and first[1] in graph:
                graph.add_edge(*first)


@given(shadows())
def test_the_edges_are_those_of_the_slow_rule_in_the_same_order(shadow):
    parts, degrees, keys, linked, rho = shadow
    found = low_edges(parts, degrees, keys, linked=linked, rho=rho)
    assert found == slow_low_edges(parts, degrees, keys, linked, rho)


@given(shadows())
def test_all_links_of_a_join_end_at_the_joiner(shadow):
    parts, degrees, keys, _, rho = shadow
    centre = next(iter(degrees))
    for u, v in low_edges(parts, degrees, keys, rho=rho, centre=centre):
        assert centre in (u, v)


ROUTINES = get_args(Routine)


@st.composite
def covers(draw):
    topics = draw(st.integers(0, 63))
    count = draw(st.integers(0, 12))
    return (
        topics,
        [Candidate(f"n{one}", draw(st.integers(0, 127)), draw(st.integers(0, 9))) for one in range(count)],
        draw(st.integers(0, 3)),
        draw(st.sampled_from(ROUTINES)),
    )


@given(covers(), st.randoms(use_true_random=False))
def test_backups_cover_each_topic_as_often_as_asked_or_as_there_are_candidates(cover, random):
    topics, candidates, coverage, routine = cover
    chosen = choose_backups(routine, topics, candidates, coverage, random)
    assert len(set(chosen)) == len(chosen)
    interest = {candidate.node: candidate.interest for candidate in candidates}
    assert all(interest[node] & topics for node in chosen)  # individual commitment
    for place in range(6):
        if topics >> place & 1:
            able = sum(1 for candidate in candidates if candidate.interest >> place & 1)
            assert sum(1 for node in chosen if interest[node] >> place & 1) >= min(coverage, able)


def slow_cover(topics, candidates, coverage, random):
    """SH Alg. 12 as it is written: topics that nobody can cover any more are dropped one by one."""
    wanting = {place: [one for one in candidates if one.interest >> place & 1] for place in range(topics.bit_length())}
    wanted = [place for place, rivals in wanting.items() if topics >> place & 1 and rivals]
    chosen = []
    for _ in range(coverage):
        weight = {one.node: 0 if one.node in chosen else one.weight for one in candidates}
        rest = wanted
        while rest:
            place = rest[random.randrange(len(rest))]
            positive = [one for one in wanting[place] if weight[one.node] > 0]
            free = [one for one in wanting[place] if one.node not in chosen]
            if positive:
                taken = min(positive, key=lambda one: weight[one.node])
                spared = weight[taken.node]
                for one in positive:
                    weight[one.node] -= spared
            elif free:
                taken = free[random.randrange(len(free))]
            else:
                rest = [other for other in rest if other != place]
                continue
            chosen.append(taken.node)
            rest = [other for other in rest if not taken.interest >> other & 1]
    return chosen


@given(st.lists(st.tuples(st.integers(1, 31), st.integers(0, 3)), max_size=5), st.integers(1, 4), st.integers(0, 99))
def test_topics_that_nobody_can_cover_again_are_dropped_together_with_the_same_draws(drawn, coverage, seed):
    candidates = [Candidate(f"n{place}", interest, weight) for place, (interest, weight) in enumerate(drawn)]
    one, other = Random(seed), Random(seed)
    assert choose_backups("primal-dual", 31, candidates, coverage, one) == slow_cover(31, candidates, coverage, other)
    assert one.random() == other.random()


class Drawn:
    """The generator of the reference, as the routines of a node ask for it."""

    def __init__(self, state):
        self.randrange = Chance(state).below


@given(covers(), st.integers(1, 2**64 - 1))
def test_backups_are_those_of_the_papers_rules_word_for_word(cover, state):
    """The same reference as for the kernels of `trellis.plan`: SH Alg. 12, with and without A-SHD-5, and OM 4.2."""
    topics, candidates, coverage, routine = cover
    candidates = sorted(candidates, key=lambda one: rank("ties", one.node))
    able = topics & reduce(or_, (one.interest for one in candidates), 0)
    interest = {one.node: [str(place) for place in range(7) if one.interest >> place & 1] for one in candidates}
    interest["v"] = [str(place) for place in range(7) if able >> place & 1]
    weight = {one.node: one.weight for one in candidates} | {"v": 0}
    expected = build_backups(routine, "v", coverage, interest, weight, Chance(state), "ties")
    found = choose_backups(routine, topics, candidates, coverage, Drawn(state))
    for some in expected:  # cover by cover
        assert set(found[: len(some)]) == some
        found = found[len(some) :]
    assert not found
