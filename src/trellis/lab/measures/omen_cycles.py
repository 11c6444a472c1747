"""OMen and OMen-G on the cycle engine: the measures of `omen.py` that need no messages and no processor times.

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
from trellis.simulate.omen_by_cycles import OMenPlan, OMenProbe, start_omen
from trellis.simulate.run import link_names, topics_by_node
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems.omen import OMen

WARMUP, AFTER, ROUNDS_MAX, CALM = 30, 60, 20, 2  # rounds; `omen.py` has the same


def churned_in_cycles(
    made: OMen,
    interests: Interests,
    schedule: Schedule,
    start: Overlay,
    seed: int,
    every: int,
    take: Callable[[int, Interests, Overlay], None],
) -> dict[str, Any]:
    """Return degrees and links after every event. `take` gets the state after every `every`-th one."""
    sizes = dict(zip(interests.nodes, interests.sizes.tolist(), strict=True))
    network, plan = start_omen(
        made, topics_by_node(interests), schedule, seed, links=link_names(start), broken_streams=True
    )
    probe = OMenProbe(network, made)
    series: dict[str, list[float]] = {}
    skipped, begun = 0, time.process_time()
    for _ in range(WARMUP):
        network.cycle()
    times = [fault.time_ms for fault in schedule.faults]
    gaps = [later - earlier for earlier, later in pairwise(times)] + [ROUNDS_MAX * 1000]
    for place, (fault, gap_ms) in enumerate(zip(schedule.faults, gaps, strict=True), start=1):
        (name,) = fault.nodes
        if fault.topics:
            sizes[name] = len(fault.topics)
        kind = "join" if fault.kind == "join" else "crash-uniform"
        happened = plan.apply(network, Fault(fault.time_ms, kind, fault.nodes, topics=fault.topics))
        skipped += not happened
        rounds = _life_cycle(network, plan) if happened else 0
        taken = probe.snapshot()
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
        plan.retry(network)
        network.cycle()
    last = probe.snapshot()
    return {
        **series,
        "split_end": float(len(last.connectivity.split)),
        "nodes_end": float(last.degrees.total),
        "skipped": float(skipped),
        "cpu_s": time.process_time() - begun,
    }


def _life_cycle(network: OMenNetwork, plan: OMenPlan) -> int:
    """Run until the event that has just begun is over; return how many rounds that took."""
    for rounds in range(1, ROUNDS_MAX + 1):
        plan.retry(network)
        network.cycle()
        is_calm = network.round - network.changed_round > CALM and not plan.is_waiting
        if is_calm and not network.is_busy():
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
