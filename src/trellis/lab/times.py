"""How long rows take: processor seconds of rows that are kept; else an estimate from similar rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from trellis.lab.experiment import Row, engine_of, size_of
from trellis.lab.store import Outcome

SECONDS_PER_UNIT = 1e-3  # of `size_of`, where nothing like it was ever run
HOME = Path(__file__).parents[3] / "results"  # of a checkout


class Expected(NamedTuple):
    """Processor seconds of some rows, and how many of the rows were measured with the same parameters before."""

    seconds: float
    measured: int
    rows: int

    @property
    def is_estimate(self) -> bool:
        return self.measured < self.rows

    def __str__(self) -> str:
        if not self.rows:
            return "-"
        return ("~" if self.is_estimate else "") + time_text(self.seconds)


class Times:
    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self._same: dict[str, list[float]] = {}  # by case: processor seconds, a number for each seed
        self._alike: dict[tuple[str, ...], tuple[float, float]] = {}  # by likeness: their sum, and that of sizes
        for outcome in outcomes:
            row, seconds = outcome.row, float(outcome.about.get("cpu_seconds", 0.0))
            self._same.setdefault(row.case.identity, []).append(seconds)
            for like in _likenesses(row):
                before = self._alike.get(like, (0.0, 0.0))
                self._alike[like] = before[0] + seconds, before[1] + size_of(row)

    def of(self, row: Row) -> float:
        if same := self._same.get(row.case.identity):
            return max(0.01, sum(same) / len(same))
        for like in _likenesses(row):
            if like in self._alike:
                seconds, size = self._alike[like]
                return max(0.01, seconds / size * size_of(row))
        return SECONDS_PER_UNIT * size_of(row)

    def expected(self, rows: Iterable[Row]) -> Expected:
        listed = list(rows)
        measured = sum(row.case.identity in self._same for row in listed)
        return Expected(sum(map(self.of, listed)), measured, len(listed))


def _likenesses(row: Row) -> list[tuple[str, ...]]:
    """From most alike to least."""
    measure, engine = row.case.measure, engine_of(row.case)
    return [(measure, engine, row.case.system), (measure, engine), (measure,)]


def kept_folder() -> Path | None:
    """Return the folder of kept results: here, or in the checkout that the program runs from."""
    for folder in (Path("results"), HOME):
        if next(folder.glob("*.jsonl"), None) is not None:
            return folder
    return None


def time_text(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
