"""Results on disk: one folder a row, named by what the row does, written whole or not at all.

rows/KEY/result.parquet   step, metric, value
rows/KEY/row.json         measure, system, parameters, seed, and how it went: seconds, error, commit, versions
rows/KEY/kept.json        instead of the result: a line of `results/` that was taken (`trellis lab run --kept`)
rows/.running-KEY         a row that is being run; what a killed run leaves of these is removed by the next
inputs/                   what the pipeline made of raw traces
lock                      locked by the run that works in this folder, so that no second one removes what it writes
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trellis.errors import InputError
from trellis.lab.experiment import Case, Row
from trellis.lab.shortened import decoded
from trellis.lab.table import Found, Series, Table, series_of

KEPT = "kept.json"
SCHEMA = pa.schema([("step", pa.float64()), ("metric", pa.string()), ("value", pa.float64())])


@dataclass(frozen=True)
class Outcome:
    """A row that was run."""

    row: Row
    about: Mapping[str, Any]

    @property
    def error(self) -> str | None:
        return self.about.get("error")


class Store:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.rows, self.inputs = self.folder / "rows", self.folder / "inputs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for one run. The system unlocks it when the process ends, however it ends."""
        self._make()
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                remedy = "wait until it has ended, or name another folder with -o"
                raise InputError(str(self.folder), "another trellis lab run works in this folder", remedy) from error
            yield

    def open(self) -> None:
        """Make the folder, and clear what a killed run left half done."""
        self._make()
        for left in self.rows.glob(".*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def _make(self) -> None:
        try:
            self.rows.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(str(self.folder), f"cannot be made ({error.strerror})", "choose another folder") from error

    def is_done(self, row: Row) -> bool:
        """Run before, without an error."""
        path = self.rows / row.key / "row.json"
        return path.is_file() and json.loads(path.read_text(encoding="utf-8")).get("error") is None

    def begin(self, key: str) -> None:
        (self.rows / f".running-{key}").touch()

    def running(self) -> int:
        return sum(1 for _ in self.rows.glob(".running-*"))

    def write(self, row: Row, found: Found, about: Mapping[str, Any]) -> None:
        """Write what was found for a row, and how it went."""
        with self._whole(row, about) as part:
            pq.write_table(_to_arrow(found), part / "result.parquet")

    def take(self, row: Row, line: Mapping[str, Any]) -> None:
        """Write a line of kept rows (`kept.Kept.lines`) as this row."""
        about = {name: value for name, value in line.items() if name not in ("found", "version")}
        with self._whole(row, {**about, "error": None}) as part:
            (part / KEPT).write_text(json.dumps(line, ensure_ascii=False) + "\n", "utf-8")

    @contextmanager
    def _whole(self, row: Row, about: Mapping[str, Any]) -> Iterator[Path]:
        """Give a folder to write into. It appears under the name of the row when everything is in it."""
        part = self.rows / f".part-{row.key}-{os.getpid()}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part
        what = {
            "measure": row.case.measure,
            "system": row.case.system,
            "parameters": dict(row.case.parameters),
            "seed": row.seed,
            "experiments": list(row.experiments),
        }
        (part / "row.json").write_text(json.dumps({**what, **about}, ensure_ascii=False, indent=2) + "\n", "utf-8")
        place = self.rows / row.key
        if place.exists():  # a row that failed before
            shutil.rmtree(place)
        part.rename(place)
        (self.rows / f".running-{row.key}").unlink(missing_ok=True)

    def outcomes(self) -> list[Outcome]:
        """Every row that there is, by its key."""
        found = []
        for path in sorted(self.rows.glob("[!.]*/row.json")):
            about = json.loads(path.read_text(encoding="utf-8"))
            case = Case(about["measure"], about["system"], about["parameters"])
            found.append(Outcome(Row(case, about["seed"], tuple(about["experiments"])), about))
        return found

    def read(self, row: Row) -> dict[str, Series]:
        if (line := self.line(row)) is not None:
            return {metric: decoded(found) for metric, found in line["found"].items()}
        return _from_arrow(pq.read_table(self.rows / row.key / "result.parquet"))

    def line(self, row: Row) -> dict[str, Any] | None:
        """Return the line of kept rows that was taken as this row; None where the row was run."""
        path = self.rows / row.key / KEPT
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None

    def table(self, cases: Iterable[Case], outcomes: Iterable[Outcome]) -> Table:
        """What was found for these cases, over all seeds that were run without an error."""
        by_case: dict[str, list[Row]] = {}
        for outcome in outcomes:
            if outcome.error is None and outcome.row.key:
                by_case.setdefault(outcome.row.case.identity, []).append(outcome.row)
        table = Table()
        for case in cases:
            for row in by_case.get(case.identity, []):
                if (self.rows / row.key).is_dir():
                    table.add(case, row.seed, self.read(row))
        return table


def _to_arrow(found: Found) -> pa.Table:
    series = {metric: series_of(value) for metric, value in found.items()}
    names = [metric for metric, one in series.items() for _ in one.values]
    steps = np.concatenate([np.zeros(0), *(one.steps for one in series.values())])
    values = np.concatenate([np.zeros(0), *(one.values for one in series.values())])
    return pa.table({"step": pa.array(steps, pa.float64()), "metric": pa.array(names, pa.string()),
                     "value": pa.array(values, pa.float64())}, schema=SCHEMA)  # fmt: skip


def _from_arrow(table: pa.Table) -> dict[str, Series]:
    metrics = np.array(table["metric"].to_pylist(), dtype=object)
    steps, values = table["step"].to_numpy(), table["value"].to_numpy()
    found: dict[str, Series] = {}
    for metric in dict.fromkeys(metrics.tolist()):
        chosen = metrics == metric
        found[metric] = Series(steps[chosen], values[chosen])
    return found
