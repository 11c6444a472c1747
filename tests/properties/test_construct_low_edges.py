"""GM, MinMaxODA and LowODA choose, edge by edge, what their definitions choose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference import lowoda as reference
from strategies import interests, overlays, seeds
from trellis import plan
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay
from trellis.plan import tables
from trellis.plan.state import BITS, LISTS, TRIANGLE

FORMS = {"bits": BITS, "triangle": TRIANGLE, "lists": LISTS}
RHO = st.sampled_from([1.0, 1.5, 2.0, 3.0, 7.0, inf])
many = settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
some = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def instances(draw: st.DrawFn, nodes_max: int = 12) -> tuple[Interests, Overlay]:
    """Interests and any overlay to start from, half of the time none."""
    over = draw(interests(nodes_max=nodes_max))
    return over, draw(st.one_of(st.just(Overlay.from_ids(over.nodes, [], [])), overlays(over)))


def names_of(over: Interests) -> reference.Interest:
    return {node: set(over.topics.take(over.topics_of(index)).to_pylist()) for index, node in enumerate(over.nodes)}


def links_of(overlay: Overlay) -> list[tuple[str, str]]:
    return [(overlay.nodes[u], overlay.nodes[v]) for u, v in zip(overlay.u, overlay.v, strict=True)]


def sequence(built: plan.Construction) -> list[reference.Edge]:
    nodes = built.overlay.nodes
    return [
        reference.Edge(nodes[u], nodes[v], gain)
        for u, v, gain in zip(built.new_u, built.new_v, built.contributions.tolist(), strict=True)
    ]


@contextmanager
def kept_as(form: int) -> Iterator[None]:
    """Keep all instances in this form, whatever suits them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables.Shape, "best_form", lambda self: form)
        yield


def assert_as_defined(over: Interests, start: Overlay, rho: float, seed: int | str) -> None:
    interest, existing = names_of(over), links_of(start)
    for algorithm, parameter in (("gm", 1.0), ("minmax", inf), ("lowoda", rho)):
        expected = reference.low_edges(interest, existing, rho=parameter, light=algorithm == "minmax", seed=seed)
        for name, form in FORMS.items():
            with kept_as(form):
                built = plan.construct(over, algorithm, rho=rho, existing=start, seed=seed)
            assert sequence(built) == expected, (algorithm, name)


def random_interests(chance: np.random.Generator, nodes: int, topics: int, size_max: int) -> Interests:
    sizes = chance.integers(1, min(size_max, topics) + 1, nodes)
    wanted = [chance.choice(topics, size, replace=False, p=popularity(topics)) for size in sizes]
    return Interests.from_pairs({f"n{node}": topics.tolist() for node, topics in enumerate(wanted)})


def popularity(topics: int) -> np.ndarray:
    weights = 1 / np.arange(1, topics + 1)
    return weights / weights.sum()


@many
@given(instances(), RHO, seeds)
def test_the_edges_are_those_of_the_definition_in_the_same_order(drawn, rho, seed):
    assert_as_defined(*drawn, rho, seed)


@settings(some, max_examples=8)
@given(seeds, st.integers(65, 100), st.sampled_from([3, 12, 300]), RHO)
def test_a_large_overlay_that_lost_some_links_is_mended_as_defined(seed, nodes, topics, rho):
    chance = np.random.default_rng(seed)
    over = random_interests(chance, nodes, topics, size_max=20)
    whole = plan.construct(over, "lowoda", seed=seed).overlay
    kept = np.sort(chance.permutation(len(whole))[4:])
    assert_as_defined(over, Overlay.from_ids(over.nodes, whole.u[kept], whole.v[kept]), rho, seed)


@pytest.mark.slow
@settings(some, max_examples=8)
@given(seeds, st.integers(60, 100), st.sampled_from([4, 30, 300]), RHO)
def test_a_large_overlay_is_built_as_defined(seed, nodes, topics, rho):
    over = random_interests(np.random.default_rng(seed), nodes, topics, size_max=12)
    assert_as_defined(over, Overlay.from_ids(over.nodes, [], []), rho, seed)


