"""Run a system on the cycle engine, with the options, measures and result folder of the event engine.

`trellis.cycles` holds the engine itself. This module adds publications, samples and the summary of a run.
`neighbors_by_cycles.py` does the same for SpiderCast and its baselines, `magnet_by_cycles.py` for Magnet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from trellis.cycles.network import Network, make_network
from trellis.cycles.presence import NEVER
from trellis.cycles.spread import (
    DELIVERIES,
    DUPLICATES,
    HITS,
    MESSAGES,
    MISSED,
    NOTIFICATIONS,
    PUBLICATIONS,
    UNWANTED_MESSAGES,
)
from trellis.errors import InputError
from trellis.measure.connectivity import connectivity
from trellis.measure.distributions import Distribution
from trellis.model import ChurnTrace, Interests, Overlay
from trellis.simulate.churn_by_cycles import KINDS, Counted, events_of
from trellis.simulate.digest import overlay_digest
from trellis.simulate.dissemination import Measured
from trellis.simulate.dissemination_system import TALK_FROM_MS, TALK_UNTIL_MS, TableSystem
from trellis.simulate.network import NetworkConfig
from trellis.simulate.probes import Series, Snapshot
from trellis.simulate.publications import together
from trellis.simulate.run import Progress, RunConfig, link_names, planned_of, topics_by_node
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.system import System
from trellis.simulate.systems.magnet import Magnet
from trellis.simulate.systems.omen import OMen
from trellis.simulate.systems.spidercast import NeighborSystem

if TYPE_CHECKING:
    from trellis.simulate.magnet_by_cycles import MagnetRun
    from trellis.simulate.neighbors_by_cycles import NeighborRun
    from trellis.simulate.omen_by_cycles import OMenRun

SYSTEMS = ("vitis", "rvr", "opt", "spidercast", "similarity", "random", "omen", "magnet", "scribe")


@dataclass(eq=False)
class CycleRun:
    """A finished run of Vitis, RVR or OPT on the cycle engine."""

    network: Network
    system: TableSystem
    plan: Plan
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
            "encoded_bytes_by_type": {},
            "control_messages": sum(sent.values()),
            "deliveries": events.deliveries + events.publications,  # A publisher gets its own event as well.
            **events_of(self.plan, self.probe),
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
    churn: ChurnTrace | None = None,
    schedule: Schedule | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> CycleRun | NeighborRun | MagnetRun | OMenRun:
    """Run `system` on `interests` in cycles, with the events of a churn trace or of a schedule.

    Vitis, RVR and OPT take publications, joins and leaves. OMen and SpiderCast with its baselines take joins, leaves
    and crashes. Magnet and the strawman take publications only. Other faults are refused.
    """
    if not isinstance(system, TableSystem | NeighborSystem | Magnet | OMen) or system.name not in SYSTEMS:
        raise InputError("", f"the cycle engine does not run {system.name}", f"choose from {', '.join(SYSTEMS)}")
    tables, mortal = isinstance(system, TableSystem), isinstance(system, OMen | NeighborSystem)
    refuse_options(config, churn is not None, mortal)
    schedule = planned_of(system, interests, config, churn, schedule)
    parameters = parameters_of(system, interests, config, churn, schedule)
    kinds = ("publish", "join", "leave") if tables else KINDS if mortal else ("publish",)
    if isinstance(system, NeighborSystem) and any(fault.kind == "publish" for fault in schedule.faults):
        raise InputError("", f"{system.name} publishes nothing in cycles", f"leave publications out, or {INSTEAD}")
    refuse_faults(schedule, kinds)
    if isinstance(system, OMen):
        from trellis.simulate.omen_by_cycles import simulate_omen

        return simulate_omen(system, interests, config, overlay, schedule, parameters, progress)
    if isinstance(system, NeighborSystem):
        from trellis.simulate.neighbors_by_cycles import simulate_neighbors

        return simulate_neighbors(system, interests, config, overlay, schedule, parameters, progress)
    if isinstance(system, Magnet):
        from trellis.simulate.magnet_by_cycles import simulate_magnet

        return simulate_magnet(system, interests, config, overlay, schedule, parameters, progress)
    if config.view_share != 1.0 or overlay is not None:
        what = "an overlay to start from" if overlay is not None else "a share of the membership"
        raise InputError("", f"these systems find each other by gossip: {what} has no effect", "leave it out")
    churns = any(fault.kind != "publish" for fault in schedule.faults)
    require_memory(
        *(len(interests.nodes), len(interests.topics), interests.subscriptions),
        system.config,
        churns=churns,
        publications=system.publications,
        seconds=(config.duration_ms or 0) / 1000,
    )
    instance = make_instance(topics_by_node(interests), system.rates)
    talk = talks(instance, system, schedule, config.seed)
    plan = Plan(instance, together(schedule, talk), system.config.period_ms, uncounted=talk)
    network = make_network(instance, system.config, config.seed, plan.absent)
    period_ms = system.config.period_ms
    probe = CycleProbe(network, interests)
    settle_ms = config.settle_ms if config.settle_ms is not None else system.settle_ms
    changed, last = 0, plan.last
    while True:
        plan.happen(network)
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
        if plan.cycle(network):
            changed = network.round
    return CycleRun(network, system, plan, probe, parameters, now >= quiet_ms, changed)


def parameters_of(
    system: System, interests: Interests, config: RunConfig, churn: ChurnTrace | None, schedule: Schedule
) -> dict[str, Any]:
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
        "churn_rows": len(churn) if churn is not None else 0,
        "faults": len(schedule.faults),
        "trellis": trellis.__version__,
    }


INSTEAD = "leave it out, or take the engine `events`"


def refuse_options(config: RunConfig, churns: bool, crashes: bool = False) -> None:
    """Raise InputError for an option that has no meaning in cycles.

    `churns`: the run has a churn trace. `crashes`: the system knows crashes.
    """
    instead = INSTEAD
    if config.network != NetworkConfig():
        raise InputError("", "all messages take equally long and are never lost in cycles", f"latency, loss: {instead}")
    if config.encode:
        raise InputError("", "the cycle engine sends no messages that could be encoded", instead)
    if config.broken_stream_ms is not None and not crashes:
        raise InputError("", "nobody crashes in cycles, so no stream breaks", instead)
    if (config.rounds_per_event is not None or config.warmup_rounds) and not churns:
        raise InputError("", "rounds before and between events of a churn trace are given without a trace", instead)


def refuse_faults(schedule: Schedule, known: tuple[str, ...]) -> None:
    """Raise InputError for a fault that has no meaning in cycles, or that names no node."""
    for fault in schedule.faults:
        if fault.kind not in known:
            what = f'the cycle engine knows no "{fault.kind}"'
            raise InputError("", what, f"schedule {', '.join(known)} only, or {INSTEAD}")
        if not fault.nodes or (fault.kind == "publish" and not fault.topics):
            raise InputError("", f'a "{fault.kind}" at {fault.time_ms} ms names too little', "name its node and topic")
    if schedule.absent and "join" not in known:
        raise InputError("", "all nodes are there from the start in cycles", INSTEAD)


def talks(instance: Instance, system: TableSystem, schedule: Schedule, seed: int) -> list[Fault]:
    """Draw the events that nodes publish by themselves, at the same times after their start as `Talking` does."""
    if not system.publications:
        return []
    random, wants, rates = Random(ids.stream(seed, "cycles", "talk")), instance.wants, system.rates
    number, absent = {name: place for place, name in enumerate(instance.nodes)}, set(schedule.absent)
    starts = [(0, name) for name in instance.nodes if name not in absent]
    starts += [(fault.time_ms, fault.nodes[0]) for fault in schedule.faults if fault.kind == "join"]
    found = []
    for start, name in starts:
        node = number.get(name, -1)
        own = [instance.topics[topic] for topic in wants.topics[wants.offsets[node] : wants.offsets[node + 1]]]
        for _ in range(system.publications if own else 0):
            weights = [rates.get(topic, 0.0) for topic in own] if rates is not None else []
            topic = random.choices(own, weights)[0] if any(weights) else own[random.randrange(len(own))]
            time_ms = start + TALK_FROM_MS + random.randrange(TALK_UNTIL_MS - TALK_FROM_MS)
            found.append(Fault(time_ms, "publish", (name,), topics=(topic,)))
    return sorted(found, key=lambda fault: fault.time_ms)


class Plan(Counted):
    """What happens in which round: joins, leaves and publications. What cannot happen is passed over."""

    def __init__(self, instance: Instance, schedule: Schedule, period_ms: int, uncounted: Sequence[Fault] = ()) -> None:
        """Raise InputError for a node or a topic that is not in the interests.

        `uncounted`: those of the faults that nodes cause by themselves, which are no events from outside.
        """
        super().__init__()
        self.instance, self._period_ms = instance, period_ms
        self._uncounted = {id(fault) for fault in uncounted}
        self._node = {name: place for place, name in enumerate(instance.nodes)}
        self._topic = {name: place for place, name in enumerate(instance.topics)}
        self.rounds: dict[int, list[Fault]] = {}
        self._leaves: dict[int, list[int]] = {}  # node -> rounds in which it leaves
        for fault in schedule.faults:
            self._check(fault)
            self.rounds.setdefault(fault.time_ms // period_ms, []).append(fault)
            if fault.kind == "leave":
                self._leaves.setdefault(self._node[fault.nodes[0]], []).append(fault.time_ms // period_ms)
        self.absent = [self._node[name] for name in schedule.absent if name in self._node]
        self.last = max(self.rounds, default=0)
        self._churns = bool(schedule.absent) or any(fault.kind != "publish" for fault in schedule.faults)

    def cycle(self, network: Network) -> int:
        """Play a round after `happen`. Return how many selections changed a table."""
        changes = network.advance()
        while network.step:
            self.happen(network)
            changes += network.advance()
        return changes

    def happen(self, network: Network) -> None:
        """Let everything happen that belongs to the present step: first who joins and leaves, then the events."""
        now, alive = network.round, network.presence.alive
        if now == 0 and network.step == 0:
            for node in self._leaves:
                network.presence.until[node] = self._next_leave(node, 0)
            if self._churns:
                network.play_in_steps()
        published = []
        for fault in self.rounds.get(now, ()):
            if fault.time_ms % self._period_ms * network.steps // self._period_ms != network.step:
                continue
            node = self._node[fault.nodes[0]]
            if fault.kind == "publish":
                published.append((fault, node))
                continue
            done = bool(alive[node]) != (fault.kind == "join")
            if done and fault.kind == "join":
                network.join(node, self._next_leave(node, now))
            elif done:
                network.leave(node)
            self.count(fault, done)
        for fault, node in published:
            if id(fault) not in self._uncounted:
                self.count(fault, bool(alive[node]))
        topics = [(self._topic[fault.topics[0]], node) for fault, node in published if alive[node]]
        if topics:
            network.publish(*zip(*topics, strict=True))

    def _next_leave(self, node: int, now: int) -> int:
        return min((when for when in self._leaves.get(node, ()) if when >= now), default=NEVER)

    def _check(self, fault: Fault) -> None:
        name, wants = fault.nodes[0], self.instance.wants
        node = self._node.get(name)
        if node is None or (fault.kind == "publish" and fault.topics[0] not in self._topic):
            what = f'"{name}" cannot {fault.kind} on "{fault.topics[0]}"' if fault.topics else f'"{name}" is not known'
            raise InputError("", what, "name a node and a topic of the interests")
        own = [self.instance.topics[topic] for topic in wants.topics[wants.offsets[node] : wants.offsets[node + 1]]]
        if fault.kind == "join" and fault.topics and sorted(fault.topics) != own:
            what = f'"{name}" joins with other topics than those of the interests table'
            raise InputError("", what, "let it have the same ones, or take the engine `events`")


def measured(network: Network) -> Measured:
    """Return what the network has counted, in the form that the event engine uses."""
    tally, names = network.tally, network.instance.nodes
    totals, wanted, unwanted = tally.totals, tally.wanted.tolist(), tally.unwanted.tolist()
    reached = [place for place in range(len(names)) if wanted[place] or unwanted[place]]
    return Measured(
        publications=int(totals[PUBLICATIONS]),
        hits=int(totals[HITS]),
        missed=int(totals[MISSED]),
        deliveries=int(totals[DELIVERIES]),
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
        counts = self.network.table_counts[self.network.presence.alive]
        self.add(time_s, "table_mean", float(counts.sum()) / max(1, len(counts)))
        self.add(time_s, "table_max", float(counts.max(initial=0)))
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
        round_ = self.network.round
        if self._last is None or self._last[0] != round_:
            one, other = self.network.standing
            overlay = Overlay.from_ids(self.interests.nodes, self._id_of[one], self._id_of[other])
            degrees, interests = Distribution.of(self.network.degrees), self._present()
            self._last = round_, Snapshot(interests, overlay, degrees, connectivity(interests, overlay))
        return self._last[1]

    def _present(self) -> Interests:
        """Return the interests of those that are there."""
        alive, wants, known = self.network.presence.alive, self.network.instance.wants, self.interests
        if alive.all():
            return known
        owners = np.repeat(np.arange(len(alive)), np.diff(wants.offsets))
        topics = np.array([known.topics.id_of(name) for name in self.network.instance.topics], np.int64)
        there = alive[owners]
        return Interests.from_ids(known.nodes, known.topics, self._id_of[owners[there]], topics[wants.topics[there]])

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
