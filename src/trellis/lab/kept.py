"""Results that are kept with the sources: `results/PAPER.jsonl`, one line of JSON for each row, sorted.

A line says what was run, what was found, and where it comes from: commit, engine, versions, seconds, processor seconds.
Every verdict, plot and page can be made from these files alone. Long series are shortened (`shortened.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.lab.catalogue import catalogue
from trellis.lab.experiment import SCALES, VERSIONS, Case, Experiment, Over, Row
from trellis.lab.inputs import EVERYTHING, NOTHING, AtHand
from trellis.lab.shortened import decoded, encoded
from trellis.lab.store import ABOUT, KEPT, Outcome, Store, damaged, unreadable
from trellis.lab.table import Series, Table

REMEDY = "restore the file, or make it again: trellis lab keep"
LINE_MAX = 1_000_000  # letters: a line that is longer is none of ours
PROVENANCE = ("seconds", "cpu_seconds", "commit", "engine", "versions", "ended")


class Changed(NamedTuple):
    """What `keep` did, in rows."""

    new: int
    replaced: int
    unchanged: int
    dropped: int  # rows of an old version of their measure, or that no entry asks for any more
    failed: int
    uncommitted: int  # made by sources that no commit has


class Kept:
    """The rows of a folder of results. It can be judged and drawn as a folder of the runner can (`Store`)."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.lines: dict[str, dict[str, Any]] = {}  # by key of the row
        self._outcomes: dict[str, Outcome] = {}
        self._places: dict[str, str] = {}  # file and line
        for path in sorted(self.folder.glob("*.jsonl")):
            for number, text in enumerate(_text_of(path).splitlines(), start=1):
                self._add(_read_line(text, f"{path}:{number}"), f"{path}:{number}")

    def _add(self, line: dict[str, Any], place: str) -> None:
        row = _row_of(line)
        if line["version"] == VERSIONS.get(row.case.measure, 1):
            if row.key in self.lines:
                what = f"has the row of {self._places[row.key]} again"
                raise InputError(place, what, "remove one of the two lines")
            self.lines[row.key], self._outcomes[row.key] = line, Outcome(row, line)
            self._places[row.key] = place

    def take_into(self, store: Store, rows: Iterable[Row]) -> list[Row]:
        """Put those of `rows` that are kept here into `store`, where they count as done. Return them."""
        taken = [row for row in rows if row.key in self.lines]
        for row in taken:
            store.take(row, self.lines[row.key])
        return taken

    @property
    def at_hand(self) -> AtHand:
        """Return the raw traces that these rows were made of."""
        parameters = [outcome.row.case.parameters for outcome in self._outcomes.values()]
        return AtHand(names=frozenset(str(told.get(name)) for told in parameters for name in ("interests", "churn")))

    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes.values())

    def table(self, cases: Iterable[Case], outcomes: Iterable[Outcome]) -> Table:
        by_case: dict[str, list[Row]] = {}
        for outcome in outcomes:
            by_case.setdefault(outcome.row.case.identity, []).append(outcome.row)
        table = Table()
        for case in cases:
            for row in by_case.get(case.identity, []):
                table.add(case, row.seed, self._series(row))
        return table

    def _series(self, row: Row) -> dict[str, Series]:
        try:
            return {metric: decoded(found) for metric, found in self.lines[row.key]["found"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(self._places[row.key], "has a series that cannot be read", REMEDY) from None


def keep(store: Store, folder: Path, scales: Iterable[str] = ("paper",)) -> Changed:
    """Take the rows of `store` that entries ask for at these scales into the files of `folder`."""
    if not store.rows.is_dir():
        raise InputError(str(store.folder), "holds no results", "run first: trellis lab run all --scale paper")
    asked, wanted = askers(SCALES), set(askers(tuple(scales)))
    before = Kept(folder) if folder.is_dir() else None
    lines = {} if before is None else {k: v for k, v in before.lines.items() if _row_of(v).case.identity in asked}
    dropped = 0 if before is None else _count(folder) - len(lines)
    new = replaced = unchanged = failed = uncommitted = 0
    for outcome in store.outcomes():
        row, about = outcome.row, outcome.about
        if row.case.identity not in wanted:
            continue
        if outcome.error is not None:
            failed += 1
        elif not about.get("commit") or str(about["commit"]).endswith("+"):
            uncommitted += 1
        elif row.key in lines and lines[row.key]["ended"] >= about.get("ended", ""):
            unchanged += 1
        else:
            new, replaced = (new, replaced + 1) if row.key in lines else (new + 1, replaced)
            taken = _taken(store, row)
            if lost := [name for name in PROVENANCE if name not in about]:
                what = f"has no {lost[0]}, so another version of Trellis wrote it"
                raise damaged(store.rows / row.key / ABOUT, what)
            lines[row.key] = taken or line_of(row, store.read(row), about, asked[row.case.identity])
    _write(folder, lines.values(), asked)
    return Changed(new, replaced, unchanged, dropped, failed, uncommitted)


def _taken(store: Store, row: Row) -> dict[str, Any] | None:
    """Return the kept line that the store took as this row; None where the row was run."""
    if (line := store.line(row)) is None:
        return None
    try:
        return _read_line(json.dumps(line), "")
    except InputError:
        raise damaged(store.rows / row.key / KEPT, "is no row of results") from None


def askers(scales: Iterable[str]) -> dict[str, list[Experiment]]:
    """Return who asks for which case, by its identity: with every raw trace at hand, and with none."""
    found: dict[str, list[Experiment]] = {}
    for experiment in catalogue().values():
        for scale in scales:
            if not experiment.can_run or scale not in experiment.scales:
                continue
            for case in [case for at_hand in (EVERYTHING, NOTHING) for case in experiment.cases(scale, at_hand)]:
                listed = found.setdefault(case.identity, [])
                if experiment not in listed:
                    listed.append(experiment)
    return found


def line_of(
    row: Row, found: Mapping[str, Series], about: Mapping[str, Any], asking: Iterable[Experiment]
) -> dict[str, Any]:
    """Return what is kept of a row."""
    asking = list(asking)
    whole = {metric for experiment in asking for metric in experiment.by_step}
    drawn = {
        plot.metric
        for experiment in asking
        for plot in experiment.plots
        if isinstance(plot, Over) and (not plot.systems or row.case.system in plot.systems)
    }
    return {
        "measure": row.case.measure,
        "version": VERSIONS.get(row.case.measure, 1),
        "system": row.case.system,
        "parameters": dict(sorted(row.case.parameters.items())),
        "seed": row.seed,
        "found": {m: encoded(one, m in whole, m in drawn) for m, one in sorted(found.items())},
        **{name: about[name] for name in PROVENANCE},
    }


def _read_line(text: str, place: str) -> dict[str, Any]:
    if len(text) > LINE_MAX:
        raise InputError(place, f"the line has {len(text):,} letters", "restore the file: git checkout")
    try:
        line = json.loads(text)
        _row_of(line)
        if not isinstance(line["found"], dict) or not isinstance(line["version"], int):
            raise TypeError
        _ = float(line["seconds"]), float(line["cpu_seconds"])
        if not isinstance(line["ended"], str) or not all(name in line for name in PROVENANCE):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise InputError(place, "is no row of results", REMEDY) from None
    return dict(line)


def _text_of(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InputError(str(path), unreadable(error), REMEDY) from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is no text", REMEDY) from None


def _row_of(line: Mapping[str, Any]) -> Row:
    return Row(Case(str(line["measure"]), str(line["system"]), dict(line["parameters"])), int(line["seed"]))


def _count(folder: Path) -> int:
    return sum(len(_text_of(path).splitlines()) for path in folder.glob("*.jsonl"))


def _write(folder: Path, lines: Iterable[Mapping[str, Any]], asked: Mapping[str, list[Experiment]]) -> None:
    """A file for each paper: that of the first entry that asks for the row."""
    files: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        files.setdefault(asked[_row_of(line).case.identity][0].paper, []).append(line)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be made ({error.strerror})", "name another folder with --to") from error
    for paper, some in files.items():
        ordered = sorted(some, key=lambda line: (_row_of(line).case.identity, line["seed"]))
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in ordered)
        with written_whole(folder / f"{paper}.jsonl") as part:
            part.write_text(text, "utf-8")
