"""Many seeds of whole nodes: in one process or several, with the same results either way.

A failing seed says which promise was broken, how to replay it, and the smallest schedule of faults that still breaks
one. Every situation that a seed reached is counted (`reached.py`); a campaign in which one was never reached has not
looked everywhere.
"""

from __future__ import annotations

import logging
import shlex
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from trellis.judge import write_history
from trellis.simulate.mesh.draw import KINDS, MeshPlan
from trellis.simulate.mesh.reached import SITUATIONS
from trellis.simulate.mesh.trial import TrialResult, run_trial
from trellis.simulate.run import make_folder, write_json
from trellis.simulate.schedule import Schedule, write_schedule
from trellis.simulate.shrink import shrink

SHRUNK_MAX = 3  # failing seeds whose schedules are shrunk
Progress = Callable[[int, int, int], None]  # (seeds done, of, failures so far)


@dataclass(frozen=True)
class Failure:
    """A seed that does not hold."""

    result: TrialResult
    replay: str
    shrunk: Schedule | None = None


@dataclass
class MeshSummary:
    """What `trellis simulate mesh --check` says at its end."""

    first_seed: int
    seeds: int = 0
    failures: list[Failure] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    digests: list[str] = field(default_factory=list)

    def add(self, result: TrialResult) -> None:
        self.seeds += 1
        self.injected.update(result.injected)
        self.counts.update(result.counts)
        self.reached.update(result.reached)
        self.virtual_s += result.seconds
        self.digests.append(result.digest)

    @property
    def never(self) -> list[str]:
        """Situations that no seed reached. Fewer seeds than situations promise nothing."""
        return [one for one in SITUATIONS if not self.reached[one]] if self.seeds >= _ENOUGH else []

    @property
    def missing(self) -> list[str]:
        """Kinds of faults that took effect in no seed, although there were as many seeds as kinds."""
        return [kind for kind in KINDS if not self.injected[kind]] if self.seeds >= len(KINDS) else []

    @property
    def holds(self) -> bool:
        """Whether every seed holds. Where nothing was published there was nothing to hold."""
        return not self.failures and not self.never and not self.missing and self.counts["published"] > 0

    def to_json(self) -> dict[str, Any]:
        return {
            "first_seed": self.first_seed,
            "seeds": self.seeds,
            "holds": self.holds,
            "failures": [
                {
                    "seed": one.result.seed,
                    "what": one.result.failures[:20],
                    "replay": one.replay,
                    "faults": len(one.result.schedule.faults),
                    "faults_shrunk": None if one.shrunk is None else len(one.shrunk.faults),
                }
                for one in self.failures
            ],
            "injected": dict(sorted(self.injected.items())),
            "counts": dict(sorted(self.counts.items())),
            "reached": {one: self.reached[one] for one in SITUATIONS},
            "never_reached": self.never,
            "virtual_s": round(self.virtual_s, 3),
            "digests": self.digests,
        }

    def lines(self) -> Iterator[str]:
        """Return sentences for people. The last one sums up."""
        for one in self.failures:
            yield f"seed {one.result.seed}: {len(one.result.failures)} failures"
            yield from (f"  {text}" for text in one.result.failures[:5])
            yield f"  replay: {one.replay}"
            if one.shrunk is not None:
                yield f"  {len(one.shrunk.faults)} of {len(one.result.schedule.faults)} faults are enough:"
                for fault in one.shrunk.faults:
                    to = f" to {','.join(fault.peers)}" if fault.peers else ""
                    lasts = f" for {fault.duration_ms} ms" if fault.duration_ms else ""
                    yield f"    {fault.time_ms / 1000:9.3f} s  {fault.kind} {','.join(fault.nodes)}{to}{lasts}"
        yield "injected: " + ", ".join(f"{kind} {self.injected[kind]:,}" for kind in KINDS)
        yield "reached: " + ", ".join(f"{one} {self.reached[one]:,}" for one in SITUATIONS)
        yield from (f"{kind} took effect in no seed: raise --seeds" for kind in self.missing)
        yield from (f'"{one}" was never reached: raise --seeds, or make it more likely' for one in self.never)
        c = self.counts
        yield (
            f"{c['sessions']:,} sessions, {c['published']:,} published, {c['acknowledged']:,} acknowledged, "
            f"{c['refused']:,} refused, {c['owed']:,} deliveries owed, {self.virtual_s:,.0f} virtual seconds"
        )
        yield f"mesh: seeds {self.first_seed}..{self.first_seed + self.seeds - 1}: {self._verdict()}"

    def _verdict(self) -> str:
        if self.holds:
            return "all hold"
        if self.failures:
            return f"{len(self.failures):,} fail"
        if not self.counts["published"]:
            return "nothing was published, so nothing was checked: give more clients, nodes or seeds, or a longer span"
        return "not all was reached"


