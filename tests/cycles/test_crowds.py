"""Flash crowds on both engines: half as many nodes again join within 10 s.  [VI Fig. 12]

Each seed draws interests, joins and events, and runs them on both engines. Of every measure the differences of these
pairs must not tell the engines apart by a two-sided t-test, at a level of 1% for all measures of a test together
(Bonferroni). Few seeds make a weak test, so the means must not be further apart than the bounds below, either.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import cast

import numpy as np
import pytest
from scipy.stats import t as students_t

from both_engines import compare
from trellis.cycles.instance import make_instance
from trellis.cycles.network import RingNetwork, make_network
from trellis.cycles.relays import NONE
from trellis.lab.inputs import Inputs
from trellis.lab.measures.vitis import crowd, flash, interests_of, system_of
from trellis.protocols.ring import identifier
from trellis.simulate.by_cycles import Plan
from trellis.simulate.dissemination_system import TableSystem, node_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.schedule import Schedule

LEVEL = 0.01
FROM_S, TO_S = 27, 38  # The joins are from 25 s to 35 s.
CROWD = {"level": "low", "churn": "crowd", "nodes": 300, "cycles": 25, "topics": 120, "subs": 10, "buckets": 12}
# How far the means of a measure may be apart: a share of the event engine's mean, and an amount on top of it.
BOUNDS = {
    "hit ratio in the crowd": (0.0, 0.05),
    "hit ratio after it": (0.0, 0.01),
    "overhead before": (0.1, 0.5),
    "overhead in the crowd": (0.12, 0.0),
    "overhead after it": (0.1, 0.5),
    "delay in the crowd": (0.06, 0.0),
    "delay after it": (0.06, 0.0),
    "degree": (0.015, 0.0),
    "gateways": (0.06, 0.0),
    "wrong successors": (0.12, 0.0),
    "links that nodes know": (0.01, 0.0),
    "parts in topics that nodes do not want": (0.06, 0.0),
    "children that fade": (0.2, 0.0),
}


def measures(found: dict) -> dict[str, float]:
    """The joins are from 25 s to 35 s. Slices of 5 s have the time at which they begin."""

    def of(metric: str, begin: float, end: float) -> float:
        times, values = found[metric]
        return mean(value for at, value in zip(times, values, strict=True) if begin <= at < end)

    return {
        "hit ratio in the crowd": of("hit ratio", 25, 40),
        "hit ratio after it": of("hit ratio", 40, 90),
        "overhead before": of("overhead %", 5, 25),
        "overhead in the crowd": of("overhead %", 25, 40),
        "overhead after it": of("overhead %", 40, 90),
        "delay in the crowd": of("delay", 25, 40),
        "delay after it": of("delay", 40, 90),
        "degree": found["degree mean"],
    }


def states_in_events(seed: int) -> dict[str, float]:
    """Return what nodes have in the crowd, on average over its seconds."""
    wanted, system, schedule = crowd_of(seed)
    engine, found = Engine(system, wanted, seed=seed, absent=schedule.absent), []
    engine.watchers.clear()
    Injector(engine, schedule)
    for second in range(FROM_S, TO_S):
        engine.run(second * 1000)
        names = sorted(engine.world.living, key=identifier)
        nodes = {name: node_of(engine.world, name) for name in names}
        around = [*names, names[0]]
        relays = [(node, topic) for node in nodes.values() for topic in node.relays.relayed()]
        found.append({
            "gateways": sum(len(node.gateways.mine()) for node in nodes.values()),
            "wrong successors": sum(nodes[one].beside[:1] != (two,) for one, two in pairwise(around)),
            "links that nodes know": sum(sum(1 for _ in node.neighbors.firm()) for node in nodes.values()),
            "parts in topics that nodes do not want": sum(topic not in node.interest for node, topic in relays),
            "children that fade": sum(len(left) for node in nodes.values() for left in node.relays._fading.values()),
        })  # fmt: skip
    return {key: mean(one[key] for one in found) for key in found[0]}


def states_in_cycles(seed: int) -> dict[str, float]:
    wanted, system, schedule = crowd_of(seed)
    instance = make_instance(wanted)
    plan = Plan(instance, schedule, 1000)
    network, found = cast(RingNetwork, make_network(instance, system.config, seed, plan.absent)), []
    owners = np.repeat(np.arange(len(wanted)), np.diff(instance.wants.offsets))
    for second in range(1, TO_S):
        plan.happen(network)
        plan.cycle(network)
        if second < FROM_S:
            continue
        alive, relays, used = network.presence.alive, network.relays, int(network.relays.parts.used[0])
        ring = np.flatnonzero(alive)[np.argsort(instance.wants.places[alive])]
        takes_part = (relays.up[:used] != NONE) | (relays.children[:used] > 0)
        found.append({
            "gateways": int((network.looks_up & alive[owners]).sum()),
            "wrong successors": int((network.tables.beside[ring, 0] != np.roll(ring, -1)).sum()),
            "links that nodes know": len(network.known_links.peers),
            "parts in topics that nodes do not want": int((takes_part & (relays.slot[:used] < 0)).sum()),
            "children that fade": int(relays.fades.sum()),
        })  # fmt: skip
    return {key: mean(one[key] for one in found) for key in found[0]}


def crowd_of(seed: int) -> tuple[dict[str, tuple[str, ...]], TableSystem, Schedule]:
    """Return interests, Vitis, and the joins alone."""
    wanted = interests_of(CROWD, seed, Inputs(None))
    return wanted, system_of("Vitis", CROWD), flash(wanted, 25_000, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("system", "seeds"), [("Vitis", 6), ("RVR", 4)])
def test_crowds_on_both_engines_are_alike(system, seeds):
    events, arrays = (
        [measures(crowd(system, {**CROWD, **engine}, seed, Inputs(None))) for seed in range(1, seeds + 1)]
        for engine in ({}, {"engine": "cycles"})
    )
    require_alike(events, arrays)


@pytest.mark.slow
def test_gateways_ring_and_relays_in_a_crowd_are_alike():
    seeds = range(1, 6)
    require_alike([states_in_events(seed) for seed in seeds], [states_in_cycles(seed) for seed in seeds])


def require_alike(events: list[dict[str, float]], arrays: list[dict[str, float]]) -> None:
    found = compare(events, arrays)
    limit = students_t.ppf(1 - LEVEL / len(found) / 2, len(events) - 1)
    shown = "\n".join(f"{key}: events {a:.4f}, cycles {b:.4f}, t {t:.2f}" for key, (a, b, t) in found.items())
    for key, (one, other, t) in found.items():
        share, amount = BOUNDS[key]
        assert abs(t) <= limit, f"{key} differs beyond chance (t above {limit:.2f})\n{shown}"
        assert abs(other - one) <= share * one + amount, f"{key} is too far off\n{shown}"
