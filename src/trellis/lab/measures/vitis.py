"""Vitis, RVR and OPT: how events travel.  [VI §IV]

Runs start from nothing and gossip for `cycles` rounds; then one event is published on every topic (or 500 by rates)
by a random subscriber. Interests: 50 of half as many topics as nodes, in buckets of 50, unless a case says otherwise.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean
from typing import Any, cast

from trellis import ids
from trellis.lab.experiment import Parameters
from trellis.lab.inputs import Inputs
from trellis.lab.table import Found
from trellis.model import Interests
from trellis.protocols.ring import identifier
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis.select import Utility
from trellis.simulate.churn import schedule_of
from trellis.simulate.dissemination_system import TableSystem, node_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.publications import by_rates, one_per_topic, together
from trellis.simulate.run import topics_by_node
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems import maker_of
from trellis.workloads.configs import Correlated
from trellis.workloads.generate import generate

SPAN_MS, AFTER_MS = 5_000, 6_000
STEP_MS, BEFORE_MS, CROWD_MS = 5_000, 20_000, 30_000
Wanted = dict[str, tuple[str, ...]]


def interests_of(parameters: Parameters, seed: int, inputs: Inputs) -> Wanted:
    if "interests" in parameters:
        return topics_by_node(inputs.interests(parameters, seed))
    return topics_by_node(correlated(parameters, seed))


def correlated(parameters: Parameters, seed: int) -> Interests:
    nodes = int(parameters["nodes"])
    topics = int(parameters.get("topics", nodes // 2))
    buckets = int(parameters.get("buckets", max(1, topics // 50)))
    return generate(Correlated(nodes, topics, int(parameters.get("subs", 50)), buckets, parameters["level"]), seed)


def system_of(name: str, parameters: Parameters) -> TableSystem:
    options = {key: parameters[key] for key in ("table_size", "sw_neighbors", "bounded") if key in parameters}
    return cast(TableSystem, maker_of(name.lower())(publications=0, **options))


def events(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    wanted = interests_of(parameters, seed, inputs)
    made = system_of(system, parameters)
    start, alpha = int(parameters["cycles"]) * 1000, float(parameters.get("alpha", 0.0))
    if alpha:
        rates = power_law(wanted, alpha, seed)
        cast(Any, made).rates = rates  # the utility of friends knows them (A-VIT-5)
        faults = by_rates(wanted, rates, count=500, start_ms=start, span_ms=SPAN_MS, seed=seed)
    else:
        faults = one_per_topic(wanted, start_ms=start, span_ms=SPAN_MS, seed=seed)
    engine = Engine(made, wanted, seed=seed)
    Injector(engine, together(faults))
    engine.run(start + SPAN_MS + AFTER_MS)
    assert made.dissemination is not None
    found = made.dissemination.measure()
    assert not found.repeated, "an application got an event twice"
    tables = sorted(len(node_of(engine.world, name).table.table) for name in engine.world.living)
    counts = found.overhead_histogram(20)
    return {
        "hit ratio": found.hit_ratio,
        "missed": float(found.missed),
        "overhead %": 100 * found.overhead,
        "overhead per node %": 100 * found.overhead_per_node,
        "delay": found.delay,
        "nodes above 10 %": 100 * found.share_of_nodes(above=0.1),
        "nodes above 20 %": 100 * found.share_of_nodes(above=0.2),
        "histogram": ([5 * place + 2.5 for place in range(20)], [count / max(1, sum(counts)) for count in counts]),
        "table max": float(tables[-1]),
        "table median": float(tables[len(tables) // 2]),
        "tables above 15 %": 100 * sum(size > 15 for size in tables) / len(tables),
        "tables above 200 %": 100 * sum(size > 200 for size in tables) / len(tables),
        "tables": _shares(tables),
        "subscriptions": mean(map(len, wanted.values())),
    }


def _shares(values: list[int]) -> tuple[list[int], list[float]]:
    different = sorted(set(values))
    return different, [values.count(value) / len(values) for value in different]


def power_law(wanted: Wanted, alpha: float, seed: int) -> dict[str, float]:
    """The i-th topic's rate is i^-alpha, topics in random order.  [VI §IV-D]"""
    topics = sorted({topic for topics in wanted.values() for topic in topics})
    Random(ids.stream(seed, "lab", "rates")).shuffle(topics)
    return {topic: (place + 1) ** -alpha for place, topic in enumerate(topics)}


