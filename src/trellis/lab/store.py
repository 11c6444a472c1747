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
from contextlib import contextmanager, suppress
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

ABOUT, KEPT = "row.json", "kept.json"
# What `row.json` must say, and as which type.
ABOUT_KINDS: dict[str, type | tuple[type, ...]] = {
    "measure": str,
    "system": str,
    "parameters": dict,
    "seed": int,
    "experiments": list,
    "seconds": (int, float),
    "cpu_seconds": (int, float),
}
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
        lock = self.folder / "lock"
        try:
            opened = lock.open("w")
        except OSError as error:
            raise InputError(
                str(lock), f"cannot be opened ({error.strerror})", "remove it, or mend its mode"
            ) from error
        with opened as file:
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
        path = self.rows / row.key / ABOUT
        return path.exists() and _read_about(path).get("error") is None

    def begin(self, key: str) -> None:
        (self.rows / f".running-{key}").touch()

    def running(self) -> dict[str, float]:
        """Return the keys of the rows that are being run, with the time at which each began."""
        found = {}
        for path in self.rows.glob(".running-*"):
            with suppress(FileNotFoundError):  # it ended meanwhile
                found[path.name.removeprefix(".running-")] = path.stat().st_mtime
        return found

    def ended(self, key: str) -> tuple[str | None, float] | None:
        """Return the error of a row, if it has one, and when it ended; None where it has not ended."""
        path = self.rows / key / ABOUT
        return (_read_about(path).get("error"), path.stat().st_mtime) if path.exists() else None

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
        (part / ABOUT).write_text(json.dumps({**what, **about}, ensure_ascii=False, indent=2) + "\n", "utf-8")
        place = self.rows / row.key
        if place.is_dir():  # a row that failed before
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        part.rename(place)
        (self.rows / f".running-{row.key}").unlink(missing_ok=True)

    def outcomes(self) -> list[Outcome]:
        """Return every row that there is, by its key, but for rows of an old version of their measure."""
        found = []
        for path in sorted(self.rows.glob(f"[!.]*/{ABOUT}")):
            about = _read_about(path)
            case = Case(about["measure"], about["system"], about["parameters"])
            row = Row(case, about["seed"], tuple(about["experiments"]))
            if row.key == path.parent.name:
                found.append(Outcome(row, about))
        return found

    def read(self, row: Row) -> dict[str, Series]:
        path = self.rows / row.key / "result.parquet"
        try:
            if (line := self.line(row)) is not None:
                path = self.rows / row.key / KEPT
                return {metric: decoded(found) for metric, found in line["found"].items()}
            return _from_arrow(pq.read_table(path))
        except FileNotFoundError:
            raise damaged(path, "is missing") from None
        except OSError as error:
            raise damaged(path, unreadable(error)) from None
        except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError):
            raise damaged(path, "is no table of results") from None

    def line(self, row: Row) -> dict[str, Any] | None:
        """Return the line of kept rows that was taken as this row; None where the row was run."""
        path = self.rows / row.key / KEPT
        return _read_json(path) if path.exists() else None

    def table(self, cases: Iterable[Case], outcomes: Iterable[Outcome]) -> Table:
        """What was found for these cases, over all seeds that were run without an error."""
        by_case: dict[str, list[Row]] = {}
        for outcome in outcomes:
            if outcome.error is None and outcome.row.key:
                by_case.setdefault(outcome.row.case.identity, []).append(outcome.row)
        table = Table()
        for case in cases:
            for row in by_case.get(case.identity, []):
                table.add(case, row.seed, self.read(row))
        return table


def damaged(path: Path, what: str) -> InputError:
    """Return the error for a file of a row that cannot be used: it names the file, and how to do without it."""
    return InputError(str(path), what, f"remove {path.parent}, and the next trellis lab run makes the row again")


def unreadable(error: OSError) -> str:
    return f"cannot be read ({error.strerror or 'it is damaged'})"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise damaged(path, unreadable(error)) from None
    except ValueError:
        raise damaged(path, "is no JSON") from None
    if not isinstance(found, dict):
        raise damaged(path, "is no object of JSON")
    return found


def _read_about(path: Path) -> dict[str, Any]:
    """Return what a row says of itself. Raise InputError where it says too little."""
    found = _read_json(path)
    for name, kinds in ABOUT_KINDS.items():
        value = found.get(name)
        if not isinstance(value, kinds) or isinstance(value, bool):
            what = f"has no {name}" if value is None else f"has {name} {value!r:.40}"
            raise damaged(path, f"{what}, so another version of Trellis wrote it, or it is damaged")
    return found


def _to_arrow(found: Found) -> pa.Table:
    series = {metric: series_of(value) for metric, value in found.items()}
    names = [metric for metric, one in series.items() for _ in one.values]
    steps = np.concatenate([np.zeros(0), *(one.steps for one in series.values())])
    values = np.concatenate([np.zeros(0), *(one.values for one in series.values())])
    return pa.table({"step": pa.array(steps, pa.float64()), "metric": pa.array(names, pa.string()),
                     "value": pa.array(values, pa.float64())}, schema=SCHEMA)  # fmt: skip


def _from_arrow(table: pa.Table) -> dict[str, Series]:
    if not table.schema.equals(SCHEMA):
        raise ValueError("other columns than those of SCHEMA")
    metrics = np.array(table["metric"].to_pylist(), dtype=object)
    steps, values = table["step"].to_numpy(), table["value"].to_numpy()
    found: dict[str, Series] = {}
    for metric in dict.fromkeys(metrics.tolist()):
        chosen = metrics == metric
        found[metric] = Series(steps[chosen], values[chosen])
    return found
