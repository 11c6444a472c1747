"""Run SpiderCast and its baselines on the cycle engine, with the options and results of the event engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np

from trellis.cycles.instance import make_instance
from trellis.cycles.memory import require_memory
from trellis.cycles.neighbor_network import NOTICE_MS, NeighborNetwork
from trellis.cycles.neighbors import K
from trellis.errors import InputError
from trellis.measure.connectivity import connectivity
from trellis.measure.distributions import Distribution
from trellis.model import Interests, Overlay
from trellis.simulate.churn_by_cycles import ChurnPlan, Lens, events_of, instance_of
from trellis.simulate.digest import overlay_digest
from trellis.simulate.probes import Series, Snapshot
from trellis.simulate.run import Progress, RunConfig, link_names, topics_by_node
from trellis.simulate.schedule import Schedule
from trellis.simulate.systems.spidercast import NeighborSystem

RETURN_MS = 100  # from a departure until the node may come back, so that no message of before reaches it


@dataclass(eq=False)
class NeighborRun:
    """A finished run of SpiderCast or a baseline on the cycle engine."""

    network: NeighborNetwork
    system: NeighborSystem
    plan: ChurnPlan | None  # None: all nodes are there from the start to the end
    probe: NeighborProbe
    parameters: dict[str, Any]
    settled: bool  # True if no link changed during the last `settle_ms` of the run
    ended_ms: int

    @property
    def title(self) -> str:
        return f"{self.system.name}, seed {self.network.seed}"

    @property
    def random_coverage(self) -> list[int]:
        """Return K_r of every node, which the adaptive scheme raises.

        For a baseline it is the number of random links.
        """
        found: list[int] = self.network.tasks.state[self.network.rule.nodes :, K].tolist()
        return found or [0] * self.network.rule.nodes

    def draw(self, folder: Path) -> None:
        """Draw nothing. The figures that every run has show all there is."""

    def summary(self) -> dict[str, Any]:
        found, sent = self.probe.snapshot(), self.probe.sent_by_type()
        return {
            "protocol": self.system.name,
            "engine": "cycles",
            "seed": self.network.seed,
            "time_s": self.ended_ms / 1000,
            "settled": self.settled,
            "changed_last_s": self.network.changed_ms / 1000,
            "nodes": found.degrees.total,
            "links": len(found.overlay),
            "degree": found.degrees.to_json(),
            "topics": found.topics,
            "split_topics": len(found.connectivity.split),
            "components": int(found.connectivity.components.sum()),
            "tco": found.connectivity.is_tco,
            "messages": sum(sent.values()),
            "messages_by_type": sent,
            "encoded_bytes": 0,
            "encoded_bytes_by_type": {},
            "control_messages": self.probe.control_messages(sent),
            "links_formed": self.network.links_formed,
            "deliveries": 0,
            **events_of(self.plan, self.probe),
            "digest": self.network.digest(),
            "overlay_digest": overlay_digest(link_names(found.overlay)),
        }


def simulate_neighbors(
    system: NeighborSystem,
    interests: Interests,
    config: RunConfig,
    overlay: Overlay | None,
    schedule: Schedule,
    parameters: dict[str, Any],
    progress: Callable[[Progress], None] | None = None,
) -> NeighborRun:
    """Run `system` on `interests` in cycles, from the links of `overlay`, with the joins and leaves of `schedule`."""
    wanted, links = topics_by_node(interests), link_names(overlay) if overlay is not None else ()
    if schedule.faults or schedule.absent or system.gossip is not None:
        if config.view_share != 1.0:
            what = "nodes that gossip know whom they have heard of, and under churn the others know all that are there"
            raise InputError("--view", what, "leave it out")
        network, plan = start_neighbors(
            system, wanted, schedule, config.seed, links=links, notice_ms=config.broken_stream_ms
        )
        probe = NeighborProbe(network, system, interests, Lens(network.instance))
    else:
        network, plan = _start_static(system, wanted, config, links), None
        probe = NeighborProbe(network, system, interests)
    events = _Events(network, plan, schedule)
    settle_ms = config.settle_ms if config.settle_ms is not None else system.settle_ms
    now = 0
    while True:
        events.run(now)
        found, quiet_ms = probe.sample(now), max(network.changed_ms, events.last_ms) + settle_ms
        if progress is not None:
            sent = sum(network.sent.values())
            progress(Progress(now, config.duration_ms, sent, found.degrees.total, found.connected_share))
        end_ms = min(quiet_ms, events.last_ms + config.limit_ms) if config.duration_ms is None else config.duration_ms
        if now >= end_ms:
            break
        now = min(now + config.sample_ms, end_ms)
    return NeighborRun(network, system, plan, probe, parameters, now >= quiet_ms, now)


def _start_static(
    system: NeighborSystem,
    wanted: Mapping[str, tuple[str, ...]],
    config: RunConfig,
    links: Iterable[tuple[str, str]],
) -> NeighborNetwork:
    """Return the network of a run in which all nodes are there from its start to its end."""
    instance = make_instance(wanted)
    sizes = len(instance.nodes), len(instance.topics), instance.subscriptions
    require_memory(*sizes, system.config, config.view_share)
    number = {name: place for place, name in enumerate(instance.nodes)}
    planned = [(number[u], number[v]) for u, v in links]
    return NeighborNetwork(instance, system.config, config.seed, share=config.view_share, planned=planned)


class _Events:
    """The joins, leaves and crashes of a run. Each happens at its millisecond, before the messages and timers of it."""

    def __init__(self, network: NeighborNetwork, plan: ChurnPlan | None, schedule: Schedule) -> None:
        self._network, self._plan = network, plan
        self._waiting = [(fault.time_ms, place, fault) for place, fault in enumerate(schedule.faults)]
        heapify(self._waiting)
        self._stopped_ms: dict[str, int] = {}
        self.last_ms = max((fault.time_ms for fault in schedule.faults), default=0)

    def run(self, until_ms: int) -> None:
        """Let everything happen up to a time."""
        while self._plan is not None and self._waiting and self._waiting[0][0] <= until_ms:
            time_ms, place, fault = heappop(self._waiting)
            self._network.run(time_ms)
            back_ms = max((self._stopped_ms.get(name, -RETURN_MS) for name in fault.nodes), default=0) + RETURN_MS
            if fault.kind == "join" and back_ms > time_ms:
                heappush(self._waiting, (back_ms, place, fault))
            elif self._plan.apply(self._network, fault) and fault.kind != "join":
                self._stopped_ms.update(dict.fromkeys(fault.nodes, time_ms))
        self._network.run(until_ms)


def start_neighbors(
    system: NeighborSystem,
    wanted: Mapping[str, tuple[str, ...]],
    schedule: Schedule,
    seed: int,
    *,
    links: Iterable[tuple[str, str]] = (),
    notice_ms: int | None = NOTICE_MS,
) -> tuple[NeighborNetwork, ChurnPlan]:
    """Return the network of a run with churn or with views by gossip, and what happens in it.

    Without views by gossip, all nodes know at once who is there. Neighbors notice a crash `notice_ms` later by a broken
    stream, or by silence alone if it is None.
    """
    instance, slots = instance_of(wanted, schedule)
    sizes = len(instance.nodes), len(instance.topics), instance.subscriptions
    require_memory(*sizes, system.config, gossip=system.gossip)
    plan = ChurnPlan(instance, slots, wanted, schedule, system.period_ms)
    planned = [(int(one), int(other)) for one, other in plan.ends_of(links)]
    network = NeighborNetwork(
        instance, system.config, seed, planned=planned, gossip=system.gossip, churns=True, absent=plan.absent,
        notice_ms=notice_ms,
    )  # fmt: skip
    return network, plan


class NeighborProbe(Series):
    """The series of a run, with the metrics that the event engine has."""

    def __init__(
        self, network: NeighborNetwork, system: NeighborSystem, interests: Interests, lens: Lens | None = None
    ) -> None:
        """`lens`: nodes may join and leave, and it takes the snapshots."""
        super().__init__()
        self.network, self.interests, self._lens = network, interests, lens
        self._control = set(system.control_types())
        self._id_of = np.array(
            [] if lens is not None else [interests.nodes.id_of(name) for name in network.instance.nodes], np.int64
        )
        self._sent: dict[str, int] = {}
        self._last: tuple[tuple[int, int], Snapshot] | None = None

    def sample(self, now_ms: int) -> Snapshot:
        """Add one sample to the series, and return the snapshot behind it."""
        found, time_s, sent = self.snapshot(), now_ms / 1000, self.sent_by_type()
        self.add_snapshot(time_s, found)
        since = {kind: count - self._sent.get(kind, 0) for kind, count in sent.items()}
        self.add(time_s, "messages", sum(since.values()))
        self.add(time_s, "control_messages", self.control_messages(since))
        for kind, count in since.items():
            self.add(time_s, f"messages/{kind}", count)
        self.add(time_s, "deliveries", 0)
        self._sent = sent
        return found

    def snapshot(self) -> Snapshot:
        """Return the current links and which topics they connect.

        It is computed again only after links have changed.
        """
        seen = self.network.links_formed, self.network.changed_ms
        if self._lens is not None and (self._last is None or self._last[0] != seen):
            self._last = seen, self._lens.take(self.network.alive, self.network.links())
        if self._last is None or self._last[0] != seen:
            ends = (self._id_of[end] for end in self.network.links())
            overlay = Overlay.from_ids(self.interests.nodes, *ends)
            degrees = Distribution.of(overlay.degrees)
            self._last = seen, Snapshot(self.interests, overlay, degrees, connectivity(self.interests, overlay))
        return self._last[1]

    def sent_by_type(self) -> dict[str, int]:
        return dict(sorted(self.network.sent.items()))

    def control_messages(self, sent: dict[str, int]) -> int:
        return sum(count for kind, count in sent.items() if kind in self._control)
