"""Tables of an event run, loaded into the cycle engine: the same elections, paths and reached nodes."""

from __future__ import annotations

from random import Random

import pytest

from both_engines import interests_of, system_of
from trellis.cycles.instance import make_instance
from trellis.cycles.network import RingNetwork
from trellis.cycles.spread import NOTIFICATIONS, OPT, REACHED, RVR, VITIS, forget, make_scratch, make_tally
from trellis.cycles.spread import publish as carry
from trellis.simulate.dissemination_system import node_of, spread
from trellis.simulate.engine import Engine
from trellis.simulate.run import topics_by_node

KINDS = {"vitis": VITIS, "rvr": RVR, "opt": OPT}


def load(engine: Engine, network: RingNetwork) -> None:
    """Take over the routing tables of the nodes, and let the proposals settle."""
    number = {name: place for place, name in enumerate(network.instance.nodes)}
    for name, place in number.items():
        peers = [number[peer] for peer in node_of(engine.world, name).table.peers]
        network.tables.peers[place, : len(peers)], network.tables.count[place] = peers, len(peers)
    network.settle()


@pytest.mark.parametrize(
    ("name", "level", "flood"),
    [
        ("vitis", "random", False),
        pytest.param("vitis", "high", True, marks=pytest.mark.slow),
        ("rvr", "random", False),
    ],
)
def test_tables_of_an_event_run_give_the_same_elections_paths_and_reached_nodes(name, level, flood):
    wanted = topics_by_node(interests_of(45, 50, 6, level, 3))
    system = system_of(name, table_size=8, **({"relays_flood": True} if flood else {}))
    engine = Engine(system, wanted, seed=3)
    engine.watchers.clear()
    engine.run(40_000)
    world, instance = engine.world, make_instance(wanted)
    network = RingNetwork(instance, system.config)
    load(engine, network)
    wants = instance.wants

    for place, one in enumerate(instance.nodes):  # links: both ways
        firm = {peer.node for peer in node_of(world, one).neighbors.firm()}
        linked = network.links.peers[network.links.offsets[place] : network.links.offsets[place + 1]]
        assert {instance.nodes[peer] for peer in linked} == firm
    if name == "vitis":
        for place, one in enumerate(instance.nodes):
            for slot in range(wants.offsets[place], wants.offsets[place + 1]):
                told = node_of(world, one).gateways.proposals[instance.topics[wants.topics[slot]]]
                found = network.proposals.gateway[slot], network.proposals.hops[slot]
                assert (instance.nodes[found[0]], found[1]) == (told.gateway, told.hops)

    random, scratch, (instants, carrying) = Random(3), make_scratch(len(instance.nodes)), network.instants()
    relayed = 0
    for topic, topic_name in enumerate(instance.topics):
        publisher = int(random.choice(wants.subscribers[wants.topic_offsets[topic] : wants.topic_offsets[topic + 1]]))
        tally = make_tally(len(instance.nodes))
        reached = carry(
            topic, publisher, wants, network.presence, carrying, instants, network.relays, KINDS[name], flood,
            scratch, tally,
        )  # fmt: skip
        nodes = {instance.nodes[node] for node in scratch.wave.queue[:reached]}
        paths = scratch.paths
        for node in paths.nodes[: paths.ends[1]].tolist():
            link, ways = paths.first[node], set()
            while link >= 0:
                ways.add(instance.nodes[paths.to[link]])
                link = paths.following[link]
            assert ways == set(node_of(world, instance.nodes[node]).relays.links(topic_name))
            relayed += 1
        forget(scratch)
        expected = spread(world, instance.nodes[publisher], topic_name)
        assert nodes == expected.reached
        assert tally.totals[NOTIFICATIONS] + 2 * tally.totals[REACHED] == expected.messages
        assert int(tally.wanted.sum()) == len(expected.delivered) - 1
    assert relayed > 0
