"""Peer sampling, T-Man, the ring and the gossip-built view, each alone on a small network."""

from __future__ import annotations

import math
from functools import partial
from random import Random

import pytest

from conversation import Conversation, Parts
from lazy import nx
from trellis.errors import InputError
from trellis.ids import stream
from trellis.protocols.cyclon import Cyclon, CyclonConfig
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Send
from trellis.protocols.gossip_view import GossipView, GossipViewConfig
from trellis.protocols.newscast import Newscast, NewscastConfig, NewscastReply, NewscastRequest
from trellis.protocols.ring import RING, Ring, clockwise, identifier, ring_distance
from trellis.protocols.tman import TMan
from trellis.protocols.topics import TopicTable


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def sampler(kind, name, contacts, seed=1, config=None):
    return kind(partial(Descriptor, name), contacts, Random(stream(seed, "sampling", name)), config)


def sampled_network(kind, count, seed=1):
    """Everybody knows the node before it, and nobody else."""
    nodes = [
        Parts(name, **{kind.__name__.lower(): sampler(kind, name, [f"n{max(number - 1, 0)}"], seed)})
        for number, name in enumerate(names(count))
    ]
    talk = Conversation(nodes)
    talk.start()
    return talk


def views(talk):
    return {name: next(iter(node.parts.values())).peers for name, node in talk.nodes.items()}


@pytest.mark.parametrize("kind", [Newscast, Cyclon])
def test_a_chain_of_contacts_becomes_a_random_graph(kind):
    talk = sampled_network(kind, 100)
    talk.run(30_000)
    seen = views(talk)
    assert all(15 <= len(view) <= 20 for view in seen.values())
    popularity = [sum(name in view for view in seen.values()) for name in seen]
    assert max(popularity) <= 70  # nobody is in most views, although the contacts at the start were a chain
    edges = [(name, peer) for name, view in seen.items() for peer in view]
    assert nx.is_connected(nx.Graph(edges))
    assert len(nx.Graph(edges)) == 100


@pytest.mark.parametrize("kind", [Newscast, Cyclon])
def test_samples_over_time_favour_nobody(kind):
    talk = sampled_network(kind, 40)
    talk.run(20_000)
    drawn: list[str] = []
    for _ in range(300):
        talk.run(1_000, check=False)
        drawn += next(iter(talk.nodes["n0"].parts.values())).sample(2)
    counts = [drawn.count(name) for name in names(40)[1:]]
    mean = len(drawn) / 39
    assert counts
    assert max(counts) < mean + 6 * math.sqrt(mean)
    assert min(counts) > 0


@pytest.mark.parametrize(("kind", "rounds"), [(Newscast, 31), (Cyclon, 61)])
def test_the_dead_are_forgotten(kind, rounds):
    talk = sampled_network(kind, 30)
    talk.run(20_000)
    for name in names(10):
        talk.crash(name)
    talk.run(1_000 * rounds + 2_000)
    assert not {name for view in views(talk).values() for name in view} & set(names(10))


def test_a_newscast_exchange_is_a_request_and_a_reply_with_both_views():
    alice = sampler(Newscast, "alice", ["bob"])
    bob = sampler(Newscast, "bob", [])
    bob.table.merge([Descriptor("carol", age=2)])
    request = alice.on_timer("newscast/exchange")[0]
    assert request == Send("bob", NewscastRequest((Descriptor("alice"),)))
    (reply,) = bob.on_message("alice", request.message)
    assert reply == Send("alice", NewscastReply((Descriptor("bob"), Descriptor("carol", age=3))))  # a hop older
    assert alice.on_message("bob", reply.message) == []
    assert sorted(alice.peers) == ["bob", "carol"]
    assert sorted(bob.peers) == ["alice", "carol"]


def test_newscast_keeps_the_freshest_and_breaks_ties_by_chance():
    kept = set()
    for seed in range(20):
        part = sampler(Newscast, "me", [], seed, NewscastConfig(view_size=3))
        told = [Descriptor("young", age=0), *(Descriptor(f"tied{number}", age=1) for number in range(4))]
        part.on_message("x", NewscastReply((*told, Descriptor("old", age=2))))
        part.check()
        assert "young" in part.peers
        assert "old" not in part.peers
        kept.update(part.peers)
    assert kept == {"young", "tied0", "tied1", "tied2", "tied3"}


