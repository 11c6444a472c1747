"""Vitis, RVR and OPT: how events travel.  [VI §IV]

Runs start from nothing and gossip for `cycles` rounds; then one event is published on every topic (or 500 by rates)
by a random subscriber. `perfect` does the same on tables that nodes choose among all others, without gossip.
Interests: 50 of half as many topics as nodes, in buckets of 50, unless a case says otherwise. Links do not
linger, as in the paper, unless a case says otherwise (`linger_rounds`). Degrees count a link at both ends.
Cases with `engine: cycles` run on the cycle engine, all others run the protocol's own code message by message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from statistics import mean
from typing import Any, cast

from trellis import ids
from trellis.cycles.instance import make_instance
from trellis.cycles.network import RingNetwork, make_network
from trellis.cycles.spread import make_tally
from trellis.cycles.spread import next_hop as closest_neighbor
from trellis.lab.experiment import Parameters
from trellis.lab.inputs import Inputs
from trellis.lab.table import Found
from trellis.model import Interests
from trellis.protocols.ring import identifier
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis.select import Utility
from trellis.simulate.by_cycles import Plan, measured
from trellis.simulate.churn import schedule_of
from trellis.simulate.dissemination import Measured
from trellis.simulate.dissemination_system import TableSystem, node_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.publications import by_rates, one_per_topic, together
from trellis.simulate.run import topics_by_node
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.system import World
from trellis.simulate.systems import maker_of
from trellis.workloads.configs import Correlated
from trellis.workloads.generate import generate

SPAN_MS, AFTER_MS = 5_000, 6_000
STEP_MS, BEFORE_MS, CROWD_MS = 5_000, 20_000, 30_000
SLICE_MS, WARM_MS, DAY_MS = 10_000, 40_000, 86_400_000
PERFECT = " on perfect tables"  # how the name of a system ends that does not gossip
OPTIONS = ("table_size", "sw_neighbors", "bounded", "coverage")
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
    options = {key: parameters[key] for key in OPTIONS if key in parameters}
    if name != "OPT":  # links of OPT never linger
        options["linger_rounds"] = int(parameters.get("linger_rounds", 0))
    return cast(TableSystem, maker_of(name.lower())(publications=0, **options))


def events(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    start = int(parameters["cycles"]) * 1000
    made, wanted, faults = _published(system, parameters, seed, inputs, start, SPAN_MS)
    run = _by_cycles if parameters.get("engine") == "cycles" else _by_events
    return _told(wanted, *run(made, wanted, together(faults), start + SPAN_MS, seed))


def perfect(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """The same on tables that nodes choose among all others. Elections run until nothing changes; nobody gossips.

    `system`: Vitis on perfect tables, or RVR on perfect tables.
    """
    made, wanted, faults = _published(system.removesuffix(PERFECT), parameters, seed, inputs, 0, 0)
    instance = make_instance(wanted, made.rates)
    network = cast(RingNetwork, make_network(instance, made.config, seed))
    passes = network.know_all()
    Plan(instance, together(faults), made.config.period_ms).happen(network)
    return {
        **_told(wanted, measured(network), network.degrees.tolist(), int(network.table_counts.max())),
        "election passes": float(passes),
    }


Published = tuple[TableSystem, Wanted, tuple[Fault, ...]]


def _published(
    system: str, parameters: Parameters, seed: int, inputs: Inputs, start_ms: int, span_ms: int
) -> Published:
    """Return the system, the interests, and the events that are published."""
    wanted = interests_of(parameters, seed, inputs)
    made, alpha = system_of(system, parameters), float(parameters.get("alpha", 0.0))
    if not alpha:
        return made, wanted, one_per_topic(wanted, start_ms=start_ms, span_ms=span_ms, seed=seed)
    rates = power_law(wanted, alpha, seed)
    cast(Any, made).rates = rates  # the utility of friends knows them (A-VIT-5)
    return made, wanted, by_rates(wanted, rates, count=500, start_ms=start_ms, span_ms=span_ms, seed=seed)


def _told(wanted: Wanted, found: Measured, degrees: list[int], largest: int) -> dict[str, Any]:
    """Return the metrics of a run: what was measured, the links of each node, and the largest table."""
    assert not found.repeated, "an application got an event twice"
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
        "table max": float(largest),
        **described(degrees),
        "subscriptions": mean(map(len, wanted.values())),
    }


Ran = tuple[Measured, list[int], int]  # what was measured, links of each node, the largest table


def _by_events(made: TableSystem, wanted: Wanted, schedule: Schedule, until_ms: int, seed: int) -> Ran:
    engine = Engine(made, wanted, seed=seed)
    Injector(engine, schedule)
    engine.run(until_ms + AFTER_MS)
    assert made.dissemination is not None
    largest = max(len(node_of(engine.world, name).table.table) for name in engine.world.living)
    return made.dissemination.measure(), degrees_of(engine.world), largest


def _by_cycles(made: TableSystem, wanted: Wanted, schedule: Schedule, until_ms: int, seed: int) -> Ran:
    """The same on the cycle engine. Events travel between two rounds."""
    instance, period_ms = make_instance(wanted, made.rates), made.config.period_ms
    plan, network = Plan(instance, schedule, period_ms), make_network(instance, made.config, seed)
    while network.round * period_ms < until_ms:
        plan.happen(network)
        plan.cycle(network)
    return measured(network), network.degrees.tolist(), int(network.table_counts.max())


def degrees_of(world: World) -> list[int]:
    """Return the links of each node, whichever end holds them."""
    count = Counter(name for link in world.links() for name in link)
    return [count[name] for name in world.living]


def described(links: list[int]) -> dict[str, Any]:
    degrees = sorted(links)
    return {
        "degree mean": mean(degrees),
        "degree median": float(degrees[len(degrees) // 2]),
        "degree max": float(degrees[-1]),
        "degrees above 15 %": 100 * sum(degree > 15 for degree in degrees) / len(degrees),
        "degrees above 200 %": 100 * sum(degree > 200 for degree in degrees) / len(degrees),
        "degrees": _shares(degrees),
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
    """A flash crowd: half as many nodes again join within 10 s, or the largest crowd of real sessions at its pace."""
    if parameters["churn"] == "crowd":
        wanted = interests_of(parameters, seed, inputs)
        start = int(parameters["cycles"]) * 1000
        churn, end = flash(wanted, start, seed), start + 60_000
    else:
        table = inputs.interests(parameters, seed)
        whole = schedule_of(inputs.churn(parameters, table, seed), table)
        wanted, churn, start, end = _window(topics_by_node(table), whole)
    inside, first = (start, start + CROWD_MS), start - BEFORE_MS
    made = system_of(system, parameters)
    faults = one_per_topic(wanted, start_ms=first, span_ms=end - first - 10_000, seed=seed, churn=churn, events=3)
    run = _crowd_by_cycles if parameters.get("engine") == "cycles" else _crowd_by_events
    measures, links = run(made, wanted, together(churn, faults), range(first, end - 10_000, STEP_MS), end, seed)
    slices = [(at, found) for at, found in measures if found.publications]
    times = [at / 1000 for at, _ in slices]
    return {
        "hit ratio": (times, [found.hit_ratio for _, found in slices]),
        "overhead %": (times, [100 * found.overhead for _, found in slices]),
        "delay": (times, [found.delay for _, found in slices]),
        "in crowd": (times, [float(inside[0] <= at < inside[1]) for at, _ in slices]),
        **described(links),
    }


Slices = tuple[list[tuple[int, Measured]], list[int]]  # what was measured in each slice, links of each node at the end


def _crowd_by_events(
    made: TableSystem, wanted: Wanted, schedule: Schedule, slices: range, end_ms: int, seed: int
) -> Slices:
    engine = Engine(made, wanted, seed=seed, absent=schedule.absent)
    Injector(engine, schedule)
    engine.run(end_ms + 12_000)
    assert made.dissemination is not None
    measure = made.dissemination.measure
    return [(at, measure(since_ms=at, until_ms=at + STEP_MS)) for at in slices], degrees_of(engine.world)


def _crowd_by_cycles(
    made: TableSystem, wanted: Wanted, schedule: Schedule, slices: range, end_ms: int, seed: int
) -> Slices:
    """The same on the cycle engine. Each slice has a tally of its own."""
    instance, period_ms = make_instance(wanted, made.rates), made.config.period_ms
    plan, found = Plan(instance, schedule, period_ms), list[tuple[int, Measured]]()
    network = make_network(instance, made.config, seed, plan.absent)
    while network.round * period_ms < end_ms + 12_000:
        if network.round * period_ms in slices:
            network.tally = make_tally(len(wanted))
        plan.happen(network)
        plan.cycle(network)
        at = network.round * period_ms - STEP_MS
        if at in slices:
            found.append((at, measured(network)))
    return found, network.degrees.tolist()


def flash(wanted: Wanted, start: int, seed: int) -> Schedule:
    late = sorted(wanted)[::3]
    chance = Random(ids.stream(seed, "lab", "crowd"))
    times = sorted(start + chance.randrange(10_000) for _ in late)
    return Schedule(tuple(Fault(at, "join", (who,)) for at, who in zip(times, late, strict=True)), tuple(late))


def _window(wanted: Wanted, whole: Schedule) -> tuple[Wanted, Schedule, int, int]:
    """The part of a trace around the 10 s in which most nodes join, after 40 s of gossip among those who are there.

    Return interests and churn of the part, when the crowd comes, and when the part ends. The first day is left out: a
    trace begins with the joins of all whom it happens to find.
    """
    joins = Counter(f.time_ms // SLICE_MS for f in whole.faults if f.kind == "join" and f.time_ms >= DAY_MS)
    peak = SLICE_MS * max(joins, key=lambda at: (joins[at], -at), default=0)
    start, end = max(0, peak - BEFORE_MS), peak + 60_000
    present, kept = set(wanted) - set(whole.absent), []
    for fault in whole.faults:
        if fault.time_ms < start:
            present = present | set(fault.nodes) if fault.kind == "join" else present - set(fault.nodes)
        elif fault.time_ms < end:
            kept.append(Fault(fault.time_ms - start + WARM_MS, fault.kind, fault.nodes))
    there = present | {name for fault in kept for name in fault.nodes}
    absent = tuple(sorted(there - present))
    chosen = {name: wanted[name] for name in sorted(there)}
    return chosen, Schedule(tuple(kept), absent), peak - start + WARM_MS, end - start + WARM_MS


def lookups(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Mean hops of lookups, and how full tables get.  [VI §III-A]"""
    wanted = interests_of(parameters, seed, inputs)
    made = system_of(system, parameters)
    run = _tables_by_cycles if parameters.get("engine") == "cycles" else _tables_by_events
    names, next_hop, successor, largest = run(made, wanted, int(parameters["cycles"]), seed)
    topics = sorted({topic for topics in wanted.values() for topic in topics})
    chance, hops, count = Random(ids.stream(seed, "lab", "lookups")), 0, 1000
    for _ in range(count):
        name, topic = chance.choice(names), chance.choice(topics)
        while (hop := next_hop(name, topic)) is not None:
            name, hops = hop, hops + 1
    ring = sorted(names, key=identifier)
    wrong = sum(successor(one) != two for one, two in pairwise([*ring, ring[0]]))
    return {"hops": hops / count, "table max": float(largest), "wrong successors": float(wrong)}


