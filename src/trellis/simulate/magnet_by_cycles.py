"""Run Magnet and the strawman on the cycle engine, with the options and results of the event engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.cycles.instance import make_instance
from trellis.cycles.magnet_network import MagnetNetwork
from trellis.cycles.memory import require_memory
from trellis.errors import InputError
from trellis.measure.connectivity import connectivity
from trellis.measure.distributions import Distribution
from trellis.model import Interests, Overlay
from trellis.simulate.churn_by_cycles import Counted, events_of
from trellis.simulate.digest import overlay_digest
from trellis.simulate.probes import Series, Snapshot
from trellis.simulate.run import Progress, RunConfig, link_names, topics_by_node
from trellis.simulate.schedule import Schedule
from trellis.simulate.systems.magnet import Magnet
from trellis.simulate.systems.magnet_trees import Reach

JOINED_MS = 10_000  # after the last node has begun to join, all have joined and have fingers


@dataclass(eq=False)
class MagnetRun:
    """A finished run of Magnet or of the strawman on the cycle engine."""

    network: MagnetNetwork
    system: Magnet
    probe: MagnetProbe
    published: Counted
    parameters: dict[str, Any]
    settled: bool  # True if no link and no tree changed during the last `settle_ms` of the run

    @property
    def title(self) -> str:
        return f"{self.system.name}, seed {self.network.seed}"

    def draw(self, folder: Path) -> None:
        from trellis.simulate.systems.magnet_figures import draw_ring, draw_tree, middle_topic

        wanted = topics_by_node(self.probe.interests)
        order, topic = self.network.ring_order(), middle_topic(wanted)
        draw_ring(order, wanted, link_names(self.probe.snapshot().overlay), folder / "ring.png")
        draw_tree(order, None if topic is None else reach_of(self.network, topic, wanted), folder / "tree.png")

    def summary(self) -> dict[str, Any]:
        found, sent = self.probe.snapshot(), self.probe.sent_by_type()
        return {
            "protocol": self.system.name,
            "engine": "cycles",
            "seed": self.network.seed,
            "time_s": self.network.now_ms / 1000,
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
            "deliveries": self.network.deliveries,
            **events_of(self.published, self.probe),
            **self.probe.costs(),
            "digest": self.network.digest(),
            "overlay_digest": overlay_digest(link_names(found.overlay)),
        }


def simulate_magnet(
    system: Magnet,
    interests: Interests,
    config: RunConfig,
    overlay: Overlay | None,
    schedule: Schedule,
    parameters: dict[str, Any],
    progress: Callable[[Progress], None] | None = None,
) -> MagnetRun:
    """Run `system` on `interests` in cycles, with the publications of a schedule."""
    _refuse(system, config, overlay)
    require_memory(len(interests.nodes), len(interests.topics), interests.subscriptions, system.config)
    instance = make_instance(topics_by_node(interests), system.topic_rates)
    begins = system.begins_ms(len(instance.nodes))
    trees_ms = trees_from(system, begins)
    network = MagnetNetwork(instance, system.config, begins, trees_ms, config.seed)
    faults = sorted(schedule.faults, key=lambda fault: fault.time_ms)
    nodes = set(instance.nodes)
    topic_of = {name: place for place, name in enumerate(instance.topics)}
    for fault in faults:
        if fault.nodes[0] not in nodes or fault.topics[0] not in topic_of:
            what = f'"{fault.nodes[0]}" cannot publish on "{fault.topics[0]}"'
            raise InputError("", what, "name a node and a topic of the interests")
    probe, published = MagnetProbe(network, system, interests), Counted()
    settle_ms = config.settle_ms if config.settle_ms is not None else system.settle_ms
    last, now, done = max((fault.time_ms for fault in faults), default=0), 0, 0
    while True:
        found = probe.sample()
        quiet_ms = max(network.changed_ms, network.trees_end_ms, last) + settle_ms
        if progress is not None:
            sent = sum(probe.sent_by_type().values())
            progress(Progress(now, config.duration_ms, sent, found.degrees.total, found.connected_share))
        end_ms = min(quiet_ms, max(last, network.trees_end_ms) + config.limit_ms)
        if config.duration_ms is not None:
            end_ms = config.duration_ms
        if now >= end_ms:
            break
        now = min(now + config.sample_ms, end_ms)
        while done < len(faults) and faults[done].time_ms <= now:
            network.run(faults[done].time_ms)
            network.publish(topic_of[faults[done].topics[0]])
            published.count(faults[done], True)
            done += 1
        network.run(now)
    parameters["system"]["trees_ms"] = trees_ms
    return MagnetRun(network, system, probe, published, parameters, now >= quiet_ms)


def _refuse(system: Magnet, config: RunConfig, overlay: Overlay | None) -> None:
    """Raise InputError for an option that has no meaning in cycles."""
    instead = "leave it out, or take the engine `events`"
    if config.view_share != 1.0 or overlay is not None:
        what = "an overlay to start from" if overlay is not None else "a share of the membership"
        raise InputError("", f"nodes of {system.name} find each other by joining: {what} has no effect", instead)
    if system.config.improve_rounds:
        raise InputError("improve_rounds", "nodes keep their positions in cycles", instead)
    if system.config.sampling != "as-written":
        what = f'samples are truncated as written in cycles, not "{system.config.sampling}"'
        raise InputError("sampling", what, instead)


def trees_from(system: Magnet, begins: list[int]) -> int:
    """Return when the first node joins its trees. In cycles all nodes have joined by then."""
    joined_ms = (begins[-1] if begins else 0) + JOINED_MS
    if system.trees_ms and system.trees_ms < joined_ms:
        what = f"trees are joined from {system.trees_ms} ms on, and nodes join until {joined_ms} ms"
        raise InputError("trees_ms", what, f"give at least {joined_ms}, or 0, or take the engine `events`")
    return system.trees_ms or joined_ms


def reach_of(network: MagnetNetwork, topic: str, wanted: dict[str, tuple[str, ...]]) -> Reach:
    """Return the nodes that a publication on a topic would reach now."""
    nodes = network.instance.nodes
    home, parents = network.tree_of(network.instance.topics.index(topic))
    found = Reach(topic, None if home < 0 else nodes[home], [name for name in wanted if topic in wanted[name]])
    found.parents = {nodes[node]: None if parent < 0 else nodes[parent] for node, parent in parents.items()}
    return found


class MagnetProbe(Series):
    """The series of a run, with the metrics that the event engine has."""

    def __init__(self, network: MagnetNetwork, system: Magnet, interests: Interests) -> None:
        super().__init__()
        self.network, self.interests = network, interests
        self._control = set(system.control_types())
        self._id_of = np.array([interests.nodes.id_of(name) for name in network.instance.nodes], np.int64)
        self._sent: dict[str, int] = {}
        self._deliveries = 0
        self._last: tuple[int, Snapshot] | None = None

    def sample(self) -> Snapshot:
        """Add one sample to the series, and return the snapshot behind it."""
        found, time_s, sent = self.snapshot(), self.network.now_ms / 1000, self.sent_by_type()
        self.add_snapshot(time_s, found)
        for metric, value in self.costs().items():
            self.add(time_s, metric, value)
        since = {kind: count - self._sent.get(kind, 0) for kind, count in sent.items()}
        self.add(time_s, "messages", sum(since.values()))
        self.add(time_s, "control_messages", self.control_messages(since))
        for kind, count in since.items():
            self.add(time_s, f"messages/{kind}", count)
        self.add(time_s, "deliveries", self.network.deliveries - self._deliveries)
        self._sent, self._deliveries = sent, self.network.deliveries
        return found

    def snapshot(self) -> Snapshot:
        """Return the current links and which topics they connect.

        It is computed again only after links have changed.
        """
        seen = self.network.links_version
        if self._last is None or self._last[0] != seen:
            ends = (self._id_of[end] for end in self.network.links())
            overlay = Overlay.from_ids(self.interests.nodes, *ends)
            degrees = Distribution.of(overlay.degrees)
            self._last = seen, Snapshot(self.interests, overlay, degrees, connectivity(self.interests, overlay))
        return self._last[1]

    def costs(self) -> dict[str, float]:
        """Return what one publication on every topic would cost now."""
        found = self.network.reached()
        topics = max(1, len(self.network.instance.topics))
        return {
            "relays": float(found.relays.sum()) / topics,
            "reached": float(found.reached.sum()) / max(1, self.network.instance.subscriptions),
        }

    def sent_by_type(self) -> dict[str, int]:
        """Return how many messages of some types the protocol would have sent (docs/cycles.md says which)."""
        return dict(sorted(self.network.sent.items()))

    def control_messages(self, sent: dict[str, int]) -> int:
        return sum(count for kind, count in sent.items() if kind in self._control)
