"""OMen and its rivals under a churn trace.  [OM §6.4-6.8]

All start from LowODA's overlay and warm up for 30 gossip rounds; steps count events. An event begins when the life
cycle of the last one is over: it is handled, links have come to rest, views are ready. After 20 rounds it begins in any
case. So events do not overlap, as section 5 assumes for L = 1, and every message belongs to one event. The trace of the
paper has minutes between two events; `early` counts those that come before the life cycle of the last one is over. A
machine that is removed says nothing: it crashes, which neighbors notice by broken streams after 50 ms.

Backup sets are built by the rule of section 4.2 (`RULE`), unless a case names another one.

Cases with `engine: cycles` run on the cycle engine (`omen_cycles.py`), which counts no messages. All others run the
protocol's own code message by message.

Messages are of the three kinds of section 6.8 (`KINDS`). Those of coordination and link set-up are counted over the
whole event, those of view maintenance, of the net below all repairs and of link heartbeats per round: they go on where
nothing happens. The failure detector is left out, as in the paper.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace as changed
from functools import partial
from itertools import pairwise
from typing import Any, cast

import msgspec
import numpy as np

from trellis import ids
from trellis.lab.experiment import Parameters
from trellis.lab.inputs import Inputs
from trellis.lab.measures.clock import Clock
from trellis.lab.measures.omen_cycles import (
    AFTER,
    CALM,
    ROUNDS_MAX,
    WARMUP,
    arcs,
    churned_in_cycles,
    in_order_of,
    mesh,
    view_sizes,
)
from trellis.lab.measures.shadows import config_of, described_arcs
from trellis.lab.table import Found
from trellis.measure.diameters import topic_diameters
from trellis.model import ChurnTrace, Interests, Overlay
from trellis.plan import construct
from trellis.plan.maintain import Maintenance
from trellis.plan.maintain_config import MaintainConfig
from trellis.protocols.omen.shadow import low_edges
from trellis.protocols.ring import identifier
from trellis.simulate.check import CheckConfig, check_seed
from trellis.simulate.churn import schedule_of
from trellis.simulate.draw import InstanceDraw
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.probes import Camera
from trellis.simulate.run import link_names, topics_by_node
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.system import System
from trellis.simulate.systems import maker_of
from trellis.simulate.systems.omen import OMen
from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import RandomChurn
from trellis.workloads.generate import generate

# Kinds of messages of both systems by section 6.8; whatever is not named belongs to the failure detector.
KINDS = {
    "coordination": "Churn Report ReportOk Finished Join JoinDone Leaving Ask Answer FindRecord FoundRecord Record "
    "RecordOk",
    "set-up": "OpenLink LinkOpened Connect ConnectOk LinkReady Disconnect Stranger Redirect DisconnectOk Leave",
    "view": "TManRequest TManReply NewscastRequest NewscastReply CyclonRequest CyclonReply Back Inquire",
    "net": "RootReport RootHeard RootMeet",
    "heartbeats": "Heartbeat",
}
PERIODIC = ("view", "net", "heartbeats")
OF_AN_EVENT = (*KINDS["coordination"].split(), *KINDS["set-up"].split())
RULE = "primal-dual-uncovered"  # buildBackupsByPD as section 4.2 words it; a node's default is primal-dual-carry
CENTRAL = {"LowODA-Re": "rebuild", "LowODA-Inc": "naive"}


def system_of(name: str, parameters: Parameters) -> System:
    """`name`: OMen, OMen-G, either with a routine for backup sets, as OMen-G(greedy), or SpiderCast with its K."""
    if name.startswith("spidercast"):  # from LowODA's overlay, selecting only after a loss (A-OMN-25)
        greedy, random = (int(number) for number in re.findall(r"\d+", name))
        return maker_of("spidercast")(kg=greedy, kr=random, repair_only=True, gossip=True)
    kind, _, routine = name.rstrip(")").partition("(")
    knowledge = "global" if kind == "OMen-G" else str(parameters.get("knowledge", "hints"))
    options = {"coverage": int(parameters.get("coverage", 5)), "resilience": int(parameters.get("L", 1))}
    backups = routine or str(parameters.get("backups", RULE))
    return maker_of("omen")(**options, knowledge=knowledge, backups=backups)


def first_events(trace: ChurnTrace, count: int) -> ChurnTrace:
    """Of a trace whose nodes keep their interests: one row an event."""
    kept = slice(0, count)
    return changed(
        trace, time=trace.time[kept], node=trace.node[kept], event=trace.event[kept], topic=trace.topic[kept]
    )


def churned(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Degrees, links, messages, repair times after every event; diameters at every `diameters`-th."""
    interests = inputs.interests(parameters, seed)
    trace = first_events(inputs.churn(parameters, interests, seed), int(parameters["events"]))
    every = int(parameters.get("diameters", 0))
    if system in CENTRAL:
        return _central(CENTRAL[system], interests, trace, seed, every)
    return _by_engine(system, parameters, interests, trace, seed, every)


