"""SpiderCast in cycles: kernels against the protocol's own nodes draw by draw, and against slow twins."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.cycles_spidercast import Drawn, Mesh
from trellis.cycles.answers import refresh
from trellis.cycles.chance import stream
from trellis.cycles.choice import add_one, add_row, keep_most, make_full_view, one_of, ones
from trellis.cycles.instance import make_instance
from trellis.cycles.neighbor_network import NeighborNetwork
from trellis.cycles.neighbors import (
    ASKED,
    CHANGES,
    COUNT,
    DEGREE,
    HELD,
    PEER,
    REDIRECTS,
    REFUSED,
    RESTLESS,
    RESTS,
    TARGET,
    THEIR_TARGET,
    WILLING,
    K,
)
from trellis.cycles.wheel import make_wheel, next_timer, set_timer
from trellis.protocols.spidercast import SimilarityConfig, SpiderCastConfig

seeds = st.integers(0, 2**32)
FAST = {"heartbeat_ms": 200, "quarantine_ms": 450, "disconnect_timeout_ms": 110, "connect_timeout_ms": 50}
shared = {
    "margin": st.integers(0, 3),
    "drop_from": st.sampled_from(["target-reached", "above-target"]),
    "redirect_to": st.sampled_from(["margin", "target"]),
    "useful_redirects_only": st.booleans(),
    "remember_refusals": st.booleans(),
    "repair_only": st.booleans(),
}
covering = st.builds(
    lambda adaptive, random, **more: SpiderCastConfig(
        adaptive=adaptive and more["coverage_greedy"] > 0,
        coverage_random=0 if adaptive and more["coverage_greedy"] > 0 else random,
        **FAST,
        **more,
    ),
    st.booleans(),
    st.integers(0, 2),
    coverage_greedy=st.integers(0, 3),
    demand=st.sampled_from(["known", "literal"]),
    adaptive_random_max=st.integers(1, 3),
    **shared,
)
counting = st.builds(
    lambda **more: SimilarityConfig(**FAST, **more),
    links_similar=st.integers(0, 4),
    links_random=st.integers(0, 3),
    **shared,
)


def interests_of(nodes: int, topics: int, seed: int) -> dict[str, tuple[str, ...]]:
    random, names = Random(seed), [f"t{topic}" for topic in range(topics)]
    return {
        f"v{node:02}": tuple(sorted(random.sample(names, random.randint(1, min(4, topics))))) for node in range(nodes)
    }


def state_of(network: NeighborNetwork, me: int) -> dict[str, Any]:
    """Everything that a task keeps, by names."""
    tasks, names, nodes = network.tasks, network.instance.nodes, network.rule.nodes
    refresh(tasks, network.rule, me, network.tick - 1)
    row = slice(tasks.begin[me], tasks.begin[me] + tasks.state[me, COUNT])
    records, state = tasks.records[row], tasks.state[me]
    willing = sorted((record[WILLING], record[PEER]) for record in records.tolist() if record[WILLING])
    slots = range(network.instance.wants.offsets[me % nodes], network.instance.wants.offsets[me % nodes + 1])
    shift = me // nodes * network.instance.subscriptions
    return {
        "records": {names[one[PEER]]: (one[DEGREE], one[THEIR_TARGET], one[REFUSED]) for one in records.tolist()},
        "target": state[TARGET],
        "k": state[K],
        "changes": state[CHANGES],
        "asked": names[state[ASKED]] if state[ASKED] >= 0 else None,
        "willing": [names[peer] for _, peer in willing],
        "quarantine": {names[whom]: bool(awaited) for whom, _, awaited in tasks.quarantine[me, : state[HELD]].tolist()},
        "redirects": [names[peer] for peer in tasks.redirects[me, : state[REDIRECTS]]],
        "restless": bool(state[RESTLESS]),
        "rests": bool(state[RESTS]),
        "cover": [int(tasks.cover[shift + slot]) for slot in slots] if network.rule.covers else [],
    }


def protocol_state(mesh: Mesh, name: str, task_name: str) -> dict[str, Any]:
    node = mesh.nodes[name]
    task = node.tasks[task_name]  # type: ignore[index]
    covers = hasattr(task.goal, "coverage")
    bits = [node.me.table.bits((topic,)) for topic in node.me.topics]
    return {
        "records": {peer: (one.degree, one.target, one.refused_at) for peer, one in task.neighbors.items()},
        "target": task.target,
        "k": task.goal.k if covers else task.goal.links,
        "changes": task.changes,
        "asked": task.asked_to_part,
        "willing": list(task.willing),
        "quarantine": task.quarantine,
        "redirects": list(task.redirects),
        "restless": task._restless,
        "rests": task._rests,
        "cover": [task.goal.coverage.count(bit) for bit in bits] if covers else [],
    }


@settings(max_examples=20, deadline=None)
@given(st.one_of(covering, counting), st.integers(1, 14), st.integers(1, 6), st.booleans(), st.integers(0, 2), seeds)
def test_a_run_is_that_of_the_protocols_own_nodes_draw_by_draw(config, nodes, topics, full, planned, seed):
    """Every task keeps the same after every 400 ms, and the same draws were made."""
    wanted, random = interests_of(nodes, topics, seed), Random(seed)
    instance = make_instance(wanted)
    links = {tuple(sorted(random.sample(range(nodes), 2))) for _ in range(planned * nodes if nodes > 1 else 0)}
    share = 1.0 if full else 0.5
    network = NeighborNetwork(instance, config, seed, share=share, planned=links)
    names, view = instance.nodes, network.view
    known = {name: [peer for peer in names if peer != name] for name in names}
    if not full:
        rows = [view.known[view.offsets[node] : view.offsets[node + 1]].tolist() for node in range(nodes)]
        known = {name: [names[peer] for peer in row] for name, row in zip(names, rows, strict=True)}
    begun = {(names[u], names[v]) for u, v in links}
    mesh = Mesh(wanted, config, int(stream(seed, "neighbors")[0]), known, begun)
    for tick in range(400, 2_401, 400):
        network.run(tick)
        mesh.run(tick)
        for me in range(len(network.tasks.state)):
            task = "greedy" if me < nodes else "random"
            assert state_of(network, me) == protocol_state(mesh, names[me % nodes], task)
        assert network.sent == {kind: count for kind, count in mesh.sent.items() if count}
        assert int(network._chance[0]) == mesh.random.chance.state
    held = {(name, peer) for name, node in mesh.nodes.items() for peer in node.links.tasks}
    linked = {(name, peer) for name, peer in held if name < peer and (peer, name) in held}
    assert {(names[u], names[v]) for u, v in zip(*network.links(), strict=True)} == linked


def bits_of(nodes: list[int]) -> Any:
    row = np.zeros(3, np.uint64)
    for node in nodes:
        row[node >> 6] |= np.uint64(1 << (node & 63))
    return row


def bit(row: Any, node: int) -> int:
    return int(row[node >> 6]) >> (node & 63) & 1


@given(st.lists(st.lists(st.integers(0, 129), max_size=9), min_size=1, max_size=7), seeds)
def test_counts_in_bit_planes_are_those_of_counting_one_by_one(topics, seed):
    """Rows of bits, single nodes, the candidates of the greatest count, and the draw among them."""
    random, counts = Random(seed), [0] * 130
    planes, carry = np.zeros((4, 3), np.uint64), np.zeros(3, np.uint64)
    dense = random.randint(0, len(topics))
    for added, topic in enumerate(topics):
        for node in set(topic):
            counts[node] += 1
            if added >= dense:
                add_one(planes, node)
        if added < dense:
            add_row(planes, bits_of(topic), carry, added + 1)
    assert [sum(bit(plane, node) << place for place, plane in enumerate(planes)) for node in range(130)] == counts
    allowed = [node for node in range(130) if random.random() < 0.7] or [0]
    candidates = bits_of(allowed)
    most = max(counts[node] for node in allowed)
    assert keep_most(candidates, planes, 4) == (most > 0)
    tied = [node for node in allowed if counts[node] == most]
    assert sum(ones(word) for word in candidates) == len(tied)
    assert [one_of(candidates, turn) for turn in range(len(tied))] == tied


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), max_size=60))
def test_timers_come_when_they_are_due_and_in_the_order_in_which_they_were_set(steps):
    wheel, due = make_wheel(10, 12), {}
    tick = 0
    for timer, delay in steps:
        set_timer(wheel, timer, tick + delay)
        due.pop(timer, None)
        due[timer] = tick + delay
        if delay % 3 == 0:
            found = []
            while (one := next_timer(wheel, tick)) >= 0:
                found.append(one)
            assert found == [one for one, when in due.items() if when == tick]
            due = {one: when for one, when in due.items() if when != tick}
            tick += 1


def test_topics_with_few_subscribers_have_no_row_and_all_rows_stay_small():
    wanted = {f"v{node:03}": ("all", f"rare{node % 100:02}") for node in range(400)}
    view = make_full_view(make_instance(wanted).wants)
    assert view.rows.shape == (1, 7)
    assert view.rows.nbytes <= 8 * 800
    assert sorted(view.row_of.tolist()) == [-1] * 100 + [0]
    assert sum(ones(word) for word in view.rows[0]) == 400


def test_a_share_of_the_others_is_known_each_as_likely_as_any():
    """Half a membership: everybody has as many, never itself, and is known by about as many."""
    instance = make_instance({f"v{node:02}": ("t",) for node in range(41)})
    known = NeighborNetwork(instance, SpiderCastConfig(), 1, share=0.5).view.known.reshape(41, 20)
    assert all(len(set(row)) == 20 and node not in row for node, row in enumerate(known.tolist()))
    assert all((np.diff(known) > 0).ravel())
    by_others = np.bincount(known.ravel(), minlength=41)
    assert 8 < by_others.min() <= by_others.max() < 32  # 20 expected, a standard deviation of 3.2


def test_the_draws_of_the_twin_are_those_of_the_kernels():
    assert [Drawn(7).randrange(count) for count in (1, 5)] == [0, Drawn(7).chance.below(5)]
