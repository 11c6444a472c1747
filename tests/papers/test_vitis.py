"""The claims of the Vitis paper, quoted, on instances that fit into a test. Figures: docs/vitis.md."""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import log, pi
from random import Random
from statistics import mean

import pytest

from reference import vitis as reference
from trellis.lab.inputs import Inputs
from trellis.lab.measures.vitis import crowd, events, utility
from trellis.protocols.ring import RING, identifier
from trellis.simulate.dissemination_system import check_lookups, check_ring, node_of, topics_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.publications import one_per_topic, together
from trellis.simulate.run import topics_by_node
from trellis.simulate.systems import maker_of
from trellis.workloads.configs import Correlated
from trellis.workloads.generate import generate

NODES, CYCLES = 200, 30


@cache
def ended(system, level, **options):
    """20 of 100 topics in 5 buckets: subscribers of a topic by entries of a table as in the paper, five or so to one.

    After 30 cycles there is one event on every topic.
    """
    config = Correlated(nodes=NODES, topics=100, subs=20, buckets=5, level=level)
    interests = topics_by_node(generate(config, 1))
    lingering = {} if system == "opt" else {"linger_rounds": 0}  # as in the paper
    made = maker_of(system)(**{"publications": 0, "table_size": 8, **lingering, **options})
    engine = Engine(made, interests, seed=1)
    Injector(engine, together(one_per_topic(interests, start_ms=CYCLES * 1_000, span_ms=3_000, seed=1)))
    engine.run((CYCLES + 10) * 1_000)
    engine.check_always()
    return engine, made.dissemination.measure()


def degrees(engine):
    return Counter(name for link in engine.world.links() for name in link)


@pytest.mark.parametrize("level", ["random", "low", "high"])
@pytest.mark.parametrize("system", ["vitis", "rvr"])
def test_hit_ratio(system, level):
    """IV-B: "both Vitis and RVR have 100% hit ratio in all settings"."""
    _, found = ended(system, level)
    assert found.hits > 500
    assert found.missed == 0
    assert found.repeated == 0


@pytest.mark.parametrize("level", ["random", "high"])
def test_the_routing_table_is_bounded(level):
    """III: "Every Vitis node maintains a bounded-size routing table (RT)"."""
    engine, _ = ended("vitis", level)
    assert max(len(node_of(engine.world, name).table.table) for name in engine.world.living) == 8


def test_the_ring_converges_and_lookups_are_consistent():
    """III-A1: "the ring topology rapidly converges to a correct ring"; III-B: "all the lookups end up at the
    rendezvous node"."""
    for system in ("vitis", "rvr"):
        engine, _ = ended(system, "low")
        check_ring(engine.world)
        check_lookups(engine.world, topics_of(engine.world)[:40])


@pytest.mark.parametrize("system", ["vitis", "rvr"])
def test_gossip_finds_the_long_links_that_were_drawn(system):
    """III-A1: "unlike Symphony, in Vitis nodes establish their sw-neighbors via periodic gossiping"."""
    engine, _ = ended(system, "random")
    strayed = 0
    for name in engine.world.living:
        node = node_of(engine.world, name)
        distances = node.long_links.distances(*map(identifier, node.beside))
        assert distances
        others = [other for other in engine.world.living if other != name]
        strayed += len(set(reference.small_world(name, others, distances)) - set(node.table.peers))
    assert strayed == 0


@cache
def one_cluster(nodes=400):
    """All want one topic, with tables of successor, predecessor and one long link."""
    engine = Engine(maker_of("vitis")(publications=0, table_size=3), {f"n{at}": ("t",) for at in range(nodes)}, seed=1)
    engine.run(25_000)
    return engine