def _by_engine(
    system: str, parameters: Parameters, interests: Interests, trace: ChurnTrace, seed: int, every: int
) -> Found:
    made = system_of(system, parameters)
    if parameters.get("engine") != "cycles":
        return _simulated(made, interests, trace, seed, every)
    schedule, far = schedule_of(trace, interests), _Diameters()
    start = _first_overlay(interests, schedule, seed)
    found = churned_in_cycles(made, interests, schedule, start, seed, every, far.take)
    return {**found, **far.found()}


def _first_overlay(interests: Interests, schedule: Schedule, seed: int) -> Overlay:
    """Return LowODA's overlay over the nodes that are there at the start."""
    there = {name: topics for name, topics in topics_by_node(interests).items() if name not in schedule.absent}
    return construct(Interests.from_pairs(there), "lowoda", seed=seed).overlay


def _central(algorithm: str, interests: Interests, trace: ChurnTrace, seed: int, every: int) -> Found:
    run = Maintenance(interests, trace, None, MaintainConfig(algorithm=algorithm, seed=seed))
    rounds = []
    far = _Diameters()
    for one in run.rounds():
        rounds.append(one)
        if every and one.round % every == 0:
            far.take(one.round, run.interests(), run.overlay())
    found: dict[str, Any] = {
        "D": [one.degree_max for one in rounds],
        "d": [one.degree_mean for one in rounds],
        "links": [one.links for one in rounds],
        "repair seconds": [one.seconds_step2 for one in rounds],
        "split_end": float(run.split_topics()),
        **far.found(),
    }
    for kind in ("join", "leave"):
        found[f"{kind} seconds"] = [one.seconds_step2 for one in rounds if one.event == kind] or [0.0]
    return found


def _simulated(made: System, interests: Interests, trace: ChurnTrace, seed: int, every: int) -> Found:
    schedule = schedule_of(trace, interests)
    sizes = dict(zip(interests.nodes, interests.sizes.tolist(), strict=True))
    start = _first_overlay(interests, schedule, seed)
    clock = Clock(made)
    engine = Engine(
        made,
        topics_by_node(interests),
        seed=seed,
        overlay=tuple(link_names(start)),
        absent=schedule.absent,
        broken_stream_ms=50,
    )
    camera, far = Camera(engine.world), _Diameters()
    series: dict[str, list[float]] = {}
    skipped, begun = 0, time.process_time()
    engine.run(WARMUP * 1000)
    times = [fault.time_ms for fault in schedule.faults]
    gaps = [later - earlier for earlier, later in pairwise(times)] + [ROUNDS_MAX * 1000]
    for place, (fault, gap_ms) in enumerate(zip(schedule.faults, gaps, strict=True), start=1):
        (name,) = fault.nodes
        if fault.topics:
            sizes[name] = len(fault.topics)
        before = engine.sent_by_type()
        clock.start()
        happened = engine.join(name, fault.topics) if fault.kind == "join" else engine.crash(name)
        skipped += not happened
        rounds = _life_cycle(engine) if happened else 0
        taken, after = camera.take(), engine.sent_by_type()
        sent = sent_by_kind(before, after)
        periodic = {kind: sent[kind] / max(rounds, 1) for kind in PERIODIC}
        caused = sent["coordination"] + sent["set-up"]
        for metric, value in (
            ("D", taken.degrees.maximum),
            ("d", taken.degrees.mean),
            ("links", len(taken.overlay)),
            ("split", len(taken.connectivity.split)),
            ("rounds", rounds),
            ("early", 1000 * rounds > gap_ms),
            ("size", sizes[name]),
            ("coordination", sent["coordination"]),
            ("set-up", sent["set-up"]),
            *periodic.items(),
            ("messages", caused + periodic["view"] + periodic["net"]),
            ("messages with heartbeats", caused + sum(periodic.values())),
            *((f"sent {kind}", after.get(kind, 0) - before.get(kind, 0)) for kind in OF_AN_EVENT),
        ):
            series.setdefault(metric, []).append(float(value))
        clock.stop("join" if fault.kind == "join" else "leave")
        if every and place % every == 0:
            far.take(place, taken.interests, taken.overlay)
    engine.run(engine.world.now_ms + AFTER * 1000)
    last = camera.take()
    return {
        **{metric: values for metric, values in series.items() if any(values) or not metric.startswith("sent ")},
        "split_end": float(len(last.connectivity.split)),
        "nodes_end": float(last.degrees.total),
        "skipped": float(skipped),
        "cpu_s": time.process_time() - begun,
        **far.found(),
        **clock.found(),
    }


