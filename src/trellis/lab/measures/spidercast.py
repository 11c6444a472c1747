"""SpiderCast, its baselines and RingPT.  [SC §3]

Static runs: all nodes start together with full views, iterations of 0.2 s, until nothing has changed for 5 s. They,
and runs in which nodes join and leave, take the cycle engine where `engine` says so (docs/cycles.md).
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, cast

import numpy as np
from msgspec.structs import replace

from trellis.lab.experiment import Parameters
from trellis.lab.inputs import Inputs
from trellis.lab.table import Found
from trellis.measure.diameters import topic_diameters
from trellis.measure.similarity import similarity
from trellis.model import Interests
from trellis.plan import construct
from trellis.simulate.by_cycles import simulate_cycles
from trellis.simulate.churn import schedule_of
from trellis.simulate.churn_by_cycles import Lens
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.neighbors_by_cycles import start_neighbors
from trellis.simulate.probes import Camera, Snapshot
from trellis.simulate.run import RunConfig, topics_by_node
from trellis.simulate.schedule import Schedule
from trellis.simulate.system import System
from trellis.simulate.systems import maker_of
from trellis.simulate.systems.spidercast import NeighborSystem
from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import OnOff
from trellis.workloads.generate import generate
from trellis.workloads.presets import PRESETS
from trellis.workloads.sizes import Sizes

SETTLE_MS, LIMIT_MS = 5_000, 600_000


def workload(parameters: Parameters, seed: int) -> Interests:
    """`popularity`: rss, nyse, unif, zipf1 or zipf2; 10 of 100 topics unless `subs` and `topics` say otherwise."""
    config = cast(Any, PRESETS[f"spidercast-{parameters['popularity']}"].config)
    low, _, high = str(parameters.get("subs", 10)).partition(":")  # 20, or 10:30
    topics = int(parameters.get("topics", 100))
    return generate(
        replace(config, nodes=int(parameters["nodes"]), topics=topics, subs=Sizes(int(low), int(high or low))), seed
    )


def system_of(name: str) -> System:
    """spidercast(3,0), spidercast(adaptive), similarity(9,1), random(10)."""
    kind, numbers = name.partition("(")[0], [int(word) for word in re.findall(r"\d+", name)]
    options: dict[str, Any] = {"y": numbers[0] if numbers else 0}
    if kind == "spidercast":
        options = {"adaptive": True} if "adaptive" in name else {"kg": numbers[0], "kr": numbers[1]}
    elif kind == "similarity":
        options = {"x": numbers[0], "y": numbers[1]}
    return maker_of(kind)(**options)


def settled(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    interests = workload(parameters, seed)
    if system == "RingPT":
        overlay, connected, quiet = construct(interests, "ring", seed=seed).overlay, 0.0, 0.0
        degrees = overlay.degrees
        return {
            "degree": float(degrees.mean()),
            "degree_max": float(degrees.max()),
            "split": connected,
            "quiet_s": quiet,
        }
    by_cycles = parameters.get("engine") == "cycles"
    taken, quiet_s, coverage = (_by_cycles if by_cycles else _by_events)(system, parameters, seed, interests)
    degrees = taken.overlay.degrees
    mean = float(degrees.mean())
    values, counts = np.unique(degrees, return_counts=True)
    found: dict[str, Any] = {
        "degree": mean,
        "degree_max": float(degrees.max()),
        "split": float(len(taken.connectivity.split)),
        "components": float(taken.connectivity.components.sum()),
        "components_per_topic": float(taken.connectivity.components.sum()) / max(1, taken.topics),
        "quiet_s": quiet_s,
        "near_mean": float(np.mean(np.abs(degrees - mean) <= 0.5 * mean)),
        "histogram": (values, counts / len(degrees)),
    }
    if "adaptive" in system:
        found["settled_at_zero"] = sum(k == 0 for k in coverage) / max(1, len(coverage))
        found["could_adapt"] = coverable(interests, 3)
    if parameters.get("diameters"):
        reach = topic_diameters(taken.interests, taken.overlay, connected=taken.connectivity, threads=1)
        found |= {"diameter": float(reach.maximum or 0), "radius": float(reach.radius_maximum or 0)}
    return found


def _by_events(
    system: str, parameters: Parameters, seed: int, interests: Interests
) -> tuple[Snapshot, float, list[int]]:
    """Return the overlay at the end, when it came to rest, and the K_r of all nodes."""
    engine = Engine(system_of(system), topics_by_node(interests), seed=seed, view_share=parameters.get("view", 1.0))
    now = 0
    while now < LIMIT_MS and now - engine.quiet_from_ms < SETTLE_MS:
        now += 1_000
        engine.run(now)
    tasks = [cast(Any, engine.world.node(name)).random_task for name in engine.world.living]
    return Camera(engine.world).take(), engine.quiet_from_ms / 1000, [getattr(task.goal, "k", 0) for task in tasks]


def _by_cycles(
    system: str, parameters: Parameters, seed: int, interests: Interests
) -> tuple[Snapshot, float, list[int]]:
    """The same on the cycle engine."""
    config = RunConfig(seed=seed, settle_ms=SETTLE_MS, limit_ms=LIMIT_MS, view_share=parameters.get("view", 1.0))
    run = cast(Any, simulate_cycles(system_of(system), interests, config))
    return run.probe.snapshot(), run.network.changed_ms / 1000, run.random_coverage


def coverable(interests: Interests, k: int) -> float:
    """The share of nodes that k others can cover k times: those that want all of its topics.  [SC §3.3.1]

    Only these can have the degree K_g = k at which the adaptive scheme begins.
    """
    wanted = np.zeros((len(interests.nodes), len(interests.topics)), np.float32)
    for node in range(len(interests.nodes)):
        wanted[node, interests.topics_of(node)] = 1
    sizes = wanted.sum(axis=1)
    able = 0
    for first in range(0, len(wanted), 1000):  # a part of the pairs at a time
        part = wanted[first : first + 1000]
        able += int((((part @ wanted.T) == sizes[first : first + 1000, None]).sum(axis=1) > k).sum())
    return able / len(wanted)


def closeness(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """tdi(d) of the workload, d = `closest`; no protocol.  [SC §3.4]"""
    interests, closest = workload(parameters, seed), int(parameters["closest"])
    found = similarity(interests, d_max=closest, sample=parameters.get("sample"), seed=seed, threads=1)
    return {"tdi": float(found.tdi(closest))}


def churned(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Return connectivity and degrees in snapshots under churn, and control messages per join or leave.  [SC §3.8]

    There are `nodes` connected on average, of 1.25 times as many. Snapshots are without nodes that joined in the last
    2 s. All nodes know at once who is there ("assuming full membership"). A node that goes tells its neighbors with
    LEAVE, and nobody crashes. A node that comes back has other interests.

    Both engines count all six kinds of control messages, each when it is sent. In cycles only heartbeats are heard at
    once. They are no control messages, but a LEAVE that answers the heartbeat over half a link is rarer there.
    """
    seconds, every = int(parameters["seconds"]), int(parameters["every"])
    interests = workload({**parameters, "nodes": round(1.25 * parameters["nodes"])}, seed)
    model = OnOff(mean_up=float(parameters["mean_life"]), duration=float(seconds))
    schedule, made = schedule_of(churn(model, interests, seed), interests), system_of(system)
    start = ChurnInCycles if parameters.get("engine") == "cycles" else ChurnByEvents
    run = start(made, interests, schedule, seed)
    steps, split, split_ten, topics, degrees = [], [], [], [], []
    for now in range(every, seconds + 1, every):
        run.run(now * 1_000)
        taken, older = run.take(2_000), run.take(10_000)
        steps.append(now)
        split.append(len(taken.connectivity.split))
        split_ten.append(len(older.connectivity.split))
        topics.append(taken.topics)
        degrees.append(float(taken.degrees.mean))
    sent, events = run.sent_by_type(), run.events
    control = {f"messages {kind}": sent.get(kind, 0) / events for kind in made.control_types()}
    return {
        "split": (steps, split),
        "split_10s": (steps, split_ten),
        "topics": (steps, topics),
        "degree": (steps, degrees),
        "events": float(events),
        "messages": sum(control.values()),
        **control,
    }


