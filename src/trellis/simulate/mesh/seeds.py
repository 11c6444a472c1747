"""Run many trials of whole nodes, in one process or in several. The results are the same.

A failing trial reports the broken promise, the command that replays it, and the smallest schedule of faults that still
breaks a promise. Every situation that a trial reached is counted (`reached.py`). A check that never reached one of them
has not tested everything.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from trellis.judge import write_history
from trellis.simulate.mesh.corpus import Case, run_case
from trellis.simulate.mesh.draw import MeshPlan
from trellis.simulate.mesh.summary import Failure, MeshSummary, failed, kinds_of
from trellis.simulate.mesh.trial import LACKS, TrialResult
from trellis.simulate.pool import SHRUNK_MAX, Progress, in_order, until_enough
from trellis.simulate.run import make_folder, write_json
from trellis.simulate.schedule import Schedule, write_schedule
from trellis.simulate.shrink import shrink

SHRINK_RUNS_MAX = 40  # for each failing trial
COMMAND = ("trellis", "simulate", "mesh", "--check")


def check_mesh(
    *,
    seeds: int,
    first_seed: int = 1,
    plan: MeshPlan | None = None,
    jobs: int = 1,
    folder: str | Path | None = None,
    failures_max: int | None = None,
    shrink_runs_max: int = SHRINK_RUNS_MAX,
    command: tuple[str, ...] = COMMAND,
    progress: Progress | None = None,
    cases: Sequence[Case] | None = None,
) -> MeshSummary:
    """Check the seeds FIRST..FIRST+N-1, or the given cases. With a folder, every failing case leaves its history there.

    `command` has the words of the called command, without the options that choose seeds. It is used for replays.
    """
    if cases is None:
        cases = [Case(seed) for seed in range(first_seed, first_seed + seeds)]
    out = make_folder(folder, "summary.json") if folder is not None else None
    summary = MeshSummary(cases[0].seed)
    if out is not None:  # so that the folder can be used again if the process is killed
        write_json(summary.to_json(), out / "summary.json")
    checker = Checker(plan or MeshPlan(), command, out, shrink_runs_max)
    try:
        for case, result in until_enough(checker.run(cases, jobs), summary, len(cases), failures_max, progress):
            summary.add(result)
            if not result.holds:
                summary.failures.append(checker.failure(case, result, len(summary.failures)))
    finally:
        if out is not None:
            write_json(summary.to_json(), out / "summary.json")
    return summary


@dataclass(frozen=True)
class Checker:
    """Runs cases, and writes failing ones to a folder."""

    plan: MeshPlan
    command: tuple[str, ...] = COMMAND
    out: Path | None = None  # folder for failing cases
    shrink_runs_max: int = SHRINK_RUNS_MAX

    def run(self, cases: Sequence[Case], jobs: int) -> Iterator[tuple[Case, TrialResult]]:
        yield from zip(cases, in_order(partial(quiet_trial, plan=self.plan), cases, jobs), strict=False)

    def failure(self, case: Case, result: TrialResult, before: int) -> Failure:
        """Shrink a failing case and write it to the folder. `before` is the number of earlier failures."""
        runs_max = self.shrink_runs_max if before < SHRUNK_MAX else 0
        smallest = None
        if runs_max:
            # A case names its faults, so it cannot show that the draw lacks one.
            kinds = kinds_of(one for one in result.failures if not one.startswith(LACKS))
            if kinds:
                found, _ = shrink(result.schedule, lambda one: self._fails(case, one, kinds), runs_max=runs_max)
                smallest = msgspec.structs.replace(case, faults=found.faults)
        folder = None if self.out is None else self.out / _name(case, before)
        if folder is not None:
            _write(case, result, smallest, folder)
        if case.is_drawn:
            choice = ["--seeds", "1", "--seed", str(case.seed)]
        else:
            choice = ["--case", "case.json" if folder is None else str(folder / "case.json")]
        replay_shrunk = ""
        if folder is not None and smallest is not None:
            replay_shrunk = shlex.join([*self.command, "--case", str(folder / "shrunk.json")])
        shrunk = None if smallest is None else smallest.faults
        return failed(result, case, shlex.join([*self.command, *choice]), shrunk, str(folder or ""), replay_shrunk)

    def _fails(self, case: Case, schedule: Schedule, kinds: set[str]) -> bool:
        """Return whether the case with another schedule fails in one of these ways."""
        result = quiet_trial(msgspec.structs.replace(case, faults=schedule.faults), self.plan)
        return not kinds.isdisjoint(kinds_of(result.failures))


def quiet_trial(case: Case, plan: MeshPlan) -> TrialResult:
    """Run one case without logging. The log of nodes is of use only when a seed is replayed."""
    was = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return run_case(case, plan)
    finally:
        logging.disable(was)


def _name(case: Case, before: int) -> str:
    return f"seed-{case.seed}" if case.is_drawn else f"case-{before + 1}"


def _write(case: Case, result: TrialResult, smallest: Case | None, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    write_history(result.history, folder / "history.jsonl")
    write_schedule(result.schedule, folder / "schedule.tsv")
    write_json(case.to_json(), folder / "case.json")
    write_json({"limits": result.limits, "failures": result.failures}, folder / "failure.json")
    if smallest is not None:
        write_json(smallest.to_json(), folder / "shrunk.json")
        write_schedule(Schedule(smallest.faults or ()), folder / "shrunk.tsv")
