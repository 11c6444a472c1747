"""Topics of few hops: every diameter is measured by brute force, and the price is told as it is."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strategies import interests, overlays, seeds
from trellis import plan
from trellis.errors import InputError
from trellis.model.costs import LinkCaps, between_nodes
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay

some = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def diameters(over: Interests, overlay: Overlay) -> dict[str, int]:
    """By topic of two subscribers or more: the greatest distance inside the topic's own graph."""
    graph, found = overlay.to_networkx(), {}
    for topic, name in enumerate(over.topics):
        members = over.nodes.take(over.nodes_of(topic)).to_pylist()
        if len(members) > 1:
            found[name] = nx.diameter(graph.subgraph(members))
    return found


@some
@given(st.data(), st.integers(1, 5), seeds, st.sampled_from(["lowoda", "gm", "ring"]), st.sampled_from([1, 2]))
def test_no_topic_has_more_hops_and_the_price_is_told(data, hops_max, seed, algorithm, connectivity):
    over = data.draw(interests(nodes_max=14, topics_max=5))
    start = data.draw(overlays(over))
    plain = plan.construct(over, algorithm, existing=start, connectivity=connectivity, seed=seed)
    made = plan.construct(over, algorithm, existing=start, connectivity=connectivity, hops_max=hops_max, seed=seed)
    before, after = diameters(over, plain.overlay), diameters(over, made.overlay)
    assert max(after.values(), default=0) <= hops_max
    short = made.short
    assert (short.hops_max, short.unmet) == (hops_max, ())
    assert (short.diameter_before, short.diameter) == (max(before.values(), default=0), max(after.values(), default=0))
    assert short.topics_shortened == sum(found > hops_max for found in before.values())
    assert (short.links_before, short.links_added) == (len(plain.overlay), len(made.overlay) - len(plain.overlay))
    assert links_of(made.overlay) >= links_of(plain.overlay)
    assert len(made.new_u) == len(made.contributions) == len(made.overlay) - len(start)
    if max(before.values(), default=0) <= hops_max:
        assert short.links_added == 0


@some
@given(st.data(), st.integers(1, 4), seeds)
def test_caps_are_not_exceeded_for_hops_and_topics_that_stay_longer_are_named(data, hops_max, seed):
    over = data.draw(interests(nodes_max=12, topics_max=4))
    most = data.draw(st.dictionaries(st.sampled_from(list(over.nodes)), st.integers(0, 5)))
    caps = LinkCaps.of_names(over.nodes, most)
    plain = plan.construct(over, caps=caps, seed=seed)
    made = plan.construct(over, caps=caps, hops_max=hops_max, seed=seed)
    degree, was = dict(made.overlay.to_networkx().degree), dict(plain.overlay.to_networkx().degree)
    assert all(degree[name] <= max(cap, was[name]) for name, cap in most.items())
    after = diameters(over, made.overlay)
    assert dict(made.short.unmet) == {topic: hops for topic, hops in after.items() if hops > hops_max}
    if not most:
        assert made.short.unmet == ()


def test_links_of_a_topic_that_cannot_be_met_are_taken_back():
    over = Interests.from_pairs({f"n{number}": ["t"] for number in range(9)})
    caps = LinkCaps.of_names(over.nodes, dict.fromkeys(over.nodes, 3))
    plain, made = plan.construct(over, caps=caps), plan.construct(over, caps=caps, hops_max=2)
    assert links_of(made.overlay) == links_of(plain.overlay)
    assert [topic for topic, _ in made.short.unmet] == ["t"]


def test_a_star_of_a_chain_takes_the_fewest_links():
    """In a chain of seven, two hops take a centre with links to the four that it has none to."""
    over = Interests.from_pairs({f"n{number}": ["t"] for number in range(7)})
    chain = Overlay.from_pairs(over.nodes, [(f"n{number}", f"n{number + 1}") for number in range(6)])
    made = plan.construct(over, existing=chain, hops_max=2)
    assert made.short.links_added == 4
    assert made.short.diameter_before == 6
    four = plan.construct(over, existing=chain, hops_max=4)
    assert four.short.links_added == 1, "a link from the middle to an end brings both ends within two hops of it"


def test_cheaper_links_are_taken_where_they_bring_as_many():
    over = Interests.from_pairs({f"n{number}": ["t"] for number in range(7)})
    chain = Overlay.from_pairs(over.nodes, [(f"n{number}", f"n{number + 1}") for number in range(6)])
    made = plan.construct(over, existing=chain, hops_max=3, costs=between_nodes(over.nodes, {}, default=2.0))
    assert made.cost == 2 * len(made.overlay)
    assert max(diameters(over, made.overlay).values()) <= 3
    known = {(f"n{number}", f"n{number + 1}"): 1.0 for number in range(6)}
    with pytest.raises(InputError, match='there is no cost between "n0" and "n2"'):
        plan.construct(over, existing=chain, hops_max=3, costs=between_nodes(over.nodes, known))


def test_larger_topics_come_within_three_hops():
    chance = np.random.default_rng(3)
    over = Interests.from_pairs({f"n{node}": chance.choice(20, 4, replace=False).tolist() for node in range(200)})
    for hops_max in (2, 3, 4, 6):
        made = plan.construct(over, hops_max=hops_max)
        assert max(diameters(over, made.overlay).values()) <= hops_max


@pytest.mark.parametrize("hops_max", [0, -3])
def test_fewer_than_one_hop_are_refused(hops_max):
    over = Interests.from_pairs({"a": ["x"], "b": ["x"]})
    with pytest.raises(InputError, match="cannot be met by any topic of two subscribers or more; give 1 or more"):
        plan.construct(over, hops_max=hops_max)


def links_of(overlay: Overlay) -> set[tuple[int, int]]:
    return set(zip(overlay.u.tolist(), overlay.v.tolist(), strict=True))
