"""Run OMen and OMen-G on the cycle engine, with the options and results of the event engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trellis.cycles.memory import require_memory
from trellis.cycles.omen_run.network import OMenNetwork
from trellis.errors import InputError
from trellis.measure.distributions import Distribution
from trellis.model import Interests, Overlay
from trellis.simulate.churn_by_cycles import ChurnPlan, Lens, events_of, instance_of
from trellis.simulate.digest import overlay_digest
from trellis.simulate.probes import Series, Snapshot
from trellis.simulate.run import Progress, RunConfig, link_names, topics_by_node
from trellis.simulate.schedule import Schedule
from trellis.simulate.systems.omen import OMen

# A stream that breaks tells neighbors of a crash, and the coordinator probes the node for a second before it repairs.
BROKEN_STREAM_ROUNDS = 1


@dataclass(eq=False)
class OMenRun:
    """A finished run of OMen on the cycle engine."""

    network: OMenNetwork
    system: OMen
    plan: ChurnPlan
    probe: OMenProbe
    parameters: dict[str, Any]
    settled: bool  # True if no link changed during the last `settle_ms` of the run

    @property
    def title(self) -> str:
        return f"{self.system.name}, seed {self.network.seed}"

    def draw(self, folder: Path) -> None:
        """Draw nothing. The figures that every run has show all there is."""

    def summary(self) -> dict[str, Any]:
        network, found, sent = self.network, self.probe.snapshot(), self.probe.sent_by_type()
        events, period_s = network.events, self.system.period_ms / 1000
        return {
            "protocol": self.system.name,
            "engine": "cycles",
            "seed": network.seed,
            "time_s": network.round * period_s,
            "settled": self.settled,
            "changed_last_s": network.changed_round * period_s,
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
            "links_formed": network.links_formed,
            "deliveries": 0,
            **events_of(self.plan, self.probe),
            "repairs": {
                "departures": events.repairs["leave"],
                "joins": events.repairs["join"],
                "links_of_departures": events.links["leave"],
                "links_of_joins": events.links["join"],
                "links_of_the_fallback": events.met,
                "closures": events.closures,
                "gave_up": events.gave_up,
            },
            "view_size": self.probe.view_sizes().to_json(),
            "digest": network.digest(),
            "overlay_digest": overlay_digest(link_names(found.overlay)),
        }


def simulate_omen(
    system: OMen,
    interests: Interests,
    config: RunConfig,
    overlay: Overlay | None,
    schedule: Schedule,
    parameters: dict[str, Any],
    progress: Callable[[Progress], None] | None = None,
) -> OMenRun:
    """Run OMen on `interests` in cycles, from the links of `overlay`, with the joins and departures of `schedule`."""
    if config.view_share != 1.0:
        raise InputError(
            "", "OMen's nodes find each other by gossip: a share of the membership has no effect", "leave it out"
        )
    if system.config.is_twice:
        raise InputError("", "the cycle engine keeps topics connected, not two-connected", "leave out --engine cycles")
    network, plan = start_omen(
        system, topics_by_node(interests), schedule, config.seed,
        links=link_names(overlay) if overlay is not None else (), broken_streams=config.broken_stream_ms is not None,
    )  # fmt: skip
    probe = OMenProbe(network, system)
    settle_ms = config.settle_ms if config.settle_ms is not None else system.settle_ms
    period_ms, last_ms = system.period_ms, plan.last * system.period_ms
    while True:
        plan.happen(network)
        found, now = probe.sample(), network.round * period_ms
        quiet_ms = max(network.changed_round * period_ms, last_ms) + settle_ms
        if progress is not None:
            sent = sum(probe.sent_by_type().values())
            progress(Progress(now, config.duration_ms, sent, found.degrees.total, found.connected_share))
        end_ms = min(quiet_ms, last_ms + config.limit_ms) if config.duration_ms is None else config.duration_ms
        if now >= end_ms:
            break
        network.cycle()
    return OMenRun(network, system, plan, probe, parameters, now >= quiet_ms)


def start_omen(
    system: OMen,
    wanted: Mapping[str, tuple[str, ...]],
    schedule: Schedule,
    seed: int,
    *,
    links: Iterable[tuple[str, str]] = (),
    broken_streams: bool = False,
) -> tuple[OMenNetwork, ChurnPlan]:
    """Return the network of a run, and what happens in it."""
    instance, slots = instance_of(wanted, schedule)
    require_memory(len(instance.nodes), len(instance.topics), instance.subscriptions, system.config)
    plan = ChurnPlan(instance, slots, wanted, schedule, system.period_ms)
    ends = plan.ends_of(links)
    network = OMenNetwork(
        instance, system.config, seed, links=(ends[:, 0], ends[:, 1]), absent=plan.absent,
        notice_rounds=BROKEN_STREAM_ROUNDS if broken_streams else None,
    )  # fmt: skip
    return network, plan


class OMenProbe(Series):
    """The series of a run, with the metrics that the event engine has, once per round."""

    def __init__(self, network: OMenNetwork, system: OMen) -> None:
        super().__init__()
        self.network, self.system = network, system
        self._lens = Lens(network.instance)
        self._control = set(system.control_types())
        self._sent: dict[str, int] = {}
        self._last: tuple[int, Snapshot] | None = None

    def sample(self) -> Snapshot:
        """Add one sample to the series, and return the snapshot behind it."""
        network, found = self.network, self.snapshot()
        time_s, sent = network.round * self.system.period_ms / 1000, self.sent_by_type()
        self.add_snapshot(time_s, found)
        sizes, backed = network.sizes()
        spent = network.events.repair_ms
        for metric, value in (
            ("view_size_mean", float(sizes.mean()) if len(sizes) else 0.0),
            ("view_size_max", float(sizes.max(initial=0))),
            ("backup_in_degree_max", float(backed.max(initial=0))),
            ("departures_mended", float(len(spent))),
            ("mending_ms_mean", sum(spent) / max(len(spent), 1)),
            ("open_events", float(len(network.events.open))),
        ):
            self.add(time_s, metric, value)
        since = {kind: count - self._sent.get(kind, 0) for kind, count in sent.items()}
        self.add(time_s, "messages", sum(since.values()))
        self.add(time_s, "control_messages", self.control_messages(since))
        for kind, count in since.items():
            self.add(time_s, f"messages/{kind}", count)
        self.add(time_s, "deliveries", 0)
        self._sent = sent
        return found

    def snapshot(self) -> Snapshot:
        """Return who is there, their links, and which topics these connect. It is computed again after changes."""
        network = self.network
        if self._last is None or self._last[0] != network.changes:
            self._last = network.changes, self._lens.take(network.alive, network.pairs())
        return self._last[1]

    def view_sizes(self) -> Distribution:
        """Return how many nodes the local views have (A-OMN-13)."""
        return Distribution.of(self.network.sizes()[0])

    def sent_by_type(self) -> dict[str, int]:
        """Return how many messages of gossip and of repairs were sent. Other types are not counted."""
        sent = self.network.sent
        return {
            **dict(sorted(self.network.events.sent.items())),
            "NewscastReply": sent["NewscastRequest"],
            "NewscastRequest": sent["NewscastRequest"],
            "TManReply": sent["TManRequest"],
            "TManRequest": sent["TManRequest"],
        }

    def control_messages(self, sent: Mapping[str, int]) -> int:
        return sum(count for kind, count in sent.items() if kind in self._control)
