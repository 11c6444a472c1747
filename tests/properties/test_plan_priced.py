"""Plans with costs and caps: the kernel against the slow reference, and both promises against brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lazy import nx
from reference import lowoda, priced
from strategies import interests, overlays, seeds
from trellis import plan
from trellis.errors import InputError
from trellis.measure.connectivity import connectivity
from trellis.measure.cuts import find_cuts
from trellis.model.costs import LinkCaps, LinkCosts, between_nodes, between_regions
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.plan.candidates import Sampling
from trellis.plan.maintain_config import MaintainConfig
from trellis.plan.whatif import what_if_leave, what_if_worst

some = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
amounts = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 7.25, 1e6])


@st.composite
def costs_of(draw: st.DrawFn, over: Interests) -> LinkCosts:
    names = list(over.nodes)
    return between_nodes(over.nodes, {pair: draw(amounts) for pair in combinations(names, 2)})


@st.composite
def caps_of(draw: st.DrawFn, over: Interests) -> dict[str, int]:
    return draw(st.dictionaries(st.sampled_from(list(over.nodes)), st.integers(0, 4)))


def named(over: Interests) -> lowoda.Interest:
    return {name: {over.topics[topic] for topic in over.topics_of(node)} for node, name in enumerate(over.nodes)}


def links_of(overlay) -> set[tuple[str, str]]:
    names = list(overlay.nodes)
    return {(names[u], names[v]) for u, v in zip(overlay.u.tolist(), overlay.v.tolist(), strict=True)}


def chosen(made: plan.Construction, over: Interests) -> list[lowoda.Edge]:
    ends = zip(over.nodes.take(made.new_u).to_pylist(), over.nodes.take(made.new_v).to_pylist(), strict=True)
    return [lowoda.Edge(u, v, gain) for (u, v), gain in zip(ends, made.contributions.tolist(), strict=True)]


@some
@given(st.data(), seeds, st.sampled_from([1.0, 1.5, 3.0, np.inf]))
def test_edges_are_those_of_the_reference(data, seed, rho):
    over = data.draw(interests(nodes_max=9, topics_max=6))
    start, costs, most = data.draw(overlays(over)), data.draw(costs_of(over)), data.draw(caps_of(over))
    caps = LinkCaps.of_names(over.nodes, most)
    made = plan.construct(over, "lowoda", rho=rho, existing=start, costs=costs, caps=caps, seed=seed)
    priced_by = {
        frozenset(pair): float(costs.of([over.nodes.id_of(pair[0])], [over.nodes.id_of(pair[1])])[0])
        for pair in combinations(over.nodes, 2)
    }
    expected = priced.priced_edges(named(over), links_of(start), priced_by, most, rho=rho, seed=seed)
    assert chosen(made, over) == expected
    assert connectivity(over, made.overlay).is_tco
    assert made.cost == pytest.approx(sum(priced_by[frozenset(link)] for link in links_of(made.overlay)))


@some
@given(st.data(), seeds, st.sampled_from(["gm", "lowoda"]), st.sampled_from([0.0, 1.0, 0.7]))
def test_equal_costs_and_wide_caps_change_nothing(data, seed, algorithm, cost):
    over = data.draw(interests())
    start = data.draw(overlays(over))
    costs = between_nodes(over.nodes, {}, default=cost)
    wide = LinkCaps.of_names(over.nodes, dict.fromkeys(over.nodes, 1000))
    plain = plan.construct(over, algorithm, existing=start, seed=seed)
    for limits in ({"costs": costs}, {"caps": wide}, {"costs": costs, "caps": wide}):
        assert chosen(plan.construct(over, algorithm, existing=start, seed=seed, **limits), over) == chosen(plain, over)


@settings(max_examples=25, deadline=None)
@given(st.data(), seeds)
def test_a_plan_by_gm_costs_no_more_than_its_bound_times_the_cheapest(data, seed):
    """The bound of the greedy choice: the harmonic number of the greatest contribution [Wolsey 1982]."""
    over = data.draw(interests(nodes_max=5, topics_max=4))
    costs = data.draw(costs_of(over))
    made = plan.construct(over, "gm", costs=costs, seed=seed)
    least = min(costs.total(*ends(over, links)) for links in all_tcos(over))
    most = max((len(wanted & other) for wanted, other in combinations(named(over).values(), 2)), default=0)
    assert least <= made.cost + 1e-9
    assert made.cost <= sum(1 / k for k in range(1, most + 1)) * least + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.data(), seeds)
def test_a_proven_excess_is_in_every_overlay_and_others_stay_within_their_caps(data, seed):
    over = data.draw(interests(nodes_max=5, topics_max=4))
    most = data.draw(caps_of(over))
    made = plan.construct(over, caps=LinkCaps.of_names(over.nodes, most), seed=seed)
    degree = dict(made.overlay.to_networkx().degree)
    found = {excess.node: excess for excess in made.excess}
    assert set(found) == {name for name, cap in most.items() if degree[name] > cap}
    assert all((found[name].links, found[name].links_max) == (degree[name], most[name]) for name in found)
    if any(excess.proven for excess in found.values()):
        for links in all_tcos(over):
            graph = nx.Graph(links)
            assert any(name in graph and graph.degree[name] > cap for name, cap in most.items())


@some
@given(st.lists(st.integers(0, 4), min_size=2, max_size=9), seeds)
def test_the_caps_of_a_single_topic_are_kept_exactly_where_a_tree_can_keep_them(caps, seed):
    over = Interests.from_pairs({f"n{number}": ["t"] for number in range(len(caps))})
    made = plan.construct(over, caps=LinkCaps(over.nodes, np.array(caps, np.int64)), seed=seed)
    least = max(caps.count(0), 2 * (len(caps) - 1) - sum(caps), 0)  # a tree with these degrees, and no smaller excess
    assert sum(excess.links - excess.links_max for excess in made.excess) == least
    assert all(excess.proven for excess in made.excess)


@some
@given(st.data(), seeds)
def test_two_connected_plans_and_sampled_candidates_take_costs_and_caps(data, seed):
    over = data.draw(interests(nodes_max=9))
    costs, caps = data.draw(costs_of(over)), LinkCaps.of_names(over.nodes, data.draw(caps_of(over)))
    twice = plan.construct(over, costs=costs, caps=caps, connectivity=2, seed=seed)
    assert not find_cuts(over, twice.overlay, topics_max=1).topics
    assert connectivity(over, twice.overlay).is_tco
    drawn = plan.construct(over, costs=costs, caps=caps, sampling=Sampling(1, 1), seed=seed)
    assert connectivity(over, drawn.overlay).is_tco
    assert drawn.candidates is not None


def test_links_stay_inside_regions_where_that_is_cheaper_and_most_topics_are_there():
    over = Interests.from_pairs(
        {f"{region}{number}": ["all", f"local-{region}"] for region in "abc" for number in range(8)}
    )
    regions = {name: name[0] for name in over.nodes}
    costs = between_regions(over.nodes, regions, {("a", "a"): 1, ("b", "b"): 1, ("c", "c"): 1}, default=20)
    made = plan.construct(over, costs=costs)
    assert made.cost == 3 * 7 + 2 * 20, "a tree in each region, and two links between them"
    caps = LinkCaps.of_names(over.nodes, {"a1": 1, "b1": 0})
    capped = plan.construct(over, costs=costs, caps=caps)
    assert [(excess.node, excess.proven) for excess in capped.excess] == [("b1", True)]
    assert "its 2 topics need 1 or more links" in capped.excess[0].reason


def test_chunks_of_pairs_change_nothing():
    """More pairs than one block holds: the same edges as from a search without bounds."""
    chance = np.random.default_rng(5)
    over = Interests.from_pairs({f"n{node}": chance.choice(12, 3, replace=False).tolist() for node in range(160)})
    costs = between_nodes(over.nodes, {}, default=4.0)
    plain, same = plan.construct(over), plan.construct(over, costs=costs)
    assert chosen(plain, over) == chosen(same, over)


def test_what_takes_no_costs_says_so():
    over = Interests.from_pairs({"a": ["x"], "b": ["x"]})
    costs = between_nodes(over.nodes, {})
    for algorithm in ("minmax", "ring", "random", "star"):
        with pytest.raises(InputError, match=f"{algorithm} takes no costs; choose one of gm, lowoda"):
            plan.construct(over, algorithm, costs=costs)
    with pytest.raises(InputError, match='there is no cost between "a" and "b"'):
        plan.construct(over, costs=costs)


def ends(over: Interests, links) -> tuple[list[int], list[int]]:
    return [over.nodes.id_of(u) for u, _ in links], [over.nodes.id_of(v) for _, v in links]


def all_tcos(over: Interests):
    """Every topic-connected overlay of a small instance."""
    pairs = list(combinations(over.nodes, 2))
    interest = named(over)
    for bits in range(2 ** len(pairs)):
        links = [pair for place, pair in enumerate(pairs) if bits >> place & 1]
        if not lowoda.split_topics(interest, links):
            yield links


@settings(max_examples=40, deadline=None)
@given(st.data(), seeds)
def test_what_if_answers_choose_links_by_cost_and_count_them(data, seed):
    over = data.draw(interests(nodes_max=8))
    costs, most = data.draw(costs_of(over)), data.draw(caps_of(over))
    caps = LinkCaps.of_names(over.nodes, most)
    overlay = plan.construct(over, costs=costs, seed=seed).overlay
    gone = data.draw(st.sets(st.sampled_from(list(over.nodes)), min_size=1))
    config = MaintainConfig(algorithm=data.draw(st.sampled_from(["shadows", "naive"])), seed=seed)
    answer = what_if_leave(over, overlay, sorted(gone), config, costs, caps)
    graph, interest = overlay.to_networkx(), named(over)
    before = links_of(overlay)
    graph.remove_nodes_from(gone)
    graph.add_edges_from(answer.links_new)
    left = {name: topics for name, topics in interest.items() if name not in gone}
    assert not left or not lowoda.split_topics(left, graph.edges)
    lost = [link for link in before if gone.intersection(link)]
    assert answer.cost.before == pytest.approx(costs.total(*ends(over, before)))
    assert answer.cost.lost == pytest.approx(costs.total(*ends(over, lost)))
    assert answer.cost.new == pytest.approx(costs.total(*ends(over, answer.links_new)))
    assert answer.cost.after == pytest.approx(costs.total(*ends(over, list(graph.edges))))
    assert {one.node for one in answer.excess} == {
        name for name, cap in most.items() if name in graph and graph.degree[name] > cap
    }
    if config.algorithm == "naive" and not most:  # the candidates are all pairs: what a plan would add
        rest = Interests.from_pairs(left) if left else None
        if rest is not None:
            kept = Overlay.from_pairs(rest.nodes, [link for link in before if not gone.intersection(link)])
            made = plan.construct(rest, existing=kept, costs=costs.over(rest.nodes), seed=seed)
            assert {frozenset(link) for link in answer.links_new} == {
                frozenset((edge.u, edge.v)) for edge in chosen(made, rest)
            }


def test_the_worst_nodes_are_told_with_the_cost_of_their_links():
    over = Interests.from_pairs({"hub": ["x", "y"], "a": ["x"], "b": ["y"], "c": ["x"]})
    costs = between_nodes(over.nodes, {("hub", "a"): 1, ("hub", "b"): 2, ("hub", "c"): 4, ("a", "c"): 100}, default=50)
    made = plan.construct(over, costs=costs)
    (worst,) = what_if_worst(over, made.overlay, 1, costs)
    assert (worst.node, worst.links_cost) == ("hub", 7)
    answer = what_if_leave(over, made.overlay, ["hub"], None, costs)
    assert answer.links_new == (("a", "c"),)
    assert (answer.cost.before, answer.cost.lost, answer.cost.new, answer.cost.after) == (7, 7, 100, 100)


@some
@given(st.data())
def test_costs_are_complete_exactly_when_every_pair_has_one(data):
    over = data.draw(interests(nodes_max=5))
    names = list(over.nodes)
    if data.draw(st.booleans()):
        given_ = data.draw(st.lists(st.sampled_from([*combinations(names, 2)]), unique=True)) if len(names) > 1 else []
        costs = between_nodes(over.nodes, dict.fromkeys(given_, 1.0))
    else:
        regions = {name: data.draw(st.sampled_from("abc")) for name in names}
        known = sorted(set(regions.values()))
        pairs = [(one, other) for one in known for other in known if one <= other]
        given_ = data.draw(st.lists(st.sampled_from(pairs), unique=True))
        costs = between_regions(over.nodes, regions, dict.fromkeys(given_, 1.0))
    try:
        costs.of(*zip(*combinations(range(len(names)), 2), strict=True)) if len(names) > 1 else None
        is_complete = True
    except InputError:
        is_complete = False
    assert costs.is_complete == is_complete
