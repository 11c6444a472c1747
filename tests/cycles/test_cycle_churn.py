"""Joins and leaves in cycles."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trellis
from both_engines import interests_of, system_of
from trellis.cycles.instance import make_instance
from trellis.cycles.network import Network, OptNetwork, make_network
from trellis.cycles.newscast import peers_of
from trellis.cycles.presence import ROUND, SUSPECTS, is_buried, is_silent, make_presence, suspect
from trellis.cycles.spread import HITS, MISSED
from trellis.errors import InputError
from trellis.model import ChurnTrace
from trellis.simulate.run import topics_by_node
from trellis.simulate.schedule import Fault, Schedule

SYSTEMS = ("vitis", "rvr", "opt")


def network_of(name: str, nodes: int, absent: tuple[int, ...] = (), seed: int = 1, **options: int) -> Network:
    wanted = topics_by_node(interests_of(nodes, 20, 4, "random", seed))
    return make_network(make_instance(wanted), system_of(name, table_size=5, **options).config, seed, absent)


def tables_of(network: Network) -> list[list[int]]:
    rows = network.agreed.table if isinstance(network, OptNetwork) else network.tables.peers  # type: ignore[attr-defined]
    return [rows[node, : network.table_counts[node]].tolist() for node in range(len(rows))]


def silent_since(network: Network, node: int, peer: int) -> int:
    """Return since when `node` misses `peer`. It looks once per round, so it may have the peer since it last did."""
    presence, suspects = network.presence, network.presence.suspects[node].tolist()
    return int(presence.missed[node, suspects.index(peer)]) if peer in suspects else network.round - 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 3)), max_size=60), st.integers(1, 4))
def test_silent_nodes_are_dropped_after_the_threshold_and_remembered(steps, silence_max):
    """The kernels do what a dictionary of silent nodes does."""
    presence, known, now = make_presence(6, silence_max, 10), dict[int, int](), 0
    for peer, alive, rounds in steps:
        now += rounds
        presence.clock[ROUND], presence.alive[peer] = now, alive
        dropped = not alive and peer in known and now - known[peer] > silence_max
        assert is_buried(presence, 0, peer) == dropped
        assert is_silent(presence, 0, peer) == dropped
        if not alive:
            known.setdefault(peer, now)


def test_more_silent_nodes_than_can_be_remembered_push_out_the_oldest():
    presence = make_presence(SUSPECTS + 2, 1, 10)
    presence.alive[1:], presence.clock[ROUND] = False, 9
    for peer in range(1, SUSPECTS + 2):
        suspect(presence, 0, peer, 1)
    assert [is_buried(presence, 0, peer) for peer in range(1, SUSPECTS + 2)] == [False] + [True] * SUSPECTS


@pytest.mark.parametrize("name", SYSTEMS)
def test_who_leaves_is_forgotten_and_who_joins_is_found(name):
    """P1 holds in every round of a run in which a third of the nodes come and go."""
    network, random = network_of(name, 36, absent=(1, 4, 7)), Random(5)
    for turn in range(34):
        if turn in range(4, 16):
            alive = np.flatnonzero(network.presence.alive).tolist()
            leaver = random.choice(alive)
            held = [node for node in alive if leaver in tables_of(network)[node]]
            network.leave(leaver)
            assert not any(leaver in tables_of(network)[node] for node in held)
            assert not any(leaver in peers_of(network.views, node) for node in held)
            if turn % 2:
                joiner = random.choice(np.flatnonzero(~network.presence.alive).tolist())
                network.join(joiner)
                assert not tables_of(network)[joiner]
        network.cycle()
        for node, table in enumerate(tables_of(network)):
            assert len(set(table)) == len(table)
            assert node not in table
            if not network.presence.alive[node]:
                assert not table
            for peer in table:
                if not network.presence.alive[peer] and network.presence.since[node] < turn:
                    assert turn - silent_since(network, node, peer) <= 5
    alive = network.presence.alive
    assert 20 < alive.sum() < 36
    assert all(alive[peer] for node, table in enumerate(tables_of(network)) if alive[node] for peer in table)
    ends = np.concatenate(network.standing)
    assert alive[ends].all()
    assert len(network.degrees) == alive.sum()
    if name != "opt":
        assert set(ends.tolist()) == set(np.flatnonzero(alive).tolist())
        wants = network.instance.wants
        living = [node for node in wants.subscribers[: wants.topic_offsets[1]].tolist() if alive[node]]
        tally = network.publish([0], living[:1])
        assert tally.totals[HITS] == len(living) - 1
        assert tally.totals[MISSED] == 0


def test_expected_is_whoever_was_there_for_ten_seconds_and_stays_for_ten():
    """Nobody is linked: only the publisher has the event."""
    network = network_of("rvr", 12, absent=(2, 3))
    wants = network.instance.wants
    topic = int(np.argmax(np.diff(wants.topic_offsets)))
    wanting = wants.subscribers[wants.topic_offsets[topic] : wants.topic_offsets[topic + 1]].tolist()
    assert len(wanting) > 3
    presence = network.presence
    presence.clock[ROUND] = 20
    assert network.publish([topic], wanting[:1]).totals[MISSED] == len([n for n in wanting[1:] if n not in (2, 3)])
    presence.alive[:], presence.since[wanting[1]], presence.until[wanting[2]] = True, 11, 30
    assert network.publish([topic], wanting[:1]).totals[MISSED] == 2 * len(wanting) - 2 - 2 - len({2, 3} & {*wanting})


def test_a_trace_and_a_schedule_give_the_same_run_and_the_series_shows_who_is_there():
    interests = interests_of(40, 20, 4, "random", 1)
    names = sorted(topics_by_node(interests))
    late, early = names[:4], names[4:8]
    rows = [(9.5, late[0], "join", None), (9.7, late[1], "join", None), (12.0, early[0], "leave", None)]
    faults = tuple(Fault(int(1000 * at), event, (node,)) for at, node, event, _ in rows)
    runs = [
        trellis.simulate("vitis", interests, engine="cycles", duration_s=16, options={"publications": 0}, **how)
        for how in ({"churn": ChurnTrace.from_rows(rows)}, {"schedule": Schedule(faults, (late[0], late[1]))})
    ]
    assert runs[0].summary()["digest"] == runs[1].summary()["digest"]
    assert runs[0].summary()["nodes"] == 39
    table = runs[0].probe.table().to_pylist()
    there = {row["time"]: row["value"] for row in table if row["metric"] == "nodes"}
    assert [there[at] for at in (9, 10, 12)] == [38, 40, 39]


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ((Fault(1, "crash", ("v",)),), '"crash"'),
        ((Fault(1, "join", ("nobody",)),), '"nobody" is not known'),
        ((Fault(1, "publish"),), "names too little"),
    ],
)
def test_what_cannot_happen_in_cycles_is_refused_with_a_sentence(faults, sentence):
    interests = interests_of(12, 8, 3, "random", 1)
    with pytest.raises(InputError, match=sentence):
        trellis.simulate("vitis", interests, engine="cycles", duration_s=1, schedule=Schedule(faults))
