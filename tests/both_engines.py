"""One run on each engine, measured alike."""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

import numpy as np
from scipy.stats import t as students_t

from trellis.cycles.instance import make_instance
from trellis.cycles.network import make_network
from trellis.measure.connectivity import connectivity
from trellis.model import Interests
from trellis.simulate.by_cycles import CycleProbe, Plan, measured
from trellis.simulate.dissemination import Measured
from trellis.simulate.dissemination_system import TableSystem, node_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.probes import Camera, Snapshot
from trellis.simulate.publications import one_per_topic, together
from trellis.simulate.run import topics_by_node
from trellis.simulate.systems import maker_of
from trellis.workloads.configs import Correlated
from trellis.workloads.generate import generate

SPAN, AFTER = 5, 3  # cycles in which events are published, and cycles after them


def interests_of(nodes: int, topics: int, subs: int, level: str, seed: int) -> Interests:
    buckets = max(5 if level == "low" else 2, topics // 50)
    return generate(Correlated(nodes=nodes, topics=topics, subs=subs, level=level, buckets=buckets), seed)


def system_of(name: str, linger_rounds: int = 0, **options: Any) -> TableSystem:
    if name != "opt":
        options["linger_rounds"] = linger_rounds
    return maker_of(name)(publications=0, **options)


def run_events(system: TableSystem, interests: Interests, cycles: int, seed: int) -> dict[str, float]:
    wanted = topics_by_node(interests)
    engine = Engine(system, wanted, seed=seed)
    faults = one_per_topic(wanted, start_ms=1000 * cycles, span_ms=1000 * SPAN, seed=seed)
    Injector(engine, together(faults))
    engine.run(1000 * (cycles + SPAN + AFTER))
    assert system.dissemination is not None
    nodes = [node_of(engine.world, name) for name in engine.world.living]
    gateways = sum(len(node.gateways.mine()) for node in nodes) if system.name == "vitis" else 0
    return measures(system.dissemination.measure(), Camera(engine.world).take(), gateways)


def run_cycles(system: TableSystem, interests: Interests, cycles: int, seed: int) -> dict[str, float]:
    wanted = topics_by_node(interests)
    instance = make_instance(wanted, system.rates)
    network = make_network(instance, system.config, seed)
    plan = Plan(instance, together(one_per_topic(wanted, start_ms=1000 * cycles, span_ms=1000 * SPAN, seed=seed)), 1000)
    for _ in range(cycles + SPAN + AFTER):
        plan.happen(network)
        plan.cycle(network)
    gateways = int(network.looks_up.sum()) if system.name == "vitis" else 0
    return measures(measured(network), CycleProbe(network, interests).snapshot(), gateways)


def measures(events: Measured, found: Snapshot, gateways: int) -> dict[str, float]:
    clusters = connectivity(found.interests, found.overlay).components
    return {
        "missed": events.missed / (events.hits + events.missed),
        "overhead": events.overhead,
        "overhead per node": events.overhead_per_node,
        "delay": events.delay,
        "messages per delivery": events.messages_per_delivery,
        "duplicates per delivery": events.duplicates_per_delivery,
        "message overhead": events.message_overhead,
        "degree": found.degrees.mean,
        "degree deviation": found.degrees.standard_deviation,
        "degree max": float(found.degrees.maximum),
        "clusters": float(np.mean(clusters)),
        "gateways": gateways / found.topics,
    }


def compare(one: list[dict[str, float]], other: list[dict[str, float]]) -> dict[str, tuple[float, float, float]]:
    """For each measure the means on both engines, and t of the differences of runs with the same interests."""
    found = {}
    for name in one[0]:
        pairs = [(a[name], b[name]) for a, b in zip(one, other, strict=True)]
        apart = [b - a for a, b in pairs]
        spread = stdev(apart) / len(apart) ** 0.5
        t = mean(apart) / spread if spread > 1e-12 else 0.0
        found[name] = (mean(a for a, _ in pairs), mean(b for _, b in pairs), t)
    return found


def expect_alike(runs: dict[str, list[dict[str, float]]], bounds: dict[str, tuple[float, float]], level: float) -> None:
    """Expect pairs of runs to be alike: a t-test at `level` over all measures together, and bounds on the means.

    bounds  by measure the share and the amount by which the mean on the cycle engine may be off
    """
    found, pairs = compare(runs["events"], runs["cycles"]), len(runs["events"])
    limit = students_t.ppf(1 - level / len(found) / 2, pairs - 1)
    shown = "\n".join(f"{key}: events {a:.4f}, cycles {b:.4f}, t {t:.2f}" for key, (a, b, t) in found.items())
    for key, (one, other, t) in found.items():
        share, amount = bounds[key]
        assert abs(t) <= limit, f"{key} differs beyond chance (t above {limit:.2f})\n{shown}"
        assert abs(other - one) <= share * one + amount, f"{key} is too far off\n{shown}"
