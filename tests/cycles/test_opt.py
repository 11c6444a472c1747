"""OPT in cycles: kernels against the protocol's own nodes, draw by draw."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.cycles_opt import Mesh
from trellis.cycles.cover import IN_TABLE, LINKS_US, SPOKE
from trellis.cycles.instance import make_instance
from trellis.cycles.network import LONELY_ROUNDS, OptNetwork
from trellis.cycles.newscast import newscast_cycle
from trellis.protocols.opt import OptConfig

configs = st.builds(
    OptConfig,
    table_size=st.integers(2, 5),
    bounded=st.booleans(),
    coverage=st.integers(1, 3),
    refusal_rounds=st.integers(1, 4),
    view_size=st.integers(2, 6),
    incoming_max=st.integers(1, 6),
)


def interests_of(nodes: int, topics: int, seed: int) -> dict[str, tuple[str, ...]]:
    random, names = Random(seed), [f"t{topic:02}" for topic in range(topics)]
    most = random.choice([min(4, topics), topics])
    return {f"v{node:02}": tuple(sorted(random.sample(names, random.randint(0, most)))) for node in range(nodes)}


def state_of(network: OptNetwork, node: int) -> dict[str, Any]:
    agreed, names = network.agreed, network.instance.nodes
    links, held = agreed.links[node], network.terms.refusal_rounds
    rows = zip(agreed.peers[node, :links], agreed.flags[node, :links].tolist(), strict=True)
    recent = range(min(agreed.refusals[node], agreed.refused.shape[1]))
    return {
        "neighbors": [
            (names[peer], bool(flag & IN_TABLE), bool(flag & LINKS_US), bool(flag & SPOKE)) for peer, flag in rows
        ],
        "table": [names[peer] for peer in agreed.table[node, : agreed.count[node]]],
        "refused": {
            names[agreed.refusers[node, place]]
            for place in recent
            if agreed.ticks[node] - agreed.refused[node, place] < held
        },
    }


def protocol_state(mesh: Mesh, name: str) -> dict[str, Any]:
    node = mesh.nodes[name]
    node.check()
    return {
        "neighbors": [(peer, one.in_table, one.links_us, one.spoke) for peer, one in node.neighbors.all.items()],
        "table": node.table.peers,
        "refused": set(node._refused),
    }


def compare(config: OptConfig, wanted: dict[str, tuple[str, ...]], seed: int, cycles: int) -> int:
    """Run both, and return how often a node was refused."""
    network = OptNetwork(make_instance(wanted), config, seed)
    mesh = Mesh(wanted, config, *(int(network._chance[name][0]) for name in ("tables", "profiles")))
    for _ in range(cycles):
        chance = network._chance["newscast"]
        newscast_cycle(
            network.views, network.presence.alive, network._order, chance, network._mark, config.age_max, LONELY_ROUNDS
        )
        mesh.cycle(network.views, network._order.tolist())
        network._renew()
        for node, name in enumerate(network.instance.nodes):
            assert state_of(network, node) == protocol_state(mesh, name), name
        assert (network.agreed.links <= network.terms.bound).all()  # O1
    assert int(network._chance["tables"][0]) == mesh.random.chance.state
    return int(network.agreed.refusals.sum())


@settings(max_examples=30, deadline=None)
@given(configs, st.integers(2, 14), st.integers(1, 8), st.integers(0, 2**32))
def test_a_run_is_that_of_the_protocols_own_nodes_draw_by_draw(config, nodes, topics, seed):
    compare(config, interests_of(nodes, topics, seed), seed, 7)


@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_with_more_topics_than_a_word_has_bits_and_full_ones_that_refuse(seed):
    random, names = Random(seed), [f"t{topic:03}" for topic in range(200)]
    wanted = {f"v{node:02}": tuple(sorted(random.sample(names, 60 + 5 * node))) for node in range(24)}
    assert compare(OptConfig(table_size=4), wanted, seed, 12) > 20
