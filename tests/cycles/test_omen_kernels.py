"""OMen in cycles: kernels against the protocol's own functions and objects, on the same random inputs."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import cycles_omen as slow
from trellis.cycles.backups import ROUTINES, choose_backups, make_offers, turn_pairs
from trellis.cycles.chance import stream
from trellis.cycles.instance import Instance, make_instance
from trellis.cycles.local_views import learn
from trellis.cycles.omen_run.repair import Hints, Overlay
from trellis.cycles.paths import label_parts
from trellis.cycles.pool import add_to_row, drop_from_row, find_in_row, make_pool, more_room, rows_of_links
from trellis.cycles.view_state import Standing, Terms, make_desk, make_local_views
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.omen import OMenConfig
from trellis.protocols.omen import cover as protocol
from trellis.protocols.omen import views as protocol_views
from trellis.protocols.omen.me import Me
from trellis.protocols.topics import TopicTable

seeds = st.integers(0, 2**32)


@pytest.mark.parametrize("routine", ROUTINES)
@settings(max_examples=150)
@given(
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 4)), max_size=12),
    st.integers(0, 4),
    seeds,
)
def test_kernels_choose_the_protocols_backups(routine, topics, candidates, coverage, seed):
    """The same nodes in the same order, with equal weights and equal numbers of topics among the candidates."""
    wanted = (1 << topics) - 1
    named = [protocol.Candidate(f"n{place:02}", bits, weight) for place, (bits, weight) in enumerate(candidates)]
    chance = stream(seed, "cover")
    expected = protocol.choose_backups(routine, wanted, named, coverage, slow.Draws(int(chance[0])))
    offers, count = make_offers(len(named), 8 * len(named) + 1, topics), 0
    shuffled = list(enumerate(candidates))
    Random(seed).shuffle(shuffled)  # Kernels need no order.
    for node, (bits, weight) in shuffled:
        places = [place for place in range(topics) if bits >> place & 1]
        if places:
            end = int(offers.offsets[count])
            offers.places_of[end : end + len(places)] = places
            offers.nodes[count], offers.weights[count] = node, weight
            count += 1
            offers.offsets[count] = end + len(places)
    turn_pairs(offers, count, topics)
    offers.chance[0] = chance[0]
    chosen = choose_backups(ROUTINES[routine], coverage, offers, count, topics)
    assert [f"n{node:02}" for node in offers.nodes[offers.chosen[:chosen]].tolist()] == expected


def wanted_of(nodes: int, topics: int, random: Random) -> dict[str, tuple[str, ...]]:
    names = [f"t{topic:02}" for topic in range(topics)]
    return {f"n{node:02}": tuple(sorted(random.sample(names, random.randint(1, topics)))) for node in range(nodes)}


def links_of(nodes: int, count: int, random: Random) -> list[tuple[int, int]]:
    pairs = [(one, other) for one in range(nodes) for other in range(one + 1, nodes)]
    return random.sample(pairs, min(count, len(pairs)))


def standing_of(instance: Instance, links: list[tuple[int, int]]) -> Standing:
    ends, nodes = np.array(links, np.int64).reshape(-1, 2), len(instance.nodes)
    rows = rows_of_links(nodes, ends[:, 0], ends[:, 1])
    return Standing(np.ones(nodes, np.bool_), rows, np.zeros(nodes, np.int32), np.full((nodes, 4), -1, np.int32))


@settings(max_examples=40, deadline=None)
@given(st.integers(4, 14), st.integers(2, 8), st.sampled_from(sorted(ROUTINES)), st.integers(0, 3), seeds)
def test_a_table_of_the_kernel_keeps_what_the_protocol_keeps(nodes, topics, routine, coverage, seed):
    """Nodes tell a node of others, round by round: its table, its views and what it shares are those of `Views`."""
    random = Random(seed)
    wanted = wanted_of(nodes, topics, random)
    instance = make_instance(wanted)
    standing = standing_of(instance, links_of(nodes, 2 * nodes, random))
    standing.primaries[:] = [random.randrange(5) for _ in range(nodes)]
    config = OMenConfig(coverage=coverage, resilience=1, backups=routine, ready_rounds=2, view_rounds=4)
    kernel_seed = int(stream(seed, "covers")[0])
    terms = Terms(ROUTINES[routine], coverage, 1, 2, config.join_rounds, 4, False, np.uint64(kernel_seed))
    views, desk = make_local_views(nodes, 1), make_desk(instance.wants)
    neighbors = standing.links.data[standing.links.start[1] :][: standing.links.count[1], 0].tolist()
    views.count[0], views.whose[0, 0], views.held[0, 0] = 1, 1, True
    views.joiner[0, 0] = random.random() < 0.3

    table = TopicTable()
    table.own_bits(tuple(instance.topics))
    me = Me(instance.nodes[0], wanted[instance.nodes[0]], table, 1)
    me.degree = int(standing.links.count[0])
    me.primaries = dict.fromkeys(map(str, range(int(standing.primaries[0]))), 0)
    state = slow.stream_of_a_view(kernel_seed, 0, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol_views, "ids", SimpleNamespace(stream=lambda *labels: state))
        patch.setattr(protocol_views, "Random", slow.Draws)
        twin = protocol_views.Views(me, config, list, list, Random(1), 1)
        names = [instance.nodes[peer] for peer in neighbors]
        of_one = protocol_views.Wanted(
            instance.nodes[1], table.bits(wanted[instance.nodes[1]]), names, bool(views.joiner[0, 0])
        )
        twin.want([of_one])
        for _ in range(7):
            views.clock[0] += 1
            views.rounds[0, 0] += 1
            twin.tman.table.advance()
            twin.views[instance.nodes[1]].rounds += 1
            for _ in range(random.randint(1, 2)):
                told = [
                    (peer, random.randint(0, 6), random.randint(0, 6), random.randint(0, 3))
                    for peer in random.sample(range(nodes), random.randint(1, nodes))
                ]
                twin.tman.learn(
                    [Descriptor(instance.nodes[p], age, 1, wanted[instance.nodes[p]], (w, d)) for p, age, w, d in told]
                )
                lines = np.array(told, np.int32)
                learn(views, standing, instance.wants, terms, desk, 0, lines, len(lines))
                begin, end = views.known.start[0], views.known.start[0] + views.known.count[0]
                found = [(instance.nodes[p], born, (w, d)) for p, born, w, d in views.known.data[begin:end].tolist()]
                assert found == [(name, born, one.numbers) for name, (born, one) in twin.tman.table.entries.items()]
                assert [name for name, _, _ in found[: views.shared[0]]] == twin.peers
                row = views.row[0, 0]
                backups = views.backups.data[views.backups.start[row] :][: views.backups.count[row], 0].tolist()
                view = twin.views[instance.nodes[1]]
                assert [instance.nodes[peer] for peer in backups] == view.backups
                assert bool(views.ready[0, 0]) == view.ready


def overlay_of(instance: Instance, links: list[tuple[int, int]]) -> Overlay:
    standing, nodes = standing_of(instance, links), len(instance.nodes)
    made = Overlay(instance, OMenConfig(), 1, standing.alive, np.ones(nodes, np.int32), np.zeros(nodes, np.bool_))
    made.links = standing.links
    return made


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(1, 4), seeds)
def test_root_paths_are_the_protocols_hints_at_rest(nodes, topics, seed):
    random = Random(seed)
    wanted = wanted_of(nodes, topics, random)
    instance, links = make_instance(wanted), links_of(nodes, 2 * nodes, random)
    names = instance.nodes
    expected = slow.paths_at_rest(wanted, [(names[one], names[other]) for one, other in links])
    hints = Hints(overlay_of(instance, links), -1, ())
    for number, name in enumerate(names):
        for topic in hints.overlay.topics(number):
            path = tuple(names[step] for step in hints.path(topic, number))
            assert path == expected[name][instance.topics[topic]]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(1, 3), seeds)
def test_parts_are_those_of_a_slow_search(nodes, topics, seed):
    random = Random(seed)
    instance, links = make_instance(wanted_of(nodes, topics, random)), links_of(nodes, nodes, random)
    overlay = overlay_of(instance, links)
    overlay.alive[random.randrange(nodes)] = False
    neighbors = {node: set(overlay.neighbors(node)) for node in range(nodes)}
    for topic in range(len(instance.topics)):
        starts, out = random.sample(range(nodes), random.randint(1, nodes)), {random.randrange(nodes)}
        members = {node for node in overlay.members(topic).tolist() if overlay.alive[node]}
        gone = np.array(sorted(out), np.int64)
        found = label_parts(
            overlay.links, overlay.alive, overlay.members(topic), np.array(starts, np.int64), gone, overlay.search
        )
        assert found.tolist() == slow.labels(neighbors, members - out, starts)
        roots = overlay.roots(topic)
        every = slow.labels(neighbors, members, sorted(members))
        assert len(roots) == overlay.count_parts(topic) == len(set(every))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 9)), max_size=60))
def test_a_pool_is_its_lists(rows, steps):
    pool, lists = make_pool(rows, 1, 2, 8), [[] for _ in range(rows)]
    for adds, row, value in steps:
        row %= rows
        if adds and value not in lists[row]:
            if pool.used[0] + 2 * int(pool.room.max()) > len(pool.data):
                pool = more_room(pool, 2 * int(pool.room.max()) + 8)
            add_to_row(pool, row, value)
            lists[row].append(value)
        elif not adds:
            place = lists[row].index(value) if value in lists[row] else -1
            assert find_in_row(pool, row, value) == drop_from_row(pool, row, value) == place
            if place >= 0:
                lists[row].remove(value)
        for one in range(rows):
            assert pool.data[pool.start[one] :][: pool.count[one], 0].tolist() == lists[one]
