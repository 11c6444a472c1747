"""SpiderCast's figures beside the paper's: each experiment of [SC §3] that the simulator alone can answer.

    python benchmarks/spidercast_figures.py fig12 --nodes 1000 2000 --seeds 1
    python benchmarks/spidercast_figures.py all --nodes 1000 2000 4000 --seeds 1 2 3

Static runs: all nodes start together, iterations of 0.2 s, 10 ms latency, until nothing has changed for 5 s.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from trellis.model import Interests, Overlay
from trellis.simulate.churn import schedule_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.probes import Camera, Snapshot
from trellis.simulate.run import topics_by_node
from trellis.simulate.system import System
from trellis.simulate.systems.spidercast import RandomLinks, Similarity, SpiderCast
from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import OnOff
from trellis.workloads.generate import generate
from trellis.workloads.presets import PRESETS

SETTLE_MS = 5_000
NODES = (1000, 2000, 4000, 6000, 8000, 10000)
FIG12 = {
    "spidercast(3,0)": (SpiderCast, {}, (10.81, 10.11, 9.53, 9.24, 9.08, 8.95)),
    "similarity(10,0)": (Similarity, {"x": 10, "y": 0}, (10.08, 10.07, 10.08, 10.09, 10.08, 10.08)),
    "similarity(9,1)": (Similarity, {"x": 9, "y": 1}, (10.22, 10.22, 10.20, 10.22, 10.21, 10.22)),
    "similarity(8,2)": (Similarity, {"x": 8, "y": 2}, (10.20, 10.19, 10.19, 10.20, 10.20, 10.20)),
    "similarity(7,3)": (Similarity, {"x": 7, "y": 3}, (10.21, 10.21, 10.20, 10.22, 10.21, 10.21)),
    "random(10)": (RandomLinks, {"y": 10}, (10.82, 10.54, 10.34, 10.12, 10.08, 10.11)),
    "similarity(20,0)": (Similarity, {"x": 20, "y": 0}, (20.04, 20.04, 20.04, 20.04, 20.03, 20.04)),
}


class Outcome(NamedTuple):
    snapshot: Snapshot
    engine: Engine
    seconds: float  # of wall time
    quiet_s: float  # when the last link changed, in virtual time

    @property
    def degree(self) -> float:
        return float(self.snapshot.degrees.mean)

    @property
    def split(self) -> int:
        return len(self.snapshot.connectivity.split)

    @property
    def components(self) -> int:
        return int(self.snapshot.connectivity.components.sum())


def workload(name: str, nodes: int, seed: int) -> Interests:
    return generate(replace(PRESETS[f"spidercast-{name}"].config, nodes=nodes), seed)


def settle(system: System, interests: Interests, seed: int, view_share: float = 1.0) -> Outcome:
    begun = time.perf_counter()
    engine = Engine(system, topics_by_node(interests), seed=seed, view_share=view_share)
    now = 0
    while now < 600_000 and now - engine.quiet_from_ms < SETTLE_MS:
        now += 1_000
        engine.run(now)
    snapshot = Camera(engine.world).take()
    return Outcome(snapshot, engine, time.perf_counter() - begun, engine.quiet_from_ms / 1000)


def fig12_and_13(nodes: Iterable[int], seeds: Iterable[int]) -> Iterator[str]:
    """Average degree [Fig. 12] and components over all topics [Fig. 13]: SpiderCast 100, all others more."""
    for name, (kind, options, printed) in FIG12.items():
        for count in nodes:
            runs = [settle(kind(**options), workload("rss", count, seed), seed) for seed in seeds]
            paper = printed[NODES.index(count)] if count in NODES else float("nan")
            degree = np.mean([run.degree for run in runs])
            yield (
                f"{name:18} n={count:6}  degree {degree:6.2f}  paper {paper:6.2f} {100 * (degree / paper - 1):+5.1f}%  "
                f"components {[run.components for run in runs]}  largest degree "
                f"{max(int(run.snapshot.degrees.maximum) for run in runs)}  {sum(run.seconds for run in runs):.0f} s"
            )


def fig12(nodes: Iterable[int], seeds: Iterable[int]) -> Iterator[str]:
    """SpiderCast's row of [Fig. 12] alone."""
    for count in nodes:
        runs = [settle(SpiderCast(), workload("rss", count, seed), seed) for seed in seeds]
        paper = FIG12["spidercast(3,0)"][2][NODES.index(count)] if count in NODES else float("nan")
        degree = np.mean([run.degree for run in runs])
        yield (
            f"n={count:6}  degree {degree:6.2f}  paper {paper:6.2f}  {100 * (degree / paper - 1):+5.1f}%  "
            f"split topics {[run.split for run in runs]}  quiet after {max(run.quiet_s for run in runs):.1f} s  "
            f"{sum(run.seconds for run in runs):.0f} s"
        )


def fig7a(nodes: Iterable[int], seeds: Iterable[int]) -> Iterator[str]:
    """(3,0) on four distributions: all connected [§3.3]; degree < 12, falling, NYSE lowest, uniform highest."""
    for count in nodes:
        for name in ("nyse", "zipf1", "rss", "unif"):
            runs = [settle(SpiderCast(), workload(name, count, seed), seed) for seed in seeds]
            yield (
                f"{name:6} n={count:6}  degree {np.mean([run.degree for run in runs]):6.2f}  "
                f"split topics {[run.split for run in runs]}"
            )