def test_a_lonely_newscast_node_turns_to_its_first_contacts():
    part = sampler(Newscast, "me", ["contact"], config=NewscastConfig(lonely_rounds=3))
    part.on_message("contact", NewscastReply((Descriptor("gone"),)))
    asked = [part.on_timer("newscast/exchange")[0].to for _ in range(6)]
    assert asked == ["gone"] * 3 + ["contact"] * 3


def test_a_cyclon_shuffle_swaps_entries_and_loses_none():
    alice = sampler(Cyclon, "alice", [], config=CyclonConfig(view_size=3, shuffle_size=3))
    bob = sampler(Cyclon, "bob", [], config=CyclonConfig(view_size=3, shuffle_size=3))
    alice.table.merge([Descriptor("bob", age=5), Descriptor("c"), Descriptor("d")])
    bob.table.merge([Descriptor("e"), Descriptor("f"), Descriptor("g")])
    (request, _) = alice.on_timer("cyclon/shuffle")
    assert request.to == "bob"  # the oldest
    assert "bob" not in alice.peers
    (reply,) = bob.on_message("alice", request.message)
    alice.on_message("bob", reply.message)
    for part in (alice, bob):
        part.check()
        assert len(part.peers) == 3
    assert set(alice.peers) | set(bob.peers) >= {"alice", "c", "d", "e", "f", "g"}
    assert "alice" in bob.peers


def test_tman_finds_the_neighbours_on_a_line():
    """The selection prefers near numbers; from random samples everybody finds the two next to it."""
    count = 60
    everybody = names(count)

    def nearest(number, candidates):
        return [item.node for item in sorted(candidates, key=lambda item: abs(int(item.node[1:]) - number))[:4]]

    nodes = []
    for number, name in enumerate(everybody):
        random = Random(stream(3, "tman", name))
        samples = partial(lambda random: [Descriptor(peer) for peer in random.sample(everybody, 3)], random)
        part = TMan("line", partial(Descriptor, name), partial(nearest, number), samples, random)
        nodes.append(Parts(name, line=part))
    talk = Conversation(nodes)
    talk.start()
    talk.run(25_000)
    for number in range(1, count - 1):
        assert {f"n{number - 1}", f"n{number + 1}"} <= set(talk.nodes[f"n{number}"].parts["line"].peers)


def test_two_layers_of_tman_do_not_hear_each_other():
    def layer(name):
        def keep_all(candidates):
            return [item.node for item in candidates]

        return TMan(name, partial(Descriptor, "me"), keep_all, list, Random(1))

    ring, line = layer("ring"), layer("line")
    ring.learn([Descriptor("a")])
    request = ring.on_timer("ring/exchange")[0].message
    assert line.on_message("a", request) == []
    assert line.peers == []


def ring_network(count, length, seed=1, samples=True):
    everybody = names(count)
    nodes = []
    for name in everybody:
        random = Random(stream(seed, "ring", name))
        sampling = sampler(Newscast, name, random.sample(everybody, min(4, count)), seed)
        ring = Ring(partial(Descriptor, name), sampling.told if samples else list, random, length=length)
        nodes.append(Parts(name, newscast=sampling, ring=ring))
    talk = Conversation(nodes)
    talk.start()
    return talk


def assert_rings_are_true(talk, length):
    """Against the definition: sort everybody by identifier, and look to the right and to the left."""
    circle = sorted(talk.nodes, key=identifier)
    for place, name in enumerate(circle):
        others = circle[place + 1 :] + circle[:place]
        ring = talk.nodes[name].parts["ring"]
        assert ring.successors == others[:length]
        assert ring.predecessors == others[::-1][:length]


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 60])
def test_the_ring_closes(count, length):
    talk = ring_network(count, length)
    talk.run(25_000)
    assert_rings_are_true(talk, length)
    if count == 1:
        ring = talk.nodes["n0"].parts["ring"]
        assert (ring.successor, ring.predecessor) == ("n0", "n0")


def test_the_ring_mends_where_neighbours_crash_together():
    talk = ring_network(60, 3)
    talk.run(25_000)
    circle = sorted(talk.nodes, key=identifier)
    for name in circle[10:14]:
        talk.crash(name)
    talk.run(45_000)  # descriptors of the dead grow too old; nobody was told
    assert_rings_are_true(talk, 3)


