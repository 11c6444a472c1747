"""OSCAR in cycles: kernels against the protocol's own functions, on the same random inputs, ties included.

The protocol's labels are bytes, those of the kernels the same bytes as a number. Rings are small and crowded, so that
nodes and targets have the same labels, arcs are empty, and medians fall together.
"""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.cycles_gossip import Chance
from trellis.cycles import fingers as kernels
from trellis.cycles.chance import stream
from trellis.cycles.fingers import FingerRule, make_estimate
from trellis.cycles.instance import make_instance
from trellis.cycles.oscar import (
    Oscar,
    add_finger,
    drop_finger,
    home_of,
    last_before,
    links_of,
    list_links,
    make_oscar,
    middle_behind,
    next_hop,
    owns,
    put_behind,
    spread_out,
    widened,
)
from trellis.cycles.oscar import labels_of as hashes_of
from trellis.protocols.effects import Send
from trellis.protocols.magnet.similarity import Similarity
from trellis.protocols.oscar import OscarConfig, Peer
from trellis.protocols.oscar.fingers import Fingers
from trellis.protocols.oscar.labels import hashed, inside, midpoint
from trellis.protocols.oscar.messages import Connect
from trellis.protocols.oscar.oscar import Oscar as OscarNode
from trellis.protocols.oscar.table import Table
from trellis.protocols.topics import TopicTable

NODES = 14
seeds = st.integers(0, 2**32)


def bytes_of(label: int) -> bytes:
    return int(label).to_bytes(8, "big").rstrip(b"\0")


def ring_of(seed: int, links: int = 8, steps: int = 40) -> tuple[Oscar, list[int]]:
    """Some nodes on a ring of few labels, with fingers at random. Return it, and the nodes that are on it in order."""
    random = Random(seed)
    ring = make_oscar(NODES, links, np.random.default_rng(seed))
    step = 2**64 // steps
    places = {node: step * place for node, place in enumerate(random.sample(range(steps), NODES))}
    on_it = sorted(random.sample(range(NODES), random.randint(1, NODES)), key=lambda node: places[node])
    for turn, node in enumerate(on_it):
        put_behind(ring, node, on_it[turn - 1] if turn else -1, np.uint64(places[node]))
    for node in on_it:
        others = [peer for peer in on_it if peer not in (node, ring.after[node])]
        for slot, peer in enumerate(random.sample(others, min(len(others), random.randint(0, ring.wanted[node])))):
            add_finger(ring, node, slot, peer)
    return ring, on_it


def table_of(ring: Oscar, node: int, successors: int = 1) -> Table:
    """The same table in the protocol."""
    table = Table(f"v{node:02}", 1)
    table.move(bytes_of(ring.labels[node]))
    peer = int(ring.after[node])
    while peer != node and len(table.successors) < successors:
        table.successors.append(peer_of(ring, peer))
        peer = int(ring.after[peer])
    if ring.before[node] != node:
        table.predecessor = peer_of(ring, ring.before[node])
    table.fingers = {f"v{peer:02}": peer_of(ring, peer) for peer in ring.fingers[node] if peer >= 0}
    table.guests = {f"v{peer:02}": peer_of(ring, peer) for peer in ring.guests[node, : ring.guest_count[node]]}
    table.touch()
    return table


def away(start: int, end: int) -> np.uint64:
    """Return how far it is clockwise. Plain numbers of numpy warn where the ring wraps."""
    return np.uint64((int(end) - int(start)) % 2**64)


def peer_of(ring: Oscar, node: int) -> Peer:
    return Peer(f"v{int(node):02}", bytes_of(ring.labels[node]), 1, 1)


def number(peer: Peer | None) -> int:
    return -1 if peer is None else int(peer.node[1:])


