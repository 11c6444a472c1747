"""OMen, OMen-G and SpiderCast on the cycle engine: the measures of `omen.py` without messages and processor times.

Events begin when the life cycle of the last one is over, and machines crash, as in `omen.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from trellis.cycles.omen_run.network import OMenNetwork
from trellis.model import Interests, Overlay
from trellis.simulate.churn_by_cycles import Lens
from trellis.simulate.neighbors_by_cycles import start_neighbors
from trellis.simulate.omen_by_cycles import OMenProbe, start_omen
from trellis.simulate.probes import Snapshot
from trellis.simulate.run import link_names, topics_by_node
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.system import System
from trellis.simulate.systems.omen import OMen
from trellis.simulate.systems.spidercast import NeighborSystem

WARMUP, AFTER, ROUNDS_MAX, CALM = 30, 60, 20, 2  # rounds; `omen.py` has the same


def churned_in_cycles(
    made: System,
    interests: Interests,
    schedule: Schedule,
    start: Overlay,
    seed: int,
    every: int,
    take: Callable[[int, Interests, Overlay], None],
) -> dict[str, Any]:
    """Return degrees and links after every event. `take` gets the state after every `every`-th one."""
    sizes = dict(zip(interests.nodes, interests.sizes.tolist(), strict=True))
    run: OMenRounds | NeighborRounds
    if isinstance(made, OMen):
        run = OMenRounds(made, interests, schedule, start, seed)
    else:
        assert isinstance(made, NeighborSystem), "churn in cycles: OMen, or SpiderCast and its baselines"
        run = NeighborRounds(made, interests, schedule, start, seed)
    series: dict[str, list[float]] = {}
    skipped, begun = 0, time.process_time()
    for _ in range(WARMUP):
        run.cycle()
    times = [fault.time_ms for fault in schedule.faults]
    gaps = [later - earlier for earlier, later in pairwise(times)] + [ROUNDS_MAX * 1000]
    for place, (fault, gap_ms) in enumerate(zip(schedule.faults, gaps, strict=True), start=1):
        (name,) = fault.nodes
        if fault.topics:
            sizes[name] = len(fault.topics)
        kind = "join" if fault.kind == "join" else "crash-uniform"
        happened = run.plan.apply(run.network, Fault(fault.time_ms, kind, fault.nodes, topics=fault.topics))
        skipped += not happened
        rounds = _life_cycle(run) if happened else 0
        taken = run.snapshot()
        for metric, value in (
            ("D", taken.degrees.maximum),
            ("d", taken.degrees.mean),
            ("links", len(taken.overlay)),
            ("split", len(taken.connectivity.split)),
            ("rounds", rounds),
            ("early", 1000 * rounds > gap_ms),
            ("size", sizes[name]),
        ):
            series.setdefault(metric, []).append(float(value))
        if every and place % every == 0:
            take(place, taken.interests, taken.overlay)
    for _ in range(AFTER):
        run.cycle()
    last = run.snapshot()
    return {
        **series,
        "split_end": float(len(last.connectivity.split)),
        "nodes_end": float(last.degrees.total),
        "skipped": float(skipped),
        "cpu_s": time.process_time() - begun,
    }


class OMenRounds:
    """A run of OMen or OMen-G, round by round."""

    def __init__(self, made: OMen, interests: Interests, schedule: Schedule, start: Overlay, seed: int) -> None:
        self.network, self.plan = start_omen(
            made, topics_by_node(interests), schedule, seed, links=link_names(start), broken_streams=True
        )
        self.snapshot = OMenProbe(self.network, made).snapshot

    def cycle(self) -> None:
        self.plan.retry(self.network)
        self.network.cycle()

    def is_over(self) -> bool:
        """Return whether the last event is over: no link changes, everybody is done, nobody waits to come back."""
        is_calm = self.network.round - self.network.changed_round > CALM and not self.plan.is_waiting
        return is_calm and not self.network.is_busy()


class NeighborRounds:
    """A run of SpiderCast, second by second."""

    def __init__(
        self, made: NeighborSystem, interests: Interests, schedule: Schedule, start: Overlay, seed: int
    ) -> None:
        self.network, self.plan = start_neighbors(
            made, topics_by_node(interests), schedule, seed, links=link_names(start)
        )
        self._lens = Lens(self.network.instance)

    def cycle(self) -> None:
        self.network.run(self.network.tick + 1000)

    def is_over(self) -> bool:
        return self.network.tick - self.network.changed_ms >= CALM * 1000

    def snapshot(self) -> Snapshot:
        return self._lens.take(self.network.alive, self.network.links())


def _life_cycle(run: OMenRounds | NeighborRounds) -> int:
    """Run until the event that has just begun is over; return how many rounds that took."""
    for rounds in range(1, ROUNDS_MAX + 1):
        run.cycle()
        if run.is_over():
            return rounds
    return ROUNDS_MAX


def mesh(made: OMen, interests: Interests, start: Overlay, seed: int) -> OMenNetwork:
    """Return a mesh without churn."""
    network, _ = start_omen(made, topics_by_node(interests), Schedule(), seed, links=link_names(start))
    return network


def view_sizes(network: OMenNetwork, rounds: int) -> list[tuple[int, Any]]:
    """Return the sizes of all local views after every ten rounds."""
    found = []
    for now in range(1, rounds + 1):
        network.cycle()
        if now % 10 == 0:
            found.append((now, network.sizes()[0].astype(float)))
    return found


def arcs(network: OMenNetwork, rounds: int) -> tuple[Any, Any]:
    """Return for each node, in the order of names, how many backups it has, and how many nodes it backs."""
    for _ in range(rounds):
        network.cycle()
    out, views = np.zeros(len(network.alive)), network.views
    for holder in np.flatnonzero(network.alive).tolist():
        for slot in range(int(views.count[holder])):
            out[views.whose[holder, slot]] += views.backups.count[views.row[holder, slot]]
    return out, network.sizes()[1].astype(float)


def in_order_of(interests: Interests, network: OMenNetwork, values: Any) -> Any:
    """Return values of nodes in the order of the interests table."""
    number = {name: place for place, name in enumerate(network.instance.nodes)}
    return values[[number[name] for name in interests.nodes]]
