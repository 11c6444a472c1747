"""Run one simulation from start to end (`simulate`), and write its results to a folder (`write_run`).

Without a duration a run ends when nothing has changed for the system's `settle_ms`, or `limit_ms` after the last input.
Nothing in the folder depends on the wall clock: the same seed gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa

import trellis
from trellis.errors import InputError
from trellis.files import filled_whole, written_whole
from trellis.free_memory import memory_free
from trellis.model import ChurnTrace, Interests, Overlay, write_table
from trellis.simulate.churn import schedule_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.network import NetworkConfig
from trellis.simulate.probes import Probe, Snapshot, control_messages
from trellis.simulate.ranges import require_times
from trellis.simulate.record import Recorder
from trellis.simulate.schedule import Schedule
from trellis.simulate.system import System

SAMPLE_BYTES = 4_000  # the rows of the series for one sample
EVENT_BYTES, REACHED_BYTES = 1_000, 500  # of an event that a node publishes by itself; for each subscriber


class RunConfig(msgspec.Struct, frozen=True):
    """Settings of a run. Fields without a comment are passed to `Engine`."""

    seed: int = 1
    duration_ms: int | None = None  # None: until nothing changes any more
    settle_ms: int | None = None  # how long nothing must change before the run ends; None: the value of the system
    limit_ms: int = 3_600_000  # virtual time after the last input at which a run that never settles is ended
    sample_ms: int = 1000  # time between two samples of the series
    warmup_rounds: int = 0  # gossip rounds before the first event of a churn trace
    # gossip rounds between two events of a churn trace; None: use the times of the trace
    rounds_per_event: int | None = None
    age_ms_min: int = 0  # younger nodes do not count in the series
    view_share: float = 1.0
    network: NetworkConfig = NetworkConfig()
    encode: bool = False
    broken_stream_ms: int | None = None


@dataclass(frozen=True)
class Progress:
    """The state of a run, reported after every sample."""

    time_ms: int
    until_ms: int | None  # None: the run ends when it is quiet
    events: int
    nodes: int
    connected_topics: float


@dataclass(eq=False)
class Run:
    """A finished run of the event engine."""

    engine: Engine
    injector: Injector
    probe: Probe
    parameters: dict[str, Any]
    settled: bool  # True if nothing changed during the last `settle_ms` of the run

    def summary(self) -> dict[str, Any]:
        engine, found = self.engine, self.probe.snapshot()
        degrees, sent = found.degrees, engine.sent_by_type()
        churned = sum(self.injector.counts.values())
        return {
            "protocol": engine.system.name,
            "engine": "events",
            "seed": engine.world.seed,
            "time_s": engine.world.now_us / 1e6,
            "settled": self.settled,
            "changed_last_s": engine.changed_us / 1e6,
            "nodes": degrees.total,
            "links": len(found.overlay),
            "degree": degrees.to_json(),
            "topics": found.topics,
            "split_topics": len(found.connectivity.split),
            "components": int(found.connectivity.components.sum()),
            "tco": found.connectivity.is_tco,
            "messages": sum(sent.values()),
            "messages_by_type": sent,
            "messages_delivered": engine.delivered,
            "messages_undeliverable": engine.undeliverable,
            "network": dict(sorted(engine.network.effects.items())),
            "encoded_bytes": sum(engine.encoded.values()),
            "encoded_bytes_by_type": engine.encoded_by_type(),
            "control_messages": control_messages(engine, sent),
            "timers": engine.timers_fired,
            "links_formed": engine.links_formed,
            "deliveries": engine.deliveries,
            "events_from_outside": dict(sorted(self.injector.counts.items())),
            "events_skipped": self.injector.skipped,
            "control_messages_per_event": self._control_per_event(churned),
            "digest": engine.hexdigest(),
            "overlay_digest": engine.overlay_digest(),
        }

    @property
    def title(self) -> str:
        return f"{self.engine.system.name}, seed {self.engine.world.seed}"

    def draw(self, folder: Path) -> None:
        """Draw the system's own pictures."""
        self.engine.system.draw(self, folder)

    def _control_per_event(self, churned: int) -> float | None:
        """Return the control messages sent since the first event from outside, per event.

        None if there was no event.
        """
        if not churned:
            return None
        first = min(fault.time_ms for fault in self.injector.happened.faults) / 1000
        times, values = self.probe.series("control_messages")
        return sum(value for time, value in zip(times, values, strict=True) if time > first) / churned


class Ended(Protocol):
    """A finished run of either engine."""

    parameters: dict[str, Any]

    @property
    def probe(self) -> Watching: ...

    @property
    def title(self) -> str: ...

    def draw(self, folder: Path) -> None: ...

    def summary(self) -> dict[str, Any]: ...


class Watching(Protocol):
    """The series of a run, and its state at the end."""

    def snapshot(self) -> Snapshot: ...

    def table(self) -> pa.Table: ...

    def series(self, metric: str) -> tuple[list[float], list[float]]: ...

    def sent_by_type(self) -> dict[str, int]: ...


