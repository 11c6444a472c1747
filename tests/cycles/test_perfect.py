"""Perfect tables: what each node selects among all others, and what a network on such tables does."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from both_engines import interests_of
from reference import vitis as reference
from trellis.cycles.gateways import elect_cycle
from trellis.cycles.instance import Instance, make_instance
from trellis.cycles.network import RingNetwork
from trellis.lab.inputs import Inputs
from trellis.lab.measures.vitis import events, perfect
from trellis.protocols.vitis import TableConfig, VitisConfig
from trellis.simulate.run import topics_by_node

TOPICS = [f"t{number}" for number in range(8)]
SMALL = {"nodes": 200, "topics": 100, "subs": 20, "buckets": 10, "table_size": 10}


def known(
    nodes: int, config: VitisConfig | TableConfig, seed: int, rated: bool = False
) -> tuple[RingNetwork, dict, dict]:
    """Return a network on perfect tables, its interests, and the rates of topics."""
    random = Random(seed)
    rates = {topic: random.choice([0.0, 0.5, 1.0, 4.0]) for topic in TOPICS} if rated else None
    wanted = {f"n{n:02}": tuple(sorted(random.sample(TOPICS, random.randint(0, 4)))) for n in range(nodes)}
    network = RingNetwork(make_instance(wanted, rates), config, seed)
    network.know_all()
    return network, wanted, rates


def table_of(network: RingNetwork, node: int) -> list[str]:
    return [network.instance.nodes[peer] for peer in network.tables.peers[node, : network.tables.count[node]]]


configs = st.tuples(st.integers(1, 30), st.integers(2, 5), st.integers(0, 6), st.booleans(), st.booleans())


@settings(max_examples=60)
@given(configs, st.integers(0, 2**32))
def test_each_node_has_the_table_that_the_paper_selects_among_all_nodes(drawn, seed):
    nodes, sw_neighbors, friends, strangers, rated = drawn
    config = VitisConfig(table_size=max(3, sw_neighbors + friends), sw_neighbors=sw_neighbors, strangers=strangers)
    network, wanted, rates = known(nodes, config, seed, rated)
    for node, name in enumerate(network.instance.nodes):
        table, others = table_of(network, node), [one for one in wanted if one != name]
        distances = [int(distance) << 96 for distance in network.tables.distances[node]]
        taken = reference.small_world(name, others, distances)
        assert table[: len(taken)] == taken  # successor, predecessor, and the nodes closest to the drawn distances
        worth = {one: reference.utility(set(wanted[name]), set(wanted[one]), rates) for one in others}
        left = sorted(
            (worth[one] for one in others if one not in taken and (strangers or worth[one] > 0)), reverse=True
        )
        assert [worth[one] for one in table[len(taken) :]] == pytest.approx(left[: config.table_size - sw_neighbors])
        assert len(set(table)) == len(table) <= config.table_size
        assert name not in table


@pytest.mark.parametrize("config", [VitisConfig(table_size=7), TableConfig(table_size=7)], ids=["vitis", "rvr"])
def test_links_are_those_of_the_tables_and_elections_are_at_rest(config):
    network, wanted, _ = known(60, config, 1)
    tables = [set(table_of(network, node)) for node in range(60)]
    names, links = network.instance.nodes, network.links
    for node, name in enumerate(names):
        linked = [names[peer] for peer in links.peers[links.offsets[node] : links.offsets[node + 1]]]
        held = {names[other] for other in range(60) if name in tables[other]}
        assert len(linked) == len(set(linked))
        assert set(linked) == tables[node] | held
    order, mark, alive = np.arange(60, dtype=np.int32), np.zeros(60, np.int32), np.ones(60, np.bool_)
    if isinstance(config, VitisConfig):
        before = [array.tolist() for array in network.proposals]
        wants = network.instance.wants
        bounds = config.gateway_hops, config.take_back
        assert (
            elect_cycle(network.proposals, wants, links, alive, order, network._chance["gateways"], mark, *bounds) == 0
        )
        assert [array.tolist() for array in network.proposals] == before
        assert 0 < network.looks_up.sum() < sum(map(len, wanted.values()))


def friends_of_equals(seed: int) -> np.ndarray:
    """Return the friends of 300 nodes that all want the same topic."""
    instance: Instance = make_instance({f"n{number}": ("t",) for number in range(300)})
    network = RingNetwork(instance, VitisConfig(table_size=8, sw_neighbors=3), seed)
    network.know_all()
    return network.tables.peers[:, 3:]


def test_ties_between_friends_are_broken_at_random_by_the_seed():
    one, again, other = (friends_of_equals(seed) for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).mean() > 0.9
    chosen = np.bincount(one.ravel(), minlength=300)
    assert chosen.mean() == 5
    assert chosen.max() < 18  # nobody is the friend of many because of its name or its number
    assert chosen.var() == pytest.approx(5, rel=0.4)  # as of random choices


@pytest.mark.parametrize("system", ["Vitis", "RVR"])
@pytest.mark.parametrize("more", [{"level": "high"}, {"level": "random", "alpha": 1.0}], ids=["topics", "rates"])
def test_a_network_on_perfect_tables_is_measured_as_one_that_gossips(system, more):
    by_gossip = events(system, {**SMALL, **more, "cycles": 40, "engine": "cycles"}, 1, Inputs(None))
    found = dict(perfect(f"{system} on perfect tables", {**SMALL, **more}, 1, Inputs(None)))
    assert (found.pop("election passes") > 1) == (system == "Vitis")
    assert set(found) == set(by_gossip)
    assert (found["hit ratio"], found["missed"], found["table max"]) == (1, 0, 10)
    assert found["subscriptions"] == by_gossip["subscriptions"]
    assert found["degree mean"] == pytest.approx(by_gossip["degree mean"], rel=0.08)
    assert found["overhead %"] == pytest.approx(by_gossip["overhead %"], abs=6)


def test_a_network_can_gossip_on_from_perfect_tables_and_keeps_them():
    """Nothing that gossip finds is better: successors, predecessors and utilities stay."""
    instance = make_instance(topics_by_node(interests_of(120, 60, 10, "low", 1)))
    network = RingNetwork(instance, VitisConfig(table_size=9), 1)
    network.know_all()
    beside, utility = network.tables.beside.copy(), network.tables.utility[:, 3:].copy()
    for _ in range(5):
        network.cycle()
    assert (network.tables.beside == beside).all()
    assert network.tables.utility[:, 3:] == pytest.approx(utility)