def test_a_reported_crash_is_not_believed_away_by_old_news():
    talk = ring_network(12, 2)
    talk.run(20_000)
    circle = sorted(talk.nodes, key=identifier)
    gone, successor = circle[4], circle[5]
    talk.crash(gone)
    ring = talk.nodes[successor].parts["ring"]
    ring.on_peer_down(gone)
    assert ring.is_coordinator(gone)
    for _ in range(10):
        talk.run(1_000)
        assert gone not in ring.tman.peers
        assert ring.predecessor == circle[3]


@pytest.mark.parametrize("length", [1, 3])
def test_a_ring_keeps_the_nearest_of_all_it_was_told_in_their_order(length):
    """For owners all around the circle: the far side holds the place 0 for most of them, and not for some."""
    everybody, random = names(80), Random(1)
    circle = sorted(everybody, key=identifier)
    for place, name in enumerate(circle):
        ring = Ring(partial(Descriptor, name), list, random, length=length)
        others = circle[place + 1 :] + circle[:place]
        told = random.sample(others, len(others))
        while told:
            ring.tman.learn([Descriptor(one) for one in told[:7]])
            told = told[7:]
            ring.check()
        assert ring.tman.peers == others[: ring.kept] + others[-ring.kept :]


def test_newscast_tells_what_it_knows_now_after_every_input():
    sampling = sampler(Newscast, "n0", [], 1)

    def told():
        assert sampling.told() == sampling.table.describe(hops=1)
        return {one.node: one.age for one in sampling.told()}

    assert told() == {}
    sampling.learn([Descriptor("n1"), Descriptor("n2", age=3)])
    assert told() == {"n1": 1, "n2": 4}
    sampling.on_timer("newscast/exchange")
    assert told() == {"n1": 2, "n2": 5}
    sampling.on_message("n2", NewscastReply((Descriptor("n2"),)))
    assert told() == {"n1": 2, "n2": 1}
    sampling.on_peer_down("n1")
    assert told() == {"n2": 1}


def test_distances_on_the_ring():
    assert clockwise(RING - 1, 1) == 2
    assert clockwise(1, RING - 1) == RING - 2
    assert ring_distance(1, RING - 1) == 2
    assert identifier("abc") == 0xA9993E364706816ABA3E25717850C26C9CD0D89D  # FIPS 180


def test_the_node_at_or_after_a_place_is_responsible_for_it():
    ring = Ring(partial(Descriptor, "n0"), list, Random(1), length=2)
    assert ring.responsible(0) == "n0"
    ring.tman.learn([Descriptor("n1"), Descriptor("n2")])
    circle = sorted(["n0", "n1", "n2"], key=identifier)
    for place, name in enumerate(circle):
        assert ring.responsible(identifier(name)) == name
        assert ring.responsible((identifier(name) + 1) % RING) == circle[(place + 1) % 3]


def gossip_network(count, config=None):
    table, nodes = TopicTable(), []
    for number, name in enumerate(names(count)):
        random = Random(stream(5, "view", name))
        own = partial(Descriptor, name, 0, 1, (f"t{number % 7}",))
        nodes.append(Parts(name, newscast=GossipView(own, ["n0"], table, random, config)))
    talk = Conversation(nodes)
    talk.start()
    return talk


def test_a_gossip_view_knows_almost_everybody_and_what_they_want():
    talk = gossip_network(60)
    talk.run(40_000)
    for node in talk.nodes.values():
        part = node.parts["newscast"]
        assert len(part.view) >= 55
        for peer in part.view.names:
            assert part.view.interest_of(peer) == part.topics.bits((f"t{int(peer[1:]) % 7}",))


def test_a_gossip_view_forgets_the_dead_and_stays_within_its_limit():
    talk = gossip_network(50, GossipViewConfig(entries_max=30, age_max=30))
    talk.run(30_000)
    for name in names(10)[1:]:
        talk.crash(name)
    talk.run(33_000)
    for node in talk.nodes.values():
        part = node.parts["newscast"]
        assert len(part.view) == 30
        assert not set(part.view.names) & set(names(10)[1:])


@pytest.mark.parametrize(
    "refused",
    [
        partial(NewscastConfig, view_size=0),
        partial(NewscastConfig, view_size=2_000),
        partial(CyclonConfig, shuffle_size=21),
        partial(CyclonConfig, period_ms=0),
        partial(GossipViewConfig, entries_max=0),
    ],
)
def test_nonsense_is_refused(refused):
    with pytest.raises(InputError):
        refused()