def simulate(
    system: System,
    interests: Interests,
    config: RunConfig,
    *,
    overlay: Overlay | None = None,
    churn: ChurnTrace | None = None,
    schedule: Schedule | None = None,
    recorder: Recorder | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Run `system` on `interests`, with the events of a churn trace or of a schedule."""
    planned = planned_of(system, interests, config, churn, schedule)
    _require_memory(system, interests, config)
    wanted = {**topics_by_node(interests)}
    for fault in planned.faults:
        if fault.kind == "join" and fault.nodes:
            wanted.setdefault(fault.nodes[0], fault.topics)
    engine = Engine(
        system,
        wanted,
        seed=config.seed,
        network=config.network,
        view_share=config.view_share,
        overlay=link_names(overlay) if overlay is not None else (),
        absent=planned.absent,
        encode=config.encode,
        broken_stream_ms=config.broken_stream_ms,
    )
    if recorder is not None:
        recorder.attach(engine)
    injector = Injector(engine, planned)
    probe = Probe(engine, age_ms_min=config.age_ms_min)
    settled = _run_to_end(engine, probe, config, recorder, progress)
    return Run(engine, injector, probe, _parameters(system, interests, config, churn, planned), settled)


def _require_memory(system: System, interests: Interests, config: RunConfig) -> None:
    """Refuse a run whose events and samples alone do not fit into the memory of this machine."""
    samples = (config.duration_ms or 0) // config.sample_ms * SAMPLE_BYTES
    free = memory_free()
    if free is None:
        return
    if samples > free:
        what = f"the samples of {(config.duration_ms or 0) // 1000:,} s need about {samples >> 20:,} MiB"
        raise InputError("", what, f"{free >> 20:,} MiB are free: give a shorter duration")
    each, nodes = getattr(system, "publications", 0), len(interests.nodes)
    bytes_each = EVENT_BYTES + REACHED_BYTES * interests.subscriptions // max(1, len(interests.topics))
    if each * nodes * bytes_each > free - samples:
        what = f"{each * nodes:,} events, {each:,} of each node, need about {each * nodes * bytes_each >> 20:,} MiB"
        fits = (free - samples) // (nodes * bytes_each)
        raise InputError("--publications", what, f"{free - samples >> 20:,} MiB are free: give at most {fits:,}")


def planned_of(
    system: System, interests: Interests, config: RunConfig, churn: ChurnTrace | None, schedule: Schedule | None
) -> Schedule:
    """Return the schedule of a run: the given one, or the events of a churn trace."""
    if churn is not None and schedule is not None:
        raise InputError("", "both a churn trace and a schedule are given", "give one of them")
    found = schedule or Schedule()
    if churn is not None:
        round_ms = system.period_ms
        every_ms = None if config.rounds_per_event is None else config.rounds_per_event * round_ms
        found = schedule_of(churn, interests, start_ms=config.warmup_rounds * round_ms, every_ms=every_ms)
    require_times(max((fault.time_ms + fault.duration_ms for fault in found.faults), default=0))
    return found


def write_run(run: Ended, folder: str | Path, *, figures: bool = True, recorder: Recorder | None = None) -> None:
    """Write parameters.json, overlay.parquet, series.parquet, summary.json and figures/: all of them, or none.

    `recorder`: write its recording as well.
    """
    with filled_whole(make_folder(folder, "parameters.json")) as beside:
        found = run.probe.snapshot()
        write_json(run.parameters, beside / "parameters.json")
        write_table(found.overlay.to_table(), beside / "overlay.parquet")
        write_table(run.probe.table(), beside / "series.parquet")
        if figures:
            from trellis.simulate.figures import draw_run

            (beside / "figures").mkdir()
            draw_run(run.probe, run.title, beside / "figures")
            run.draw(beside / "figures")
        write_json(run.summary(), beside / "summary.json")
        if recorder is not None:
            recorder.write(beside / "recording.jsonl.gz", run.parameters)


def topics_by_node(interests: Interests) -> dict[str, tuple[str, ...]]:
    """Return the topics of each node, by name."""
    names, offsets = list(interests.topics), interests.node_offsets.tolist()
    topics = interests.node_topics.tolist()
    return {
        node: tuple(names[topic] for topic in topics[offsets[place] : offsets[place + 1]])
        for place, node in enumerate(interests.nodes)
    }


def link_names(overlay: Overlay) -> Iterable[tuple[str, str]]:
    """Return the links as pairs of node names."""
    return zip(overlay.nodes.take(overlay.u).to_pylist(), overlay.nodes.take(overlay.v).to_pylist(), strict=True)


def make_folder(folder: str | Path, mark: str) -> Path:
    """Return a folder for results: a new one, an empty one, or one with an earlier result, which has a file `mark`."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(str(folder), "is a file", "name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / mark).exists():
        raise InputError(str(folder), f"is not empty and holds no {mark}", "name a new folder, or empty it")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made ({error.strerror})", "make its parent first") from error
    return folder


def write_json(value: Mapping[str, Any], path: Path) -> None:
    """Write a JSON file, completely or not at all."""
    with written_whole(path) as beside:
        beside.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _run_to_end(
    engine: Engine,
    probe: Probe,
    config: RunConfig,
    recorder: Recorder | None,
    progress: Callable[[Progress], None] | None,
) -> bool:
    """Run to the end, with a sample every `sample_ms`. Return whether the run was quiet at its end."""
    settle_ms = config.settle_ms if config.settle_ms is not None else engine.system.settle_ms
    engine.run(0)
    now = 0
    while True:
        found = probe.sample()
        if recorder is not None:
            recorder.tick()
        if progress is not None:
            progress(Progress(now, config.duration_ms, engine.events, found.degrees.total, found.connected_share))
        quiet_ms = engine.quiet_from_ms + settle_ms
        end_ms = config.duration_ms
        if end_ms is None:
            end_ms = min(quiet_ms, engine.scheduled_until_us // 1000 + config.limit_ms)
        if now >= end_ms:
            return now >= quiet_ms
        now = min(now + config.sample_ms, end_ms)
        engine.run(now)


def _parameters(
    system: System, interests: Interests, config: RunConfig, churn: ChurnTrace | None, schedule: Schedule
) -> dict[str, Any]:
    return {
        "protocol": system.name,
        "engine": "events",
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
