"""Find a small schedule that still fails, by delta debugging over its faults, with a limited number of runs.

Halves, quarters and so on of the faults are dropped as long as the rest still fails [Zeller & Hildebrandt, ddmin].
Faults that name all nodes they hit (`SeedResult.happened`) do not change when others are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from trellis.simulate.schedule import Fault, Schedule


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool], *, runs_max: int = 60) -> tuple[Schedule, int]:
    """Return the smallest failing schedule found, and the number of runs. `schedule` itself is assumed to fail."""
    budget = _Budget(fails, schedule.absent, runs_max)
    faults: Sequence[Fault] = schedule.faults
    if faults and budget.fails(()):
        return Schedule((), schedule.absent), budget.runs
    parts = 2
    while len(faults) > 1 and not budget.spent:
        smaller = _without_one_part(faults, parts, budget)
        if smaller is not None:
            faults, parts = smaller, max(parts - 1, 2)
        elif parts < len(faults):
            parts = min(2 * parts, len(faults))
        else:
            break
    return Schedule(tuple(faults), schedule.absent), budget.runs


class _Budget:
    def __init__(self, fails: Callable[[Schedule], bool], absent: tuple[str, ...], runs_max: int) -> None:
        self._fails, self._absent, self._runs_max = fails, absent, runs_max
        self.runs = 0

    @property
    def spent(self) -> bool:
        return self.runs >= self._runs_max

    def fails(self, faults: Sequence[Fault]) -> bool:
        if self.spent:
            return False
        self.runs += 1
        return self._fails(Schedule(tuple(faults), self._absent))


def _without_one_part(faults: Sequence[Fault], parts: int, budget: _Budget) -> Sequence[Fault] | None:
    bounds = [len(faults) * part // parts for part in range(parts + 1)]
    for begin, end in pairwise(bounds):
        rest = (*faults[:begin], *faults[end:])
        if begin < end and rest and budget.fails(rest):
            return rest
    return None
