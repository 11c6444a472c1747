"""SpiderCast, its baselines and RingPT.  [SC §3]

Static runs: all nodes start together with full views, iterations of 0.2 s, until nothing has changed for 5 s. They run
on the cycle engine where `engine` says so (docs/cycles.md).
"""

from __future__ import annotations

import re
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
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.probes import Camera, Snapshot
from trellis.simulate.run import RunConfig, topics_by_node
from trellis.simulate.system import System
from trellis.simulate.systems import maker_of
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
    """`nodes` connected on average, of 1.25 times as many; snapshots without those who joined in the last 2 s."""
    seconds, every = int(parameters["seconds"]), int(parameters["every"])
    interests = workload({**parameters, "nodes": round(1.25 * parameters["nodes"])}, seed)
    model = OnOff(mean_up=float(parameters["mean_life"]), duration=float(seconds))
    schedule = schedule_of(churn(model, interests, seed), interests)
    made = system_of(system)
    engine = Engine(made, topics_by_node(interests), seed=seed, absent=schedule.absent)
    injector, camera = Injector(engine, schedule), Camera(engine.world)
    steps, split, split_ten, topics, degrees = [], [], [], [], []
    for now in range(every, seconds + 1, every):
        engine.run(now * 1_000)
        taken, older = camera.take(age_ms_min=2_000), camera.take(age_ms_min=10_000)
        steps.append(now)
        split.append(len(taken.connectivity.split))
        split_ten.append(len(older.connectivity.split))
        topics.append(taken.topics)
        degrees.append(float(taken.degrees.mean))
    sent, events = engine.sent_by_type(), sum(injector.counts.values())
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