_ENOUGH = 400  # seeds after which every situation must have been reached


def check_mesh(
    *,
    seeds: int,
    first_seed: int = 1,
    plan: MeshPlan | None = None,
    jobs: int = 1,
    folder: str | Path | None = None,
    failures_max: int | None = None,
    shrink_runs_max: int = 40,
    command: tuple[str, ...] = ("trellis", "simulate", "mesh", "--check"),
    progress: Progress | None = None,
) -> MeshSummary:
    """Check the seeds FIRST..FIRST+N-1. With a folder, every failing seed leaves its history and schedules there.

    `command` are the words of the command that was called, without the options that choose seeds: for replays.
    """
    plan = plan or MeshPlan()
    out = make_folder(folder, "summary.json") if folder is not None else None
    summary = MeshSummary(first_seed)
    for result in _results(plan, range(first_seed, first_seed + seeds), jobs):
        summary.add(result)
        if not result.holds:
            failure = _failure(result, plan, command, shrink_runs_max if len(summary.failures) < SHRUNK_MAX else 0)
            summary.failures.append(failure)
            if out is not None:
                _write(failure, out / f"seed-{result.seed}")
        if progress is not None:
            progress(summary.seeds, seeds, len(summary.failures))
        if failures_max is not None and len(summary.failures) >= failures_max:
            break
    if out is not None:
        write_json(summary.to_json(), out / "summary.json")
    return summary


def _quiet_trial(seed: int, plan: MeshPlan, schedule: Schedule | None = None) -> TrialResult:
    """Run one seed. Nodes log what happens to them; here that is wanted only when a seed is replayed."""
    was = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return run_trial(seed, plan, schedule)
    finally:
        logging.disable(was)


def _results(plan: MeshPlan, seeds: range, jobs: int) -> Iterator[TrialResult]:
    """Yield results in the order of the seeds, whichever is done first."""
    if jobs <= 1 or len(seeds) <= 1:
        yield from (_quiet_trial(seed, plan) for seed in seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting: deque[Future[TrialResult]] = deque()
        try:
            for seed in seeds:
                waiting.append(pool.submit(_quiet_trial, seed, plan))
                if len(waiting) > 2 * jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _failure(result: TrialResult, plan: MeshPlan, command: tuple[str, ...], runs_max: int) -> Failure:
    replay = shlex.join([*command, "--seeds", "1", "--seed", str(result.seed)])
    if not runs_max:
        return Failure(result, replay)
    smallest, _ = shrink(
        result.schedule, lambda faults: not _quiet_trial(result.seed, plan, faults).holds, runs_max=runs_max
    )
    return Failure(result, replay, smallest)


def _write(failure: Failure, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    write_history(failure.result.history, folder / "history.jsonl")
    write_schedule(failure.result.schedule, folder / "schedule.tsv")
    write_json({"limits": failure.result.limits, "failures": failure.result.failures}, folder / "failure.json")
    if failure.shrunk is not None:
        write_schedule(failure.shrunk, folder / "shrunk.tsv")