def crowd(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """A flash crowd: half as many nodes again join within 10 s; or the window of real sessions with most joins."""
    if parameters["churn"] == "crowd":
        wanted = interests_of(parameters, seed, inputs)
        start = int(parameters["cycles"]) * 1000
        churn, end, inside = _flash(wanted, start, seed), start + 60_000, (start, start + CROWD_MS)
        first = start - BEFORE_MS
    else:
        table = correlated(parameters, seed)
        whole = schedule_of(inputs.churn(parameters, table, seed), table)
        wanted, churn, end = _window(topics_by_node(table), whole, 1000 * int(parameters["window"]))
        inside, first = (0, end), BEFORE_MS
    made = system_of(system, parameters)
    faults = one_per_topic(wanted, start_ms=first, span_ms=end - first - 10_000, seed=seed, churn=churn, events=3)
    engine = Engine(made, wanted, seed=seed, absent=churn.absent)
    Injector(engine, together(churn, faults))
    engine.run(end + 12_000)
    assert made.dissemination is not None
    seen = made.dissemination
    slices = [(at, seen.measure(since_ms=at, until_ms=at + STEP_MS)) for at in range(first, end - 10_000, STEP_MS)]
    slices = [(at, found) for at, found in slices if found.publications]
    times = [at / 1000 for at, _ in slices]
    return {
        "hit ratio": (times, [found.hit_ratio for _, found in slices]),
        "overhead %": (times, [100 * found.overhead for _, found in slices]),
        "delay": (times, [found.delay for _, found in slices]),
        "in crowd": (times, [float(inside[0] <= at < inside[1]) for at, _ in slices]),
    }


def _flash(wanted: Wanted, start: int, seed: int) -> Schedule:
    late = sorted(wanted)[::3]
    chance = Random(ids.stream(seed, "lab", "crowd"))
    times = sorted(start + chance.randrange(10_000) for _ in late)
    return Schedule(tuple(Fault(at, "join", (who,)) for at, who in zip(times, late, strict=True)), tuple(late))


def _window(wanted: Wanted, whole: Schedule, length: int) -> tuple[Wanted, Schedule, int]:
    """The part of a trace in which most nodes join, after 40 s in which those who are there at its start gossip."""
    joins = [fault.time_ms for fault in whole.faults if fault.kind == "join" and fault.time_ms > 0]
    start = max(joins, key=lambda at: sum(at <= other < at + length for other in joins), default=0)
    present, kept = set(wanted) - set(whole.absent), []
    for fault in whole.faults:
        if fault.time_ms < start:
            present = present | set(fault.nodes) if fault.kind == "join" else present - set(fault.nodes)
        elif fault.time_ms < start + length:
            kept.append(Fault(fault.time_ms - start + 40_000, fault.kind, fault.nodes))
    there = present | {name for fault in kept for name in fault.nodes}
    absent = tuple(sorted(there - present))
    return {name: wanted[name] for name in sorted(there)}, Schedule(tuple(kept), absent), length + 40_000


def lookups(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Mean hops of lookups, and how full tables get.  [VI §III-A]"""
    wanted = interests_of(parameters, seed, inputs)
    made = system_of(system, parameters)
    engine = Engine(made, wanted, seed=seed)
    engine.watchers.clear()
    largest = 0
    for now in range(5_000, int(parameters["cycles"]) * 1000 + 1, 5_000):
        engine.run(now)
        largest = max(largest, *(len(node_of(engine.world, name).table.table) for name in engine.world.living))
    topics = sorted({topic for topics in wanted.values() for topic in topics})
    chance, hops, count = Random(ids.stream(seed, "lab", "lookups")), 0, 1000
    for _ in range(count):
        name, place = chance.choice(engine.world.living), identifier(chance.choice(topics))
        while (hop := node_of(engine.world, name).relays.compass.next_hop(place)) is not None:
            name, hops = hop, hops + 1
    ring = sorted(engine.world.living, key=identifier)
    wrong = sum(node_of(engine.world, one).beside[:1] != (two,) for one, two in pairwise([*ring, ring[0]]))
    return {"hops": hops / count, "table max": float(largest), "wrong successors": float(wrong)}


def utility(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """[VI §III-A2, Example 1] p = {A, B, C}, q = {C, D}, r = {C, ..., H}."""
    topics = {"p": tuple("ABC"), "q": tuple("CD"), "r": tuple("CDEFGH")}
    pairs = (("p", "q"), ("p", "r"), ("q", "r"))
    return {f"{a}, {b}": Utility(TopicTable(), topics[a]).of(topics[b]) for a, b in pairs}
