"""The kernels of mending take the links of the slow twin, one by one, ties included."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lazy import nx
from reference import shadows as slow
from strategies import interests, seeds
from trellis.model.interests import Interests
from trellis.plan.construction import construct
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.mend import NewLinks, Required, connect_newcomer, reconnect, required_after

rhos = st.floats(1, 4) | st.just(float("inf"))


def check_loss(over: Interests, seed: int, gone: list[str], candidates: set[str], rho: float) -> int:
    """Lets `gone` leave at once. `candidates` gets the nodes that must be in it."""
    current = CurrentOverlay.of(over, slow.any_tco(over, seed), seed)
    graph, interest = current.overlay().to_networkx(), slow.named_topics(over)
    candidates = (candidates | {other for node in gone for other in graph[node]}) - set(gone)
    ranks = [current.rank_of[name] for name in gone]
    apart = required_after(current, ranks)
    for node in ranks:
        current.dismiss(node)
    shadow = np.array(sorted(current.rank_of[name] for name in candidates), np.int32)
    added = named(current, reconnect(current, apart, shadow, rho=rho))
    assert added == slow.mend_leave(graph, interest, gone, candidates, rho, seed)
    return len(added)


def named(current: CurrentOverlay, links: NewLinks) -> list[tuple[str, str]]:
    us, ws = (current.names.take(ends).to_pylist() for ends in links)
    return list(zip(us, ws, strict=True))


@settings(max_examples=200, deadline=None)
@given(interests(nodes_max=16), seeds, rhos, st.data())
def test_after_a_loss_of_many_the_links_are_those_of_the_twin_in_the_same_order(over, seed, rho, data):
    names = st.sampled_from(list(over.nodes))
    gone = data.draw(st.lists(names, unique=True, min_size=1, max_size=len(over.nodes) // 2 + 1))
    everybody = data.draw(st.booleans())
    check_loss(over, seed, gone, set(over.nodes) if everybody else data.draw(st.sets(names)), rho)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), rhos)
def test_it_is_so_with_more_split_topics_than_a_machine_word_has_bits(seed, rho):
    chance = random.Random(seed)
    topics = chance.choice([64, 65, 130])
    over = Interests.from_pairs({node: chance.sample(range(topics), chance.randint(3, topics)) for node in range(12)})
    gone = [str(node) for node in range(chance.randint(1, 4))]
    check_loss(over, seed, gone, set(over.nodes), rho)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), rhos)
def test_it_is_so_where_most_of_a_large_piece_is_never_walked(seed, rho):
    chance = random.Random(seed)
    over = Interests.from_pairs({node: chance.sample(range(4), chance.randint(1, 2)) for node in range(60)})
    gone = [str(node) for node in chance.sample(range(60), chance.randint(1, 3))]
    check_loss(over, seed, gone, set(chance.sample(list(over.nodes), 20)), rho)


@settings(max_examples=200, deadline=None)
@given(interests(), seeds, rhos)
def test_from_no_links_at_all_it_builds_what_the_twin_and_the_planner_build(over, seed, rho):
    """At first every link raises the maximum degree: e1 decides, ties included. The planner has a kernel of its own."""
    current = CurrentOverlay(over.nodes, over.topics, seed)
    current.admit_all(over, over.nodes)
    members = [current.members[topic] for topic in range(len(over.topics))]
    offsets = np.cumsum([0, *map(len, members)])
    apart = Required(np.arange(len(members), dtype=np.int32), offsets, np.concatenate(members))
    added = named(current, reconnect(current, apart, current.everyone, rho=rho))
    interest, graph = slow.named_topics(over), nx.empty_graph(list(over.nodes))
    assert added == slow.low_links(graph, interest, list(over.topics), combinations(over.nodes, 2), rho, seed)
    planned = construct(over, "lowoda", rho=rho, seed=seed)
    ends = [over.nodes.take(some).to_pylist() for some in (planned.new_u, planned.new_v)]
    assert added == [slow.ordered(seed, u, w) for u, w in zip(*ends, strict=True)]


@settings(max_examples=200, deadline=None)
@given(interests(nodes_max=16, topics_max=12), seeds, rhos, st.data())
def test_a_newcomer_gets_the_links_of_the_twin_in_the_same_order(over, seed, rho, data):
    node = data.draw(st.sampled_from(list(over.nodes)))
    interest = slow.named_topics(over)
    others = set(over.nodes) - {node}
    chosen = data.draw(st.sets(st.sampled_from(sorted(others)))) if others else set()
    for topic in interest[node]:  # the candidates must cover all that can be covered
        if not any(topic in interest[other] for other in chosen):
            chosen |= {other for other in others if topic in interest[other]}
    current = CurrentOverlay.of(over, slow.any_tco(over, seed), seed)
    graph = current.overlay().to_networkx()
    rank = current.rank_of[node]
    topics = current.topics_of[rank]
    slow.mend_leave(graph, interest, [node], others, rho, seed)  # what it finds is a TCO without it
    current.dismiss(rank)
    ends = [(current.rank_of[u], current.rank_of[w]) for u, w in graph.edges]
    current.unlink_all()
    current.link(*np.array(ends, np.int32).reshape(-1, 2).T.copy())
    current.admit(rank, topics)
    shadow = np.array(sorted(current.rank_of[name] for name in chosen | {node}), np.int32)
    added = named(current, connect_newcomer(current, rank, topics, shadow, rho=rho))
    assert added == slow.mend_join(graph, interest, node, chosen, rho, seed)