class ChurnByEvents:
    """A run of the protocol's own nodes that join and leave."""

    def __init__(self, made: System, interests: Interests, schedule: Schedule, seed: int) -> None:
        self._engine = Engine(made, topics_by_node(interests), seed=seed, absent=schedule.absent)
        self._injector, self._camera = Injector(self._engine, schedule), Camera(self._engine.world)
        self.run, self.sent_by_type = self._engine.run, self._engine.sent_by_type

    def take(self, age_ms_min: int) -> Snapshot:
        """Return a snapshot without nodes that are younger than that."""
        return self._camera.take(age_ms_min=age_ms_min)

    @property
    def events(self) -> int:
        """Return the number of joins and leaves so far."""
        return sum(self._injector.counts.values())


class ChurnInCycles:
    """The same on the cycle engine."""

    def __init__(self, made: System, interests: Interests, schedule: Schedule, seed: int) -> None:
        assert isinstance(made, NeighborSystem), "SpiderCast or one of its baselines"
        self._network, self._plan = start_neighbors(made, topics_by_node(interests), schedule, seed)
        self._lens, self._faults = Lens(self._network.instance), deque(schedule.faults)
        self._joined_ms = np.where(self._network.alive, 0, -1)

    def run(self, until_ms: int) -> None:
        """Let everything happen up to a time. Joins and leaves happen between two ticks."""
        while self._faults and self._faults[0].time_ms <= until_ms:
            fault, before = self._faults.popleft(), self._network.alive.copy()
            self._network.run(fault.time_ms)
            self._plan.apply(self._network, fault)
            self._joined_ms[self._network.alive & ~before] = fault.time_ms
        self._network.run(until_ms)

    def take(self, age_ms_min: int) -> Snapshot:
        """Return a snapshot without nodes that are younger than that."""
        old = self._network.alive & (self._network.tick - self._joined_ms >= age_ms_min)
        return self._lens.take(old, self._network.links())

    def sent_by_type(self) -> dict[str, int]:
        return self._network.sent

    @property
    def events(self) -> int:
        """Return the number of joins and leaves so far."""
        return sum(self._plan.counts.values())
