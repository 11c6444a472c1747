"""Run SpiderCast and its baselines on the cycle engine, with the options and results of the event engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.cycles.instance import make_instance
from trellis.cycles.memory import require_memory
from trellis.cycles.neighbor_network import NeighborNetwork
from trellis.cycles.neighbors import K
from trellis.errors import InputError
from trellis.measure.connectivity import connectivity
from trellis.measure.distributions import Distribution
from trellis.model import Interests, Overlay
from trellis.simulate.by_cycles import parameters_of
from trellis.simulate.churn_by_cycles import ChurnPlan, instance_of
from trellis.simulate.digest import overlay_digest
from trellis.simulate.probes import Series, Snapshot
from trellis.simulate.run import Progress, RunConfig, link_names, topics_by_node
from trellis.simulate.schedule import Schedule
from trellis.simulate.systems.spidercast import NeighborSystem


@dataclass(eq=False)
class NeighborRun:
    """A finished run of SpiderCast or a baseline on the cycle engine."""

    network: NeighborNetwork
    system: NeighborSystem
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
            "messages_delivered": sum(sent.values()),
            "encoded_bytes": 0,
            "control_messages": self.probe.control_messages(sent),
            "links_formed": self.network.links_formed,
            "deliveries": 0,
            "digest": self.network.digest(),
            "overlay_digest": overlay_digest(link_names(found.overlay)),
        }


def simulate_neighbors(
    system: NeighborSystem,
    interests: Interests,
    config: RunConfig,
    overlay: Overlay | None = None,
    schedule: Schedule | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> NeighborRun:
    """Run `system` on `interests` in cycles, starting from the links of `overlay`."""
    if schedule is not None and schedule.faults:
        raise InputError("", f"{system.name} publishes nothing, so a schedule has no effect in cycles", "leave it out")
    if system.gossip is not None:
        what = "in cycles nodes know everybody, or the share that `--view` says, not what gossip tells them"
        raise InputError("", what, "leave gossip out, or take the engine `events`")
    share = config.view_share
    require_memory(len(interests.nodes), len(interests.topics), interests.subscriptions, system.config, share)
    instance = make_instance(topics_by_node(interests))
    number = {name: place for place, name in enumerate(instance.nodes)}
    planned = [(number[u], number[v]) for u, v in link_names(overlay)] if overlay is not None else []
    network = NeighborNetwork(instance, system.config, config.seed, share=share, planned=planned)
    probe = NeighborProbe(network, system, interests)
    settle_ms = config.settle_ms if config.settle_ms is not None else system.settle_ms
    now = 0
    while True:
        found, quiet_ms = probe.sample(now), network.changed_ms + settle_ms
        if progress is not None:
            sent = sum(network.sent.values())
            progress(Progress(now, config.duration_ms, sent, found.degrees.total, found.connected_share))
        end_ms = min(quiet_ms, config.limit_ms) if config.duration_ms is None else config.duration_ms
        if now >= end_ms:
            break
        now = min(now + config.sample_ms, end_ms)
        network.run(now)
    return NeighborRun(network, system, probe, parameters_of(system, interests, config, 0), now >= quiet_ms, now)


def start_neighbors(
    system: NeighborSystem,
    wanted: Mapping[str, tuple[str, ...]],
    schedule: Schedule,
    seed: int,
    *,
    links: Iterable[tuple[str, str]] = (),
) -> tuple[NeighborNetwork, ChurnPlan]:
    """Return the network of a run with churn, and what happens in it.

    Without views by gossip, all nodes know at once who is there.
    """
    instance, slots = instance_of(wanted, schedule)
    sizes = len(instance.nodes), len(instance.topics), instance.subscriptions
    require_memory(*sizes, system.config, gossip=system.gossip)
    plan = ChurnPlan(instance, slots, wanted, schedule, system.period_ms)
    planned = [(int(one), int(other)) for one, other in plan.ends_of(links)]
    network = NeighborNetwork(
        instance, system.config, seed, planned=planned, gossip=system.gossip, churns=True, absent=plan.absent
    )  # fmt: skip
    return network, plan


class NeighborProbe(Series):
    """The series of a run, with the metrics that the event engine has."""

    def __init__(self, network: NeighborNetwork, system: NeighborSystem, interests: Interests) -> None:
        super().__init__()
        self.network, self.interests = network, interests
        self._control = set(system.control_types())
        self._id_of = np.array([interests.nodes.id_of(name) for name in network.instance.nodes], np.int64)
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