# The nodes, the next hop of a node towards a topic, the successor of a node, and the largest table, every 5 s.
Settled = tuple[Sequence[str], Callable[[str, str], str | None], Callable[[str], str | None], int]


def _tables_by_events(made: TableSystem, wanted: Wanted, cycles: int, seed: int) -> Settled:
    engine = Engine(made, wanted, seed=seed)
    engine.watchers.clear()
    largest = 0
    for now in range(5_000, cycles * 1000 + 1, 5_000):
        engine.run(now)
        largest = max(largest, *(len(node_of(engine.world, name).table.table) for name in engine.world.living))

    def next_hop(name: str, topic: str) -> str | None:
        found: str | None = node_of(engine.world, name).relays.compass.next_hop(identifier(topic))
        return found

    return engine.world.living, next_hop, lambda name: next(iter(node_of(engine.world, name).beside), None), largest


def _tables_by_cycles(made: TableSystem, wanted: Wanted, cycles: int, seed: int) -> Settled:
    instance = make_instance(wanted, made.rates)
    network, largest = cast(RingNetwork, make_network(instance, made.config, seed)), 0
    for now in range(1, cycles + 1):
        network.cycle()
        if now % 5 == 0:
            largest = max(largest, int(network.table_counts.max()))
    names, wants, links = instance.nodes, instance.wants, network.links
    node_at = {name: place for place, name in enumerate(names)}
    place_of = dict(zip(instance.topics, wants.topic_places, strict=True))

    def next_hop(name: str, topic: str) -> str | None:
        hop = closest_neighbor(wants.places, links.offsets, links.peers, node_at[name], place_of[topic])
        return names[hop] if hop >= 0 else None

    def successor(name: str) -> str | None:
        place = int(network.tables.beside[node_at[name], 0])
        return names[place] if place >= 0 else None

    return names, next_hop, successor, largest


def utility(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """[VI §III-A2, Example 1] p = {A, B, C}, q = {C, D}, r = {C, ..., H}."""
    topics = {"p": tuple("ABC"), "q": tuple("CD"), "r": tuple("CDEFGH")}
    pairs = (("p", "q"), ("p", "r"), ("q", "r"))
    return {f"{a}, {b}": Utility(TopicTable(), topics[a]).of(topics[b]) for a, b in pairs}