def _life_cycle(engine: Engine) -> int:
    """Run until the event that has just begun is over; return how many rounds that took."""
    is_busy = getattr(engine.system, "is_busy", lambda world: False)
    for rounds in range(1, ROUNDS_MAX + 1):
        engine.run(engine.world.now_ms + 1000)
        is_calm = engine.world.now_ms - engine.quiet_from_ms >= CALM * 1000
        if is_calm and not is_busy(engine.world):
            return rounds
    return ROUNDS_MAX


def sent_by_kind(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    return {
        kind: sum(now.get(name, 0) - before.get(name, 0) for name in names.split()) for kind, names in KINDS.items()
    }


def rebuilt(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """LowODA from scratch in the code of a node: Alg. 1 with everybody in the shadow set.  [OM Fig. 10(b)]

    The kernels of `trellis.plan` are compiled. Beside what a coordinator computes in Python they say more about
    languages than about algorithms.
    """
    interests = inputs.interests(parameters, seed)
    names = interests.nodes
    parts = {
        1 << topic: [[names[int(node)]] for node in nodes]
        for topic in range(len(interests.topics))
        if len(nodes := interests.nodes_of(topic)) > 1
    }
    keys, begun = {name: ids.key(seed, name) for name in names}, time.process_time()
    links = low_edges(parts, dict.fromkeys(names, 0), keys)
    return {"repair seconds": time.process_time() - begun, "links": float(len(links))}


class _Diameters:
    """Greatest and mean topic diameter, at some events."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.greatest: list[float] = []
        self.mean: list[float] = []

    def take(self, step: int, interests: Interests, overlay: Overlay) -> None:
        reach = topic_diameters(interests, overlay, threads=1)
        self.steps.append(step)
        self.greatest.append(float(reach.maximum or 0))
        self.mean.append(float(reach.mean or 0.0))

    def found(self) -> dict[str, Any]:
        return {"Diam": (self.steps, self.greatest), "diam": (self.steps, self.mean)} if self.steps else {}


def views(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Gossip alone, no churn: how large local views are (A-OMN-13).  [OM Fig. 6, 8(a)]"""
    interests = inputs.interests(parameters, seed)
    start = construct(interests, "lowoda", seed=seed).overlay
    made, rounds = system_of(system, parameters), int(parameters["rounds"])
    if parameters.get("engine") == "cycles":
        found = view_sizes(mesh(cast(OMen, made), interests, start, seed), rounds)
    else:
        found = _view_sizes(made, interests, start, seed, rounds)
    steps, means, sizes = [now for now, _ in found], [float(sizes.mean()) for _, sizes in found], found[-1][1]
    nodes = len(interests.nodes)
    values, counts = np.unique(sizes, return_counts=True)
    return {
        "view": (steps, means),
        "view at the end": means[-1],
        "share <= 80": float(np.mean(sizes <= 80)),
        "share <= 8%": float(np.mean(sizes <= 0.08 * nodes)),
        "share < 5%": float(np.mean(sizes < 0.05 * nodes)),
        "histogram": (values, counts / nodes),
    }


def _view_sizes(made: System, interests: Interests, start: Overlay, seed: int, rounds: int) -> list[tuple[int, Any]]:
    """Return the sizes of all local views after every ten rounds, on the event engine."""
    engine, found = Engine(made, topics_by_node(interests), seed=seed, overlay=tuple(link_names(start))), []
    for now in range(10, rounds + 1, 10):
        engine.run(1000 * now)
        sizes = [cast(Any, engine.world.node(name)).views.size() for name in engine.world.living]
        found.append((now, np.array(sizes, float)))
    return found


def backups(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Backup sets that the nodes of a mesh have built, as a graph: an arc from a node to each of its backups.

    [OM §6.3, Fig. 3-4] Without churn, when every view has settled.
    """
    interests = generate(config_of(parameters), seed)
    start = construct(interests, "lowoda", seed=seed).overlay
    made, rounds = system_of(system, parameters), int(parameters["rounds"])
    if parameters.get("engine") == "cycles":
        network = mesh(cast(OMen, made), interests, start, seed)
        ends = (in_order_of(interests, network, one) for one in arcs(network, rounds))
        return described_arcs(np.asarray(interests.sizes, float), *ends)
    engine = Engine(made, topics_by_node(interests), seed=seed, overlay=tuple(link_names(start)))
    engine.run(1000 * rounds)
    place = {name: number for number, name in enumerate(interests.nodes)}
    out, into = np.zeros(len(place)), np.zeros(len(place))
    for name in engine.world.living:
        for view in cast(Any, engine.world.node(name)).views.views.values():
            out[place[view.node]] += len(view.backups)
            np.add.at(into, [place[backup] for backup in view.backups], 1)
    return described_arcs(np.asarray(interests.sizes, float), out, into)


def grown(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Degrees under random joins and leaves of generated interests.  [OM §6.3, Fig. 5]"""
    config = config_of(parameters)
    interests = generate(config, seed)
    trace = churn(RandomChurn(int(parameters["rounds"]), joiners=config), interests, seed)
    return _by_engine(system, parameters, interests, trace, seed, 0)


def promises(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Checks over `count` drawn schedules of faults of these kinds, at most L crashes at once.  [OM §3.3, §5]

    With `net` False there are repairs alone, without the fallback below them, which the paper does not have.
    """
    resilience, kinds = int(parameters["L"]), tuple(str(parameters["kinds"]).split(","))
    make = partial(
        maker_of("omen"),
        resilience=resilience,
        net=bool(parameters.get("net", True)),
        backups=str(parameters.get("backups", RULE)),
    )
    plan = msgspec.structs.replace(make().fault_plan, kinds=kinds)
    config = CheckConfig(instance=InstanceDraw(nodes=14, topics=6, subscriptions=3), plan=plan, planned=True)
    first, count = 1000 * seed, int(parameters["count"])
    results = [check_seed(make, number, config) for number in range(first, first + count)]
    return {
        "runs": float(count),
        "connected": sum(one.tco for one in results) / count,
        "kept": sum(one.failure is None for one in results) / count,  # every promise
        "bounded": sum("V1: " not in (one.failure or "") for one in results) / count,  # at most 2L views
        "checks": float(sum(one.safety_checks for one in results)),
        "crashes": float(sum(sum(one.injected.get(kind, 0) for kind in kinds) for one in results)),
    }


# Ours: the paper labels the interests of its example only in the picture.
EX2_INTERESTS = {
    0: "ab", 1: "abc", 2: "cd", 3: "bcd", 4: "de", 5: "abe", 6: "aef", 7: "ef", 8: "cf", 9: "bdf",
    10: "abcef", 11: "abce",
}  # fmt: skip


def example(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Node 10 of twelve departs: who coordinates, and where the new links end.  [OM Example 2]"""
    names = _names_around_the_ring(12)
    wanted = {names[node]: tuple(topics) for node, topics in EX2_INTERESTS.items()}
    number = {name: node for node, name in enumerate(names)}
    start = construct(Interests.from_pairs(wanted), "lowoda", seed=seed).overlay
    made = system_of(system, {"coverage": 1, "L": 1, **parameters})
    links = tuple(link_names(start))
    engine = Engine(made, wanted, seed=seed, overlay=links, broken_stream_ms=50)
    gone = names[10]
    Injector(engine, Schedule((Fault(40_000, "leave", (gone,)),)))
    engine.run(39_999)
    before = set(engine.world.links())
    view = cast(Any, engine.world.node(names[11])).views.views[gone]
    neighbours = {peer for pair in before if gone in pair for peer in pair} - {gone}
    shadow = neighbours | set(view.backups) - {gone}
    coordinators: set[str] = set()
    for now in range(40_000, 80_000, 20):
        engine.run(now)
        for name in engine.world.living:
            if any(one.node == gone for one in cast(Any, engine.world.node(name)).repairs.running.values()):
                coordinators.add(name)
    new = [pair for pair in engine.world.links() if pair not in before and gone not in pair]
    split = Camera(engine.world).take().connectivity.split
    return {
        "coordinator": sorted(number[name] for name in coordinators) or [-1.0],
        "shadow set": sorted(number[name] for name in shadow),
        "ends of new links": [number[name] for pair in new for name in pair] or [],
        "split": float(len(split)),
    }


def _names_around_the_ring(count: int) -> list[str]:
    """Names whose identifiers follow each other in their order, one in each part of the ring."""
    whole = 1 << 160
    found = []
    for node in range(count):
        attempt = 0
        while identifier(f"v{node}.{attempt}") * count // whole != node:
            attempt += 1
        found.append(f"v{node}.{attempt}")
    return found
