"""Check many seeds, in one process or in several. The results are the same, in the order of the seeds."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trellis.model import Interests, Overlay, write_table
from trellis.simulate.check import CheckConfig, InterestsByNode, MakeSystem, SeedResult, check_seed
from trellis.simulate.pool import SHRUNK_MAX, Progress, in_order, until_enough
from trellis.simulate.run import make_folder, topics_by_node, write_json
from trellis.simulate.schedule import Schedule, write_schedule
from trellis.simulate.shrink import shrink


@dataclass(frozen=True)
class Failure:
    """A seed that failed."""

    result: SeedResult
    replay: str  # command that runs this seed again
    shrunk: Schedule | None  # smallest schedule found that still fails; None if none was searched for
    shrink_runs: int = 0


@dataclass
class CheckSummary:
    """The summary that `trellis simulate --check` prints at its end."""

    protocol: str
    first_seed: int
    promised: tuple[str, ...]  # kinds of faults that must have taken effect
    seeds: int = 0
    failures: list[Failure] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)  # sums of `System.counts`
    digests: list[str] = field(default_factory=list)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return promised kinds that never took effect.

        With fewer seeds than kinds there are none: not all can be drawn.
        """
        return tuple(kind for kind in self.promised if not self.injected[kind]) if self._are_enough else ()

    @property
    def _are_enough(self) -> bool:
        return self.seeds >= len(self.promised)

    @property
    def holds(self) -> bool:
        """Return whether no seed failed and every promised kind of fault took effect."""
        return not self.failures and not self.missing

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.injected.update(result.injected)
        self.faults.update(result.faults)
        self.counts.update(result.counts)
        for name in ("skipped", "safety_checks", "connectivity_checks", "repairs", "messages", "events", "time_ms"):
            self.totals[name] += getattr(result, name)
        self.totals["settled"] += result.settled
        self.totals["tco"] += result.tco
        self.digests.append(result.digest)

    def to_json(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "first_seed": self.first_seed,
            "seeds": self.seeds,
            "holds": self.holds,
            "failures": [
                {
                    "seed": failure.result.seed,
                    "what": failure.result.failure,
                    "replay": failure.replay,
                    "faults": len(failure.result.happened.faults),
                    "faults_shrunk": None if failure.shrunk is None else len(failure.shrunk.faults),
                }
                for failure in self.failures
            ],
            "missing_kinds": list(self.missing),
            "injected": {kind: self.injected[kind] for kind in sorted({*self.promised, *self.injected})},
            "faults": dict(sorted(self.faults.items())),
            "counts": dict(self.counts),
            **{name: self.totals[name] for name in sorted(self.totals)},
            "digests": self.digests,
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people to read. The last line is the verdict."""
        for failure in self.failures:
            yield f"seed {failure.result.seed}: {failure.result.failure}"
            yield f"  replay: {failure.replay}"
            if failure.shrunk is not None:
                yield f"  {len(failure.shrunk.faults)} of {len(failure.result.happened.faults)} faults are enough:"
                yield from (f"    {fault.time_ms / 1000:9.3f} s  {_words(fault)}" for fault in failure.shrunk.faults)
        counts = ", ".join(f"{kind} {self.injected[kind]:,}" for kind in sorted({*self.promised, *self.injected}))
        yield f"injected: {counts or 'nothing'}"
        for kind in self.missing:
            yield f"{kind} was promised and never took effect: raise --seeds, or look at the plan"
        t = self.totals
        yield (
            f"{t['repairs']:,} repairs, {t['safety_checks']:,} safety checks, {t['connectivity_checks']:,} "
            f"connectivity checks, {t['tco']:,} of {self.seeds:,} final overlays topic-connected"
        )
        if self.counts:
            yield ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        verdict = (
            "all hold" if self.holds else f"{len(self.failures):,} fail" if self.failures else "not all kinds seen"
        )
        last = self.first_seed + self.seeds - 1
        yield f"{self.protocol}: seeds {self.first_seed}..{last}: {verdict}"


def check_seeds(
    make_system: MakeSystem,
    *,
    seeds: int,
    first_seed: int = 1,
    config: CheckConfig | None = None,
    interests: Interests | InterestsByNode | None = None,
    overlay: Sequence[tuple[str, str]] = (),
    schedule: Schedule | None = None,
    jobs: int = 1,
    folder: str | Path | None = None,
    command: Sequence[str] = (),
    failures_max: int | None = None,
    shrink_runs_max: int = 60,
    progress: Progress | None = None,
) -> CheckSummary:
    """Check the seeds FIRST..FIRST+N-1. Return the summary, and write a folder with it if `folder` is given.

    `make_system` and the systems that it makes must be picklable by reference if jobs > 1.

    command       words of the command that was called, without --seeds, --seed and --jobs: for replays
    failures_max  stop after this many failing seeds
    """
    config = config or CheckConfig()
    system = make_system()
    plan = config.plan or system.fault_plan
    wanted = _by_node(interests)
    out = make_folder(folder, "summary.json") if folder is not None else None
    summary = CheckSummary(system.name, first_seed, plan.kinds if schedule is None else ())
    words = command or ("trellis", "simulate", system.name, "--check")
    job = _Job(make_system, config, wanted, tuple(overlay), schedule)
    results = in_order(job.run, range(first_seed, first_seed + seeds), jobs)
    try:
        for result in until_enough(results, summary, seeds, failures_max, progress):
            summary.add(result)
            failure = None
            if result.failure is not None:
                failure = _failure(job, result, words, shrink_runs_max if len(summary.failures) < SHRUNK_MAX else 0)
                summary.failures.append(failure)
            if out is not None:
                _write_seed(result, failure, out / f"seed-{result.seed}")
    finally:  # A check that is interrupted leaves the summary of the seeds that it has finished.
        if out is not None:
            write_json(summary.to_json(), out / "summary.json")
    return summary


@dataclass(frozen=True)
class _Job:
    """All that a worker needs beside the seed."""

    make_system: MakeSystem
    config: CheckConfig
    interests: InterestsByNode | None
    overlay: tuple[tuple[str, str], ...]
    schedule: Schedule | None

    def run(self, seed: int, schedule: Schedule | None = None) -> SeedResult:
        return check_seed(
            self.make_system,
            seed,
            self.config,
            interests=self.interests,
            overlay=self.overlay,
            schedule=schedule if schedule is not None else self.schedule,
        )


def _failure(job: _Job, result: SeedResult, command: Sequence[str], runs_max: int) -> Failure:
    replay = shlex.join([*command, "--seeds", "1", "--seed", str(result.seed)])
    if not runs_max:
        return Failure(result, replay, None)
    smallest, runs = shrink(
        result.happened,
        lambda schedule: job.run(result.seed, schedule).failure is not None,
        runs_max=runs_max,
    )
    return Failure(result, replay, smallest, runs)


def _write_seed(result: SeedResult, failure: Failure | None, folder: Path) -> None:
    """Write the faults that happened, and the interests and links at the end. `trellis check` reads the last two."""
    folder.mkdir(exist_ok=True)
    write_schedule(result.happened, folder / "schedule.tsv")
    living = Interests.from_pairs([(node, topic) for node, topics in result.interests for topic in topics])
    write_table(living.to_table(), folder / "interests.tsv")
    write_table(Overlay.from_pairs(living.nodes, result.links).to_table(), folder / "overlay.tsv")
    if failure is not None and failure.shrunk is not None:
        write_schedule(failure.shrunk, folder / "shrunk.tsv")


def _by_node(interests: Interests | InterestsByNode | None) -> InterestsByNode | None:
    if interests is None or isinstance(interests, Mapping):
        return interests
    return topics_by_node(interests)


def _words(fault: Any) -> str:
    parts = [fault.kind, *fault.nodes[:6], *(["..."] if len(fault.nodes) > 6 else [])]
    if fault.peers:
        parts += ["to", *fault.peers[:6]]
    if fault.topics:
        parts += ["topics", *fault.topics[:4]]
    if fault.value and not fault.kind.startswith("crash"):
        parts.append(f"{fault.value:g}{' ms more' if fault.kind == 'slow' else ''}")
    return " ".join(parts) + (f" for {fault.duration_ms} ms" if fault.duration_ms else "")
