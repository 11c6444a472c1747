"""Run a system on the cycle engine, with the options, measures and result folder of the event engine.

`trellis.cycles` holds the engine itself. This module adds publications, samples and the summary of a run.
`neighbors_by_cycles.py` does the same for SpiderCast and its baselines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import trellis
from trellis import ids
from trellis.cycles.instance import Instance, make_instance
from trellis.cycles.memory import require_memory
from trellis.cycles.network import Network
from trellis.cycles.spread import DUPLICATES, HITS, MESSAGES, MISSED, NOTIFICATIONS, PUBLICATIONS, UNWANTED_MESSAGES
from trellis.errors import InputError
from trellis.measure.connectivity import connectivity
from trellis.measure.distributions import Distribution
from trellis.model import Interests, Overlay
from trellis.simulate.digest import overlay_digest
from trellis.simulate.dissemination import Measured
from trellis.simulate.dissemination_system import TALK_FROM_MS, TALK_UNTIL_MS, TableSystem
from trellis.simulate.network import NetworkConfig
from trellis.simulate.probes import Series, Snapshot
from trellis.simulate.run import Progress, RunConfig, link_names, topics_by_node
from trellis.simulate.schedule import Schedule
from trellis.simulate.system import System
from trellis.simulate.systems.spidercast import NeighborSystem

if TYPE_CHECKING:
    from trellis.simulate.neighbors_by_cycles import NeighborRun

SYSTEMS = ("vitis", "rvr", "spidercast", "similarity", "random")
Published = dict[int, list[tuple[str, str]]]  # cycle -> (topic, publisher) of each event that is published in it


@dataclass(eq=False)
class CycleRun:
    """A finished run of Vitis or RVR on the cycle engine."""

    network: Network
    system: TableSystem
    probe: CycleProbe
    parameters: dict[str, Any]
    settled: bool  # True if no table changed during the last `settle_ms` of the run
    changed_round: int  # the last round in which a table changed

    @property
    def title(self) -> str:
        return f"{self.system.name}, seed {self.network.seed}"

    def measure(self) -> Measured:
        """Return how well events were delivered."""
        return measured(self.network)

    def draw(self, folder: Path) -> None:
        from trellis.simulate.dissemination_draw import draw_measured

        found = self.measure()
        if found.publications:
            draw_measured(found, self.system.name, folder / "dissemination.png")

    def summary(self) -> dict[str, Any]:
        found, sent, period_s = self.probe.snapshot(), self.probe.sent_by_type(), self.system.config.period_ms / 1000
        events = self.measure()
        return {
            "protocol": self.system.name,
            "engine": "cycles",
            "seed": self.network.seed,
            "time_s": self.network.round * period_s,
            "settled": self.settled,
            "changed_last_s": self.changed_round * period_s,
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
            "control_messages": sum(sent.values()),
            "deliveries": events.deliveries + events.publications,  # A publisher gets its own event as well.
            "dissemination": events.to_json(),
            "digest": self.network.digest(),
            "overlay_digest": overlay_digest(link_names(found.overlay)),
        }


def simulate_cycles(
    system: System,
    interests: Interests,
    config: RunConfig,
    *,
    overlay: Overlay | None = None,
    schedule: Schedule | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> CycleRun | NeighborRun:
    """Run `system` on `interests` in cycles, with the publications of a schedule. Other faults are refused."""
    if not isinstance(system, TableSystem | NeighborSystem) or system.name not in SYSTEMS:
        raise InputError("", f"the cycle engine does not run {system.name}", f"choose from {', '.join(SYSTEMS)}")
    refuse_faults(config, schedule)
    if isinstance(system, NeighborSystem):
        from trellis.simulate.neighbors_by_cycles import simulate_neighbors

        return simulate_neighbors(system, interests, config, overlay, schedule, progress)
    if config.view_share != 1.0 or overlay is not None:
        what = "an overlay to start from" if overlay is not None else "a share of the membership"
        raise InputError("", f"these systems find each other by gossip: {what} has no effect", "leave it out")
    require_memory(len(interests.nodes), len(interests.topics), interests.subscriptions, system.config)
    instance = make_instance(topics_by_node(interests), system.rates)
    network = Network(instance, system.config, config.seed)
    period_ms = system.config.period_ms
    published = talks(instance, system, config.seed)
    for fault in schedule.faults if schedule is not None else ():
        published.setdefault(fault.time_ms // period_ms, []).append((fault.topics[0], fault.nodes[0]))
    probe = CycleProbe(network, interests)
    settle_ms = config.settle_ms if config.settle_ms is not None else system.settle_ms
    changed, last = 0, max(published, default=0)
    while True:
        publish(network, published.get(network.round, []))
        found = probe.sample(period_ms)
        now, quiet_ms = network.round * period_ms, max(changed, last) * period_ms + settle_ms
        if progress is not None:
            shown = Progress(
                now, config.duration_ms, sum(network.sent.values()), found.degrees.total, found.connected_share
            )
            progress(shown)
        end_ms = min(quiet_ms, last * period_ms + config.limit_ms) if config.duration_ms is None else config.duration_ms
        if now >= end_ms:
            break
        if network.cycle():
            changed = network.round
    parameters = parameters_of(system, interests, config, len(schedule.faults) if schedule is not None else 0)
    return CycleRun(network, system, probe, parameters, now >= quiet_ms, changed)


def parameters_of(system: System, interests: Interests, config: RunConfig, faults: int) -> dict[str, Any]:
    """Return the content of `parameters.json`."""
    return {
        "protocol": system.name,
        "engine": "cycles",
        "system": msgspec.to_builtins(system.parameters()),
        "run": msgspec.to_builtins(config),
        "interests": {
            "nodes": len(interests.nodes),
            "topics": len(interests.topics),
            "subscriptions": interests.subscriptions,
        },
        "faults": faults,
        "trellis": trellis.__version__,
    }


def refuse_faults(config: RunConfig, schedule: Schedule | None) -> None:
    """Raise InputError for an option or a fault that has no meaning in cycles."""
    instead = "leave it out, or take the engine `events`"
    if config.network != NetworkConfig():
        raise InputError("", "all messages take equally long and are never lost in cycles", f"latency, loss: {instead}")
    if config.encode:
        raise InputError("", "the cycle engine sends no messages that could be encoded", instead)
    if config.broken_stream_ms is not None:
        raise InputError("", "nobody crashes in cycles, so no stream breaks", instead)
    if config.rounds_per_event is not None or config.warmup_rounds:
        raise InputError("", "rounds before and between events of a churn trace are given without a trace", instead)
    for fault in schedule.faults if schedule is not None else ():
        if fault.kind != "publish":
            raise InputError(
                "", f'the cycle engine knows no "{fault.kind}"', "schedule publications only, or " + instead
            )
    if schedule is not None and schedule.absent:
        raise InputError("", "all nodes are there from the start in cycles", instead)


def talks(instance: Instance, system: TableSystem, seed: int) -> Published:
    """Draw the events that nodes publish by themselves, at the same times after the start as `Talking` does."""
    found: Published = {}
    if not system.publications:
        return found
    random, wants, rates = Random(ids.stream(seed, "cycles", "talk")), instance.wants, system.rates
    first, span = TALK_FROM_MS // system.config.period_ms, (TALK_UNTIL_MS - TALK_FROM_MS) // system.config.period_ms
    for node, name in enumerate(instance.nodes):
        own = [instance.topics[topic] for topic in wants.topics[wants.offsets[node] : wants.offsets[node + 1]]]
        for _ in range(system.publications if own else 0):
            weights = [rates.get(topic, 0.0) for topic in own] if rates is not None else []
            topic = random.choices(own, weights)[0] if any(weights) else own[random.randrange(len(own))]
            found.setdefault(first + random.randrange(max(1, span)), []).append((topic, name))
    return found


def publish(network: Network, events: list[tuple[str, str]]) -> None:
    """Publish these (topic, node) events in the present round. Raise InputError for an unknown name."""
    if not events:
        return
    node_of = {name: place for place, name in enumerate(network.instance.nodes)}
    topic_of = {name: place for place, name in enumerate(network.instance.topics)}
    for topic, node in events:
        if node not in node_of or topic not in topic_of:
            raise InputError("", f'"{node}" cannot publish on "{topic}"', "name a node and a topic of the interests")
    network.publish([topic_of[topic] for topic, _ in events], [node_of[node] for _, node in events])


def measured(network: Network) -> Measured:
    """Return what the network has counted, in the form that the event engine uses."""
    tally, names = network.tally, network.instance.nodes
    totals, wanted, unwanted = tally.totals, tally.wanted.tolist(), tally.unwanted.tolist()
    reached = [place for place in range(len(names)) if wanted[place] or unwanted[place]]
    return Measured(
        publications=int(totals[PUBLICATIONS]),
        hits=int(totals[HITS]),
        missed=int(totals[MISSED]),
        deliveries=int(totals[HITS]),
        messages=int(totals[MESSAGES]),
        unwanted_messages=int(totals[UNWANTED_MESSAGES]),
        duplicates=int(totals[DUPLICATES]),
        wanted=sum(wanted),
        unwanted=sum(unwanted),
        hops={hops: count for hops, count in enumerate(tally.hops.tolist()) if count},
        shares={names[place]: unwanted[place] / (wanted[place] + unwanted[place]) for place in reached},
        loads={names[place]: wanted[place] + unwanted[place] for place in reached},
    )


class CycleProbe(Series):
    """The series of a run, with the metrics that the event engine has, once per cycle."""

    def __init__(self, network: Network, interests: Interests) -> None:
        super().__init__()
        self.network, self.interests = network, interests
        self._id_of = np.array([interests.nodes.id_of(name) for name in network.instance.nodes], np.int64)
        self._sent: dict[str, int] = {}
        self._deliveries = 0
        self._last: tuple[int, Snapshot] | None = None

    def sample(self, period_ms: int) -> Snapshot:
        """Add one sample to the series, and return the snapshot behind it."""
        found, time_s = self.snapshot(), self.network.round * period_ms / 1000
        self.add_snapshot(time_s, found)
        counts = self.network.tables.count
        self.add(time_s, "table_mean", float(counts.mean()))
        self.add(time_s, "table_max", float(counts.max()))
        events = measured(self.network)
        for metric, value in events.metrics().items():
            self.add(time_s, metric, value)
        sent, deliveries = self.sent_by_type(), events.deliveries + events.publications
        since = {kind: count - self._sent.get(kind, 0) for kind, count in sent.items()}
        self.add(time_s, "messages", sum(since.values()))
        self.add(time_s, "control_messages", sum(since.values()))
        for kind, count in since.items():
            self.add(time_s, f"messages/{kind}", count)
        self.add(time_s, "deliveries", deliveries - self._deliveries)
        self._sent, self._deliveries = sent, deliveries
        return found

    def snapshot(self) -> Snapshot:
        """Return the current links and which topics they connect. The answer is kept until the next round."""
        round_, links = self.network.round, self.network.links
        if self._last is None or self._last[0] != round_:
            owners = np.repeat(np.arange(len(self._id_of)), np.diff(links.offsets))
            once = owners < links.peers
            ends = self._id_of[owners[once]], self._id_of[links.peers[once]]
            overlay = Overlay.from_ids(self.interests.nodes, *ends)
            degrees = Distribution.of(overlay.degrees)
            self._last = round_, Snapshot(self.interests, overlay, degrees, connectivity(self.interests, overlay))
        return self._last[1]

    def sent_by_type(self) -> dict[str, int]:
        """Return how many messages of each type the protocol would have sent. `Unlink` and `Relay` are not counted."""
        sent, events = self.network.sent, self.network.tally.totals
        reached = int(self.network.tally.wanted.sum() + self.network.tally.unwanted.sum())
        return {
            "Event": reached,
            "NewscastReply": sent["NewscastRequest"],
            "NewscastRequest": sent["NewscastRequest"],
            "Notification": int(events[NOTIFICATIONS]),
            "Profile": sent["Profile"],
            "Pull": reached,
            "TManReply": sent["TManRequest"],
            "TManRequest": sent["TManRequest"],
        }