@given(seeds)
def test_routing_tables_route_and_own_as_the_protocols(seed):
    ring, on_it = ring_of(seed)
    random = Random(seed)
    for node in on_it:
        table = table_of(ring, node)
        targets = [*ring.labels[on_it], np.uint64(random.getrandbits(64)), away(2**64 - 1, ring.labels[node])]
        for target in targets:
            assert next_hop(ring, node, target) == number(table.next_hop(bytes_of(target)))
            assert owns(ring, node, target) == table.owns(bytes_of(target))
        links = np.empty(64, np.int32)
        found = links[: list_links(ring, node, links)].tolist()
        assert len(found) == len(set(found))
        assert set(found) == {number(peer) for peer in table.around}


@given(seeds)
def test_routes_end_at_the_owner_and_at_the_last_node_before(seed):
    ring, on_it = ring_of(seed)
    random = Random(seed)
    for start in on_it:
        target = random.choice([np.uint64(random.getrandbits(64)), ring.labels[random.choice(on_it)]])
        owner = min(on_it, key=lambda node: away(target, ring.labels[node]))
        assert home_of(ring, start, target)[0] == owner
        if target not in ring.labels[on_it]:
            last, hops = last_before(ring, start, target)
            assert last == ring.before[owner] or len(on_it) == 1
            assert hops < len(on_it)
    ends = {frozenset(ends) for ends in zip(*(end.tolist() for end in links_of(ring)), strict=True)}
    expected = {frozenset((n, number(p))) for n in on_it for p in table_of(ring, n).around}
    assert ends == expected


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_label_in_the_middle_is_the_protocols(start, end):
    ring = make_oscar(2, 8, np.random.default_rng(1))
    put_behind(ring, 0, -1, np.uint64(start))
    if end != start:
        put_behind(ring, 1, 0, np.uint64(end))
    if (end - start) % 2**64 == 1:
        return  # Others are spread out then.
    exact = int.from_bytes(midpoint(bytes_of(start), bytes_of(end)).ljust(9, b"\0"), "big") >> 8
    assert middle_behind(ring, 0) == exact


def test_names_have_the_first_bits_of_the_protocols_labels():
    names = ["a", "v17", "", "Ünïcode"]
    assert [int(label) for label in hashes_of(names)] == [int.from_bytes(hashed(n)[:8], "big") for n in names]


@given(seeds, st.integers(0, 60))
def test_nodes_that_are_spread_out_keep_their_order_and_have_room(seed, crowd):
    """A crowd with consecutive labels, behind one node; others are farther away, or there are none."""
    random, nodes = Random(seed), crowd + 3
    ring = make_oscar(nodes, 8, np.random.default_rng(seed))
    start = np.uint64(random.getrandbits(64))
    put_behind(ring, 0, -1, start)
    for node in range(1, crowd + 1):
        put_behind(ring, node, node - 1, away(-int(start), node))
    if random.random() < 0.5:
        put_behind(ring, crowd + 1, crowd, away(-int(start), 1 << random.randint(10, 63)))
    ranks = [0]
    while ring.after[ranks[-1]] != 0:
        ranks.append(int(ring.after[ranks[-1]]))
    spread_out(ring, 0)
    found = [int(away(start, ring.labels[node])) for node in ranks]
    assert found[0] == 0
    assert found == sorted(set(found))
    if crowd:
        assert found[1] >= 1 << 16
        assert away(start, middle_behind(ring, 0)) == found[1] // 2


class Drawn(Random):
    """A `Random` that draws from the stream of a kernel."""

    def __init__(self, chance: np.ndarray) -> None:
        super().__init__(0)
        self.chance = Chance(int(chance[0]))

    def randrange(self, count: int) -> int:
        return self.chance.below(count)


def fingers_of(ring: Oscar, node: int, config: OscarConfig, chance: np.ndarray, likings: dict | None) -> Fingers:
    """The fingers of the protocol, with the same table, draws of partitions, and stream."""
    similarity = (lambda interest: likings[interest]) if likings is not None else None
    made = OscarNode("x", f"v{node:02}", lambda: None, Random(1), config, similarity=similarity).fingers
    made.table = made.ring.table = table_of(ring, node, config.successors)
    made.wanted, made._shares = int(ring.wanted[node]), ring.shares[node].tolist()
    made._holder = {slot: f"v{peer:02}" for slot, peer in enumerate(ring.fingers[node]) if peer >= 0}
    made.random = Drawn(chance)
    return made


