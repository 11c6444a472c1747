"""SpiderCast with gossip and churn in cycles: kernels against the protocol's own nodes, draw by draw."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cycles.test_spidercast import FAST, interests_of, protocol_state, shared, state_of
from reference.cycles_spidercast import Mesh
from trellis.cycles.chance import stream
from trellis.cycles.gossip_rows import HOLE
from trellis.cycles.instance import make_instance
from trellis.cycles.neighbor_network import NeighborNetwork
from trellis.cycles.neighbors import COUNT, PEER, SILENCE
from trellis.errors import InputError
from trellis.protocols.descriptors import DescriptorTable
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.spidercast import SimilarityConfig, SpiderCastConfig

ABSENT_MIN = 900  # ms: by then nobody holds a link to the former incarnation, which `silence_max` sees to
quick = {**FAST, "silence_max": 2, "suspect_quarantine_ms": 700}
gossips = st.builds(
    lambda entries, age, view, sampled_age: GossipViewConfig(
        entries_max=entries,
        age_max=age,
        newscast=NewscastConfig(view_size=view, age_max=sampled_age, period_ms=150, lonely_rounds=2),
    ),
    st.integers(1, 12), st.integers(2, 12), st.integers(1, 5), st.integers(1, 6),
)  # fmt: skip
configs = st.one_of(
    st.builds(
        lambda adaptive, random, **more: SpiderCastConfig(
            adaptive=adaptive, coverage_random=0 if adaptive else random, **quick, **more
        ),
        st.booleans(),
        st.integers(0, 2),
        coverage_greedy=st.integers(1, 3),
        demand=st.sampled_from(["known", "literal"]),
        **shared,
    ),
    st.builds(
        lambda **more: SimilarityConfig(**quick, **more),
        links_similar=st.integers(0, 3),
        links_random=st.integers(0, 2),
        **shared,
    ),
)


def row_of(network: NeighborNetwork, row: Any, length: int) -> list[tuple[str, int, int]]:
    names = network.instance.nodes
    return [(names[peer], born, life) for peer, born, life in row[:, :length].T.tolist() if born != HOLE]


def protocol_row(table: DescriptorTable) -> list[tuple[str, int, int]]:
    return [(name, born, one.incarnation) for name, (born, one) in table.entries.items()]


def assert_equal(network: NeighborNetwork, mesh: Mesh) -> None:
    names, nodes = network.instance.nodes, network.rule.nodes
    assert {name for place, name in enumerate(names) if network.alive[place]} == set(mesh.nodes)
    for me in range(len(network.tasks.state)):
        node, task = me % nodes, "greedy" if me < nodes else "random"
        if not network.alive[node]:
            continue
        assert state_of(network, me) == protocol_state(mesh, names[node], task)
    silences: dict[tuple[str, str], list[int]] = {}
    for me in range(len(network.tasks.state)):
        for place in range(network.tasks.begin[me], network.tasks.begin[me] + network.tasks.state[me, COUNT]):
            ends = names[me % nodes], names[network.tasks.records[place, PEER]]
            silences.setdefault(ends, []).append(int(network.tasks.records[place, SILENCE]))
    for (name, peer), found in silences.items():
        assert min(found) == mesh.nodes[name].suspicion.silence_of(peer)
    for name, one in mesh.nodes.items():
        node, gossip = names.index(name), network.gossip
        if one.membership is None:
            there = network.view.bits[0].tolist()
            seen = {peer for place, peer in enumerate(names) if there[place >> 6] >> (place & 63) & 1}
            assert seen - {name} == set(one.view.names)
            continue
        sampled, known = gossip.sampled, gossip.known
        assert row_of(network, sampled.entries[node], sampled.count[node]) == protocol_row(
            one.membership.sampling.table
        )
        assert known.count[node] == len(one.membership.known)
        assert row_of(network, known.entries[node], known.used[node]) == protocol_row(one.membership.known)
        seen = {peer for place, peer in enumerate(names) if int(gossip.bits[node, place >> 6]) >> (place & 63) & 1}
        assert seen == set(one.membership.view.names)
        assert gossip.silent[node] == one.membership.sampling.silent_rounds
    assert network.sent == {kind: count for kind, count in mesh.sent.items() if count}
    assert int(network._chance[0]) == mesh.random.chance.state
    assert network.gossip.is_used == (mesh.gossip is not None)
    assert not network.gossip.is_used or int(network.gossip.chance[0]) == mesh.gossip_random.chance.state


def both(
    wanted: dict[str, tuple[str, ...]], config: Any, gossip: Any, planned: set[tuple[int, int]], absent: list[int]
) -> tuple[NeighborNetwork, Mesh]:
    network = NeighborNetwork(
        make_instance(wanted), config, 1, planned=planned, gossip=gossip, churns=True, absent=absent
    )  # fmt: skip
    names = network.instance.nodes
    states = [int(stream(1, label)[0]) for label in ("neighbors", "gossip")]
    links = {(names[u], names[v]) for u, v in planned}
    gone = {names[node] for node in absent}
    return network, Mesh(wanted, config, states[0], None, links, gossip, states[1], gone)


@settings(max_examples=20, deadline=None)
@given(configs, st.none() | gossips, st.integers(2, 14), st.integers(1, 6), st.integers(0, 2), st.integers(0, 2**32))
def test_a_run_with_churn_is_that_of_the_protocols_own_nodes_draw_by_draw(config, gossip, nodes, topics, links, seed):
    """Every 300 ms a node crashes, leaves or joins. Tasks, tables, views, silences and draws are equal after it.

    Nodes have views by gossip, or all know at once who is there.
    """
    wanted, random = interests_of(nodes, topics, seed), Random(seed)
    absent = [node for node in range(nodes) if random.random() < 0.2][: nodes - 2]
    there = [node for node in range(nodes) if node not in absent]
    planned = {tuple(sorted(random.sample(there, 2))) for _ in range(links * nodes)}
    network, mesh = both(wanted, config, gossip, planned, absent)  # type: ignore[arg-type]
    names, went = network.instance.nodes, dict.fromkeys(absent, -ABSENT_MIN)
    for turn in range(1, 11):
        network.run(300 * turn)
        mesh.run(300 * turn)
        assert_equal(network, mesh)
        living = [node for node in range(nodes) if network.alive[node]]
        back = [node for node, when in went.items() if 300 * turn - when >= ABSENT_MIN]
        if back and random.random() < 0.5:
            node = random.choice(back)
            del went[node]
            network.join(node)
            mesh.join(names[node])
        elif len(living) > 1:
            node, kind = random.choice(living), random.choice(["crash", "crash", "leave"])
            went[node] = 300 * turn
            getattr(network, kind)(node)
            getattr(mesh, kind)(names[node])
    held = {(name, peer) for name, node in mesh.nodes.items() for peer in node.links.tasks}
    linked = {(name, peer) for name, peer in held if name < peer and (peer, name) in held}
    assert {(names[u], names[v]) for u, v in zip(*network.links(), strict=True)} == linked


def test_nodes_come_and_go_only_where_views_change():
    network = NeighborNetwork(make_instance(interests_of(4, 2, 1)), SpiderCastConfig())
    with pytest.raises(InputError, match="by gossip"):
        network.crash(0)
    with pytest.raises(InputError, match="churns"):
        network.leave(0)
    with pytest.raises(InputError, match="heard of"):
        NeighborNetwork(make_instance(interests_of(4, 2, 1)), SpiderCastConfig(), share=0.5, gossip=GossipViewConfig())