@pytest.mark.parametrize("topics", [5, 200, 700])
@pytest.mark.parametrize(("algorithm", "rho"), [("gm", 1), ("minmax", 1), ("lowoda", 1), ("lowoda", 3)])
def test_on_hundreds_of_nodes_all_forms_choose_the_same_edges(topics, algorithm, rho):
    over = random_interests(np.random.default_rng(topics), 330, topics, size_max=40)
    built = []
    for form in FORMS.values():
        with kept_as(form):
            built.append(sequence(plan.construct(over, algorithm, rho=rho)))
    assert built[0] == built[1] == built[2]


@some
@given(instances(), st.sampled_from(plan.ALGORITHMS), seeds)
def test_every_overlay_is_a_tco_and_keeps_what_was_there(drawn, algorithm, seed):
    over, start = drawn
    built = plan.construct(over, algorithm, existing=start, seed=seed)
    assert not reference.split_topics(names_of(over), links_of(built.overlay))
    assert not len(built.split_topics)
    new = {frozenset((u, v)) for u, v, _ in sequence(built)}
    assert len(new) == len(built.new_u)
    assert {*map(frozenset, links_of(built.overlay))} == new | {*map(frozenset, links_of(start))}
    assert len(built.overlay) == len(new) + len(start)


@some
@given(instances(), seeds)
def test_lowoda_with_infinite_rho_starts_as_minmax_does_but_for_ties(drawn, seed):
    over, start = drawn
    low = plan.construct(over, "lowoda", rho=inf, existing=start, seed=seed)
    minmax = plan.construct(over, "minmax", existing=start, seed=seed)
    assert low.contributions[:1].tolist() == minmax.contributions[:1].tolist()


@some
@given(instances(), st.sampled_from(plan.ALGORITHMS), seeds, st.randoms())
def test_neither_the_order_of_rows_nor_topics_without_subscribers_matter(drawn, algorithm, seed, chance):
    over, start = drawn
    rows = list(zip(over.subscription_nodes.tolist(), over.node_topics.tolist(), strict=True))
    chance.shuffle(rows)
    # t0 and t05 come between the topics that are there, so that these get other ids.
    topics, places = Names.in_order(["t05", "", *over.topics])
    shuffled = Interests.from_ids(
        over.nodes, topics, [node for node, _ in rows], [places[2 + topic] for _, topic in rows]
    )
    expected = plan.construct(over, algorithm, existing=start, seed=seed)
    assert sequence(plan.construct(shuffled, algorithm, existing=start, seed=seed)) == sequence(expected)


@some
@given(st.data(), RHO, seeds)
def test_among_given_candidates_the_edges_are_those_of_the_definition_and_split_topics_are_told(data, rho, seed):
    over, start = data.draw(instances())
    pot = data.draw(overlays(over))
    interest = names_of(over)
    for algorithm, parameter in (("gm", 1.0), ("minmax", inf), ("lowoda", rho)):
        light = algorithm == "minmax"
        expected = reference.low_edges(
            interest, links_of(start), rho=parameter, light=light, seed=seed, candidates=links_of(pot)
        )
        built = plan.construct(over, algorithm, rho=rho, existing=start, candidates=pot, seed=seed)
        assert sequence(built) == expected
        left = reference.split_topics(interest, links_of(built.overlay))
        assert {over.topics[topic] for topic in built.split_topics} == left


@some
@given(instances(), seeds)
def test_the_contributions_add_up_to_the_tc_components_that_had_to_be_joined(drawn, seed):
    over, start = drawn
    told = []
    built = plan.construct(over, existing=start, seed=seed, progress=lambda *done: told.append(done))
    total = int(built.contributions.sum())
    assert told[-1] == (total, total)
    assert np.all(built.contributions > 0)
