"""Recognize telemetry: events of live nodes, which are no table of subscriptions.

{"time": 1700000000.0, "node": "a", "event": "subscribe", "topic": "t"}

Live nodes write such JSON lines, and `trellis pipeline events` makes a Parquet table of them. A line has a node and a
topic, like a row of interests. But it may be an `unsubscribe` or a `publish`, so it must not be read as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trellis.errors import InputError
from trellis.model.folders import parts_of
from trellis.model.lines import is_lines, objects

CHANGES = ("subscribe", "unsubscribe")
BOUNDARIES = ("join", "leave", "crash")
PUBLISH = "publish"
EVENTS = (*BOUNDARIES, *CHANGES, PUBLISH)
_KEYS = {"time", "node", "event"}
_COLUMNS = _KEYS | {"topic", "count", "seconds"}  # of the table that `trellis pipeline events` writes


def telemetry_files(path: Path) -> list[Path]:
    """Return the files of telemetry behind a path: a file, or all in a folder. Empty if it is no telemetry."""
    if path.is_dir():
        files = sorted(one for one in _visible(path) if is_lines(one))
        if not files:
            files = _parts(path)
    else:
        files = [path] if path.is_file() else []
    return files if files and all(_is_telemetry(one) for one in files) else []


def refuse_telemetry(path: Path) -> None:
    """Raise InputError if the path is telemetry."""
    if telemetry_files(path):
        raise InputError(
            str(path),
            "is telemetry: its rows are events of nodes, and not all of them subscriptions",
            "make a table of the subscriptions in force: "
            f"trellis pipeline pairs {path} --format telemetry -o interests",
        )


def _visible(folder: Path) -> Iterator[Path]:
    for one in folder.rglob("*"):
        if one.is_file() and not any(name.startswith((".", "_")) for name in one.relative_to(folder).parts):
            yield one


def _parts(folder: Path) -> list[Path]:
    try:
        return parts_of(folder)
    except InputError:
        return []  # The reader of tables says what is wrong.


def _is_telemetry(path: Path) -> bool:
    try:
        if is_lines(path):
            first = next((found for _, found in objects(path)), {})
            return first.keys() >= _KEYS and first["event"] in EVENTS
        return path.suffix == ".parquet" and set(pq.read_schema(path).names) >= _COLUMNS
    except (InputError, pa.ArrowException, OSError, TypeError):
        return False  # The reader of tables says what is wrong.