def test_lookups_over_one_long_link_take_as_many_hops_as_expected():
    """III-A1: "if one such neighbor is selected (as in Algorithm 4, line 8), the routing time is bounded to
    O(log^2 N)". A bound: 4 / pi^2 log^2 N is what perfect tables come to from below (docs/vitis.md)."""
    nodes, engine = 400, one_cluster()
    compass = {name: node_of(engine.world, name).relays.compass for name in engine.world.living}
    random, lookups, hops = Random(1), 4_000, 0
    for _ in range(lookups):
        name, place = random.choice(engine.world.living), random.randrange(RING)
        while (hop := compass[name].next_hop(place)) is not None:
            name, hops = hop, hops + 1
    assert hops / lookups <= 4 / pi**2 * log(nodes) ** 2
    expected = reference.expected_hops(nodes)
    assert 0.9 * expected < hops / lookups < 1.1 * expected
    by_log = [reference.expected_hops(count) / log(count) ** 2 for count in (100, nodes, 800)]
    assert by_log == sorted(by_log)
    assert by_log[-1] < 4 / pi**2


def test_traffic_overhead_drops_with_correlation_and_is_below_that_of_rendezvous_routing():
    """IV-B: "With correlated subscriptions, this traffic reduced by a factor of 88%"; here by at least 70%."""
    high, low, rendezvous = (ended(*which)[1] for which in (("vitis", "high"), ("vitis", "low"), ("rvr", "high")))
    assert high.overhead < low.overhead < rendezvous.overhead
    assert high.overhead <= 0.3 * rendezvous.overhead


def test_more_nodes_have_little_overhead():
    """IV-B, Fig. 5: nodes "that have an overhead more than 20%, drops to less than one third in Vitis"."""
    vitis, rendezvous = ended("vitis", "high")[1], ended("rvr", "high")[1]
    assert vitis.share_of_nodes(above=0.2) < rendezvous.share_of_nodes(above=0.2) / 3
    assert vitis.share_of_nodes(above=0.1) < rendezvous.share_of_nodes(above=0.1)


def test_correlated_subscriptions_are_delivered_in_fewer_hops():
    """IV-B: "nodes with correlated subscriptions experience a better delivery time as well"."""
    assert ended("vitis", "high")[1].delay < ended("rvr", "high")[1].delay


def test_on_the_interests_of_followers_vitis_is_fastest():
    """IV-E, Fig. 10(c): "Vitis is more than 1.5 times faster than RVR and 1.7 times than OPT", on a sample of Twitter.
    Here on a generated follower graph, where it is only fastest."""
    told = {"interests": "followers", "nodes": 120, "cycles": 25, "table_size": 15}
    delay = {system: events(system, told, 1, Inputs(None))["delay"] for system in ("Vitis", "RVR", "OPT")}
    assert delay["Vitis"] < min(delay["RVR"], delay["OPT"])


def lookup_hops(world):
    """Return for each topic how many hops the lookups of its subscribers take."""
    compass = {name: node_of(world, name).relays.compass for name in world.living}
    found = []
    for topic in topics_of(world):
        for name in world.living:
            if topic in world.topics_of(name):
                hops, place = 0, identifier(topic)
                while (hop := compass[name].next_hop(place)) is not None:
                    name, hops = hop, hops + 1
                found.append(hops)
    return found


@pytest.mark.parametrize(("system", "d"), [("vitis", 5), ("rvr", 0)])
def test_the_propagation_delay_is_bounded(system, d):
    """III-B: "the propagation delay in Vitis is O(log^2 N + d)"; IV-E: "the delay in Vitis and RVR is bounded". An
    event goes up to the rendezvous node and down from it, each time over one lookup and at most d hops more."""
    engine, found = ended(system, "random")
    lookups = lookup_hops(engine.world)
    delivered = [one.delivered for one in engine.system.dissemination.publications]
    taken = [hops for one in delivered for hops in one.values() if hops]  # the publisher itself: none
    assert min(taken) == 1
    assert mean(lookups) <= 4 / pi**2 * log(NODES) ** 2
    assert 1 < found.delay <= 2 * mean(lookups) + d
    assert max(taken) <= 2 * (max(lookups) + d)


def test_an_overlay_per_topic_has_no_overhead_and_misses_events_when_its_degree_is_bounded():
    """IV-E: "no traffic overhead at all"; "OPT with a bounded node degree can not achieve a full hit ratio". The bound
    is one of the node degree: a link counts at both ends."""
    engine, found = ended("opt", "random")
    assert found.unwanted == 0
    assert found.hit_ratio < 1
    assert max(degrees(engine).values()) <= 8