@settings(max_examples=150)
@given(seeds, st.integers(1, 6), st.booleans())
def test_medians_partitions_and_fingers_are_those_of_the_protocol(seed, walks, two):
    """Both get the same ends of walks, arc by arc, with repeats, and choose with draws from the same stream."""
    random = Random(seed)
    ring, on_it = ring_of(seed)
    node = random.choice(on_it)
    if len(on_it) == 1:
        return
    likings = {peer: random.choice([0.0, 0.25, 0.5, 1.0]) for peer in on_it}
    config = OscarConfig(links=8, walks=walks, two_choices=two)
    rule = FingerRule(walks, config.walk_steps, config.successors, two, config.guests_max)
    scratch, chance = make_estimate(ring, rule), stream(seed, "fingers")
    told = {(f"t{peer}",): value for peer, value in likings.items()}
    expected = fingers_of(ring, node, config, chance, told if two else None)

    expected._estimating = True
    scratch.counts[:] = 0
    begin, is_over, sent, end = ring.labels[node], False, [], ring.labels[node]
    while not is_over:
        arc = [p for p in on_it if inside(bytes_of(ring.labels[p]), bytes_of(begin), bytes_of(end))]
        if not arc:
            break
        ends = sorted((random.choice(arc) for _ in range(walks)), key=lambda peer: away(begin, ring.labels[peer]))
        for peer in ends:
            scratch.pool[scratch.counts[1]], scratch.likings[scratch.counts[1]] = peer, likings[peer]
            scratch.counts[1] += 1
        is_over = kernels.halve(ring, node, ends[(walks - 1) // 2], rule, scratch)
        expected._walked = [(peer_of(ring, peer), likings[peer] if two else 0.0) for peer in ends]
        random.shuffle(expected._walked)
        expected._sample = lambda _: []  # No walk is sent. The test says where walks end.
        effects = expected._halve()
        assert expected._estimating != is_over
        assert [away(begin, ring.labels[number(m)]) for m in expected.medians] == scratch.medians[
            : scratch.counts[0]
        ].tolist()
        sent = [number(Peer(e.to, b"")) for e in effects if isinstance(e, Send) and isinstance(e.message, Connect)]
        end = away(-int(begin), scratch.medians[scratch.counts[0] - 1])
    if not is_over:
        sent = [number(Peer(e.to, b"")) for e in expected._finish() if isinstance(e.message, Connect)]
    for peer in on_it:
        if peer != node:
            part = kernels.partition_of(scratch.medians, scratch.counts[0], away(begin, ring.labels[peer]))
            assert part == expected.partition_of(bytes_of(ring.labels[peer]))
    kernels.choose_fingers(ring, node, rule, chance, scratch)
    held = {slot: f"v{peer:02}" for slot, peer in enumerate(ring.fingers[node]) if peer >= 0}
    assert held == expected._holder
    assert [name for name in held.values() if name not in expected.table.fingers] == [f"v{peer:02}" for peer in sent]
    assert_fingers_and_guests_agree(ring, on_it)


def assert_fingers_and_guests_agree(ring: Oscar, on_it: list[int]) -> None:
    """Check G2."""
    held = sorted((int(peer), node) for node in on_it for peer in ring.fingers[node] if peer >= 0)
    assert held == sorted((node, int(guest)) for node in on_it for guest in ring.guests[node, : ring.guest_count[node]])
    assert len(set(held)) == len(held)


@settings(max_examples=60)
@given(seeds, st.integers(1, 9))
def test_a_walk_steps_over_each_link_inside_its_arc_with_the_same_chance(seed, steps):
    random = Random(seed)
    ring, on_it = ring_of(seed)
    origin, node = random.choice(on_it), random.choice(on_it)
    end = ring.labels[random.choice(on_it)]
    begin = ring.labels[origin]
    limit = away(1, away(begin, end))
    arc = bytes_of(begin), bytes_of(end)
    inner = sorted(number(p) for p in table_of(ring, node).around if inside(p.label, *arc))
    scratch = make_estimate(ring, FingerRule(3, steps, 4, False, 256))
    chance = stream(seed, "steps")
    found = [int(kernels.step(ring, node, begin, limit, chance, scratch.links)) for _ in range(300)]
    assert sorted(set(found)) == (inner or [-1])
    if inner:
        most, mean = max(map(found.count, inner)), 300 / len(inner)
        assert most <= mean + 6 * mean**0.5
    last = kernels.walk(ring, origin, away(begin, end), steps, chance, scratch.links, -1)
    first = [p for p in table_of(ring, origin).around if inside(p.label, *arc)]
    assert (last >= 0) == bool(first)
    assert last < 0 or inside(bytes_of(ring.labels[last]), *arc)


@given(seeds)
def test_estimates_keep_fingers_and_guests_in_step(seed):
    random = Random(seed)
    ring, on_it = ring_of(seed)
    wanted = {f"v{n:02}": tuple(random.sample("abcdef", 3)) for n in range(NODES)}
    interest = kernels.interest_of(make_instance(wanted).wants)
    rule = FingerRule(3, 4, 4, True, 256)
    scratch, chance = make_estimate(ring, rule), stream(seed, "walks")
    for node in random.choices(on_it, k=20 if len(on_it) > 1 else 0):
        kernels.estimate(ring, node, rule, interest, chance, scratch)
    assert_fingers_and_guests_agree(ring, on_it)
    for node in on_it:
        held = [int(peer) for peer in ring.fingers[node] if peer >= 0]
        assert node not in held
        if held:
            drop_finger(ring, node, ring.fingers[node].tolist().index(held[0]))
    assert_fingers_and_guests_agree(ring, on_it)


def test_a_node_that_is_everybodys_finger_gets_more_room_and_refuses_beyond_the_limit():
    ring = make_oscar(60, 8, np.random.default_rng(1))
    for node in range(60):
        put_behind(ring, node, node - 1, np.uint64(node << 32))
    for node in range(2, 33):
        add_finger(ring, node, 0, 0)
    assert not ring.state[1]
    add_finger(ring, 33, 0, 0)
    assert ring.state[1]
    ring = widened(ring)
    assert not ring.state[1]
    assert ring.guests.shape == (60, 64)
    rule = FingerRule(3, 4, 4, False, 32)
    scratch = make_estimate(ring, rule)
    scratch.counts[:], scratch.pool[0], scratch.likings[0] = (0, 1), 0, 0.0
    assert kernels.choose_fingers(ring, 40, rule, stream(1, "x"), scratch) == 0
    assert kernels.choose_fingers(ring, 40, rule._replace(guests_max=33), stream(1, "x"), scratch) == 1
    assert 0 in ring.fingers[40]


@given(seeds, st.booleans())
def test_likeness_is_the_protocols_similarity(seed, rated):
    random = Random(seed)
    topics = [f"t{place}" for place in range(8)]
    rates = {t: random.choice([0.0, 0.1, 0.3, 1 / 3]) for t in topics[:-1]} if rated else None
    wanted = {f"v{n:02}": tuple(sorted(random.sample(topics, random.randint(0, 6)))) for n in range(5)}
    wanted["v00"] = tuple(topics)
    instance = make_instance(wanted, rates)
    interest, table = kernels.interest_of(instance.wants), TopicTable()
    for node, name in enumerate(instance.nodes):
        kernels.mark_topics(interest, node)
        protocol = Similarity(wanted[name], table, rates)
        for other, other_name in enumerate(instance.nodes):
            assert kernels.likeness(interest, node, other) == protocol.of(wanted[other_name])