def fig6(nodes: Iterable[int], seeds: Iterable[int]) -> Iterator[str]:
    """Zipf(2): (3,0) about 7 and 15 split topics from 6,000 nodes on; (4,0) no cure; (3,1) connected, about 13."""
    for count in nodes:
        for kg, kr in ((3, 0), (4, 0), (3, 1)):
            runs = [settle(SpiderCast(kg=kg, kr=kr), workload("zipf2", count, seed), seed) for seed in seeds]
            yield (
                f"({kg},{kr}) n={count:6}  degree {np.mean([run.degree for run in runs]):6.2f}  "
                f"split topics {[run.split for run in runs]}"
            )


def s331(nodes: Iterable[int], seeds: Iterable[int]) -> Iterator[str]:
    """Adaptive: connects all workloads; all but Zipf(2) settle at (3,0)."""
    for count in nodes:
        for name in ("nyse", "zipf1", "rss", "unif", "zipf2"):
            for seed in seeds:
                run = settle(SpiderCast(adaptive=True), workload(name, count, seed), seed)
                final = [run.engine.world.node(node).random_task.goal.k for node in run.engine.world.living]  # type: ignore[attr-defined]
                shares = ", ".join(f"K_r={k}: {100 * final.count(k) / count:.1f}%" for k in sorted(set(final)))
                yield f"{name:6} n={count:6} seed {seed}  degree {run.degree:6.2f}  split topics {run.split}  {shares}"


def fig10(nodes: Iterable[int], seeds: Iterable[int]) -> Iterator[str]:
    """Views of p%: connected from 5% on; degree falls with p."""
    for count in nodes:
        for percent in (5, 10, 25, 50, 100):
            runs = [settle(SpiderCast(), workload("rss", count, seed), seed, percent / 100) for seed in seeds]
            yield (
                f"n={count:6} p={percent:3}%  degree {np.mean([run.degree for run in runs]):6.2f}  "
                f"split topics {[run.split for run in runs]}"
            )


def fig11(nodes: Iterable[int], seeds: Iterable[int], seconds: int = 1000) -> Iterator[str]:
    """Churn: at 200, 400, ... s all topics connected without nodes of the last 2 s; degree does not depend on the rate.

    And [§3.8.1]: 38 and 34 control messages per join or leave at 1,000 and 2,000 connected nodes.
    """
    for count in nodes:
        for mean_up in (100, 500):
            for seed in seeds:
                yield _churned(count, mean_up, seed, seconds)


def _churned(count: int, mean_up: int, seed: int, seconds: int) -> str:
    begun = time.perf_counter()
    interests = workload("rss", round(1.25 * count), seed)
    schedule = schedule_of(churn(OnOff(mean_up=mean_up, duration=float(seconds)), interests, seed), interests)
    system = SpiderCast()
    engine = Engine(system, topics_by_node(interests), seed=seed, absent=schedule.absent)
    injector, camera = Injector(engine, schedule), Camera(engine.world)
    split, degrees = [], []
    for now in range(200, seconds + 1, 200):
        engine.run(now * 1_000)
        snapshot = camera.take(age_ms_min=2_000)
        split.append(len(snapshot.connectivity.split))
        degrees.append(float(snapshot.degrees.mean))
    sent, events = engine.sent_by_type(), sum(injector.counts.values())
    by_type = {kind: round(sent.get(kind, 0) / events, 1) for kind in system.control_types()}
    return (
        f"n={count:5} mean life {mean_up} s, {events} events  split topics {split}  degree {np.mean(degrees):.2f}  "
        f"{sum(by_type.values()):.1f} control messages an event {by_type}  {time.perf_counter() - begun:.0f} s"
    )


def fig14(nodes: Iterable[int], seeds: Iterable[int]) -> Iterator[str]:
    """RingPT has 51% to 82% more links than SpiderCast, whatever the number of nodes."""
    for count in nodes:
        for seed in seeds:
            interests = workload("rss", count, seed)
            ours, ring = settle(SpiderCast(), interests, seed).degree, 2 * len(ring_per_topic(interests)) / count
            yield f"n={count:6} seed {seed}  SpiderCast {ours:.2f}  RingPT {ring:.2f}  {100 * (ring / ours - 1):+.0f}%"


def ring_per_topic(interests: Interests) -> Overlay:
    """For each topic a ring of its subscribers in the order of ids; links that coincide are one.  [SC §3.9.2]"""
    links: set[tuple[int, int]] = set()
    for topic in range(len(interests.topics)):
        ring = interests.nodes_of(topic)
        if len(ring) > 1:
            pairs = np.sort(np.stack([ring, np.roll(ring, -1)], axis=1), axis=1)
            links.update(map(tuple, pairs.tolist()))
    return Overlay.from_ids(interests.nodes, [u for u, _ in sorted(links)], [v for _, v in sorted(links)])


FIGURES: dict[str, Callable[..., Iterator[str]]] = {
    "fig12": fig12,
    "fig12-13": fig12_and_13,
    "fig7a": fig7a,
    "fig6": fig6,
    "s331": s331,
    "fig10": fig10,
    "fig11": fig11,
    "fig14": fig14,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="+", choices=[*FIGURES, "all"])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--seconds", type=int, default=1000, help="virtual time of fig11")
    chosen = parser.parse_args()
    for name in FIGURES if "all" in chosen.figures else chosen.figures:
        print(f"{name}: {(FIGURES[name].__doc__ or '').splitlines()[0]}")
        more = {"seconds": chosen.seconds} if name == "fig11" else {}
        for line in FIGURES[name](chosen.nodes, chosen.seeds, **more):
            print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