def test_an_overlay_per_topic_reaches_everybody_once_its_degree_is_free_of_any_bound():
    """IV-E: "In order to reach a 100% hit ratio, OPT needs to be free of any bound on the node degree"; Fig. 11: "more
    than two third of the nodes have a degree higher than" the bound."""
    engine, found = ended("opt", "random", bounded=False)
    assert found.hit_ratio > 0.995
    assert sum(degree > 8 for degree in degrees(engine).values()) > NODES * 2 / 3


def test_a_table_is_no_degree():
    """IV-A: "the routing table size is set to 15" for all. With equal tables RVR has more links, both ends counted."""
    vitis, rendezvous = (degrees(ended(system, "high")[0]).total() / NODES for system in ("vitis", "rvr"))
    assert 8 < vitis < rendezvous


@pytest.mark.parametrize("system", ["vitis", pytest.param("rvr", marks=pytest.mark.slow)])
def test_larger_tables_mean_less_overhead_and_delay(system):
    """IV-C, Fig. 6: "when nodes maintain bigger routing tables, the traffic overhead, as well as the propagation delay,
    decreases in both systems"."""
    small, large = ended(system, "low")[1], ended(system, "low", table_size=12)[1]
    assert large.overhead < small.overhead
    assert large.delay < small.delay


def test_interests_are_weighed_by_their_overlap():
    """III-A2, Example 1: "utility(p, q) = 0.25, utility(p, r) = 0.125, and utility(q, r) = 0.33"."""
    found = utility("Vitis", {}, 1, Inputs(None))
    assert [found["p, q"], found["p, r"], found["q, r"]] == [0.25, 0.125, pytest.approx(1 / 3)]


def test_with_correlated_interests_vitis_has_40_percent_less_overhead():
    """Abstract: "traffic overhead in Vitis is between 40% to 75% less" than in rendezvous routing."""
    assert ended("vitis", "high")[1].overhead <= 0.6 * ended("rvr", "high")[1].overhead


@pytest.mark.slow
def test_a_flash_crowd_hurts_rendezvous_routing_more_and_both_recover(tmp_path):
    """IV-F: "the hit ratio in RVR goes down to 87% [...] the worst case hit ratio is about 99%" in Vitis."""
    told = {"nodes": 240, "topics": 240, "subs": 30, "buckets": 6, "level": "low", "cycles": 30, "churn": "crowd"}
    worst = {}
    for system in ("Vitis", "RVR"):
        found = crowd(system, told, 2, Inputs(tmp_path))
        worst[system] = min(found["hit ratio"][1])
        assert found["hit ratio"][1][-1] > 0.999
        first, last = (found["delay"][1][at] for at in (0, -1))
        assert first < last < 1.3 * first  # [IV-F, Fig. 12(c)] higher afterwards, as the network is larger
        if system == "Vitis":  # [Fig. 12(b)] RVR's overhead should drop; ours does not (docs/vitis.md)
            assert max(found["overhead %"][1]) > found["overhead %"][1][0]
    assert worst["RVR"] < worst["Vitis"] < 1


def test_a_gateway_serves_nodes_at_most_d_hops_away():
    """III-B: "A gateway node, therefore, is responsible for the nodes, which are a maximum of d hops away from it"."""
    engine, _ = ended("vitis", "high")
    hops = [one.hops for name in engine.world.living for one in node_of(engine.world, name).gateways.proposals.values()]
    assert hops.count(0) < len(hops) / 2
    world = one_cluster().world  # wider than d hops
    far = [node_of(world, name).gateways.proposals["t"].hops for name in world.living]
    assert max(far) == 5


def test_the_rendezvous_node_of_every_topic_is_on_its_relay_paths():
    """III-B: "a rendezvous node for topic t, as a node with the closest id to hash(t)"."""
    engine, _ = ended("vitis", "random")
    world = engine.world
    for topic in topics_of(world)[:60]:
        root = min(
            world.living,
            key=lambda name: min(
                (identifier(name) - identifier(topic)) % 2**160, (identifier(topic) - identifier(name)) % 2**160
            ),
        )
        node = node_of(world, root)
        assert topic in node.interest or node.relays.relays(topic), topic
