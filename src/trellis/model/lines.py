"""Read JSON lines: one object per line with a key for each column, as brokers and their tools export subscriptions.

{"node": "n1", "topic": "plant/3/heat"}

Other keys are ignored. `--columns node=clientid,topic=filter` gives the keys if they have other names. Values are text
or whole numbers, as in the other tables. Blank lines are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from trellis.errors import InputError
from trellis.model.kinds import Kind
from trellis.model.layout import Layout
from trellis.model.text import opened

SUFFIXES = (".jsonl", ".ndjson")
LINE_BYTES_MAX = 1 << 20
_BATCH_ROWS = 1 << 18
_REMEDY = "write one JSON object a line"


def is_lines(path: Path) -> bool:
    """Return whether the file's name says that it holds JSON lines, plain or gzip. `a.jsonl.1` is a full log."""
    name = path.with_suffix("") if path.suffix == ".gz" else path
    return (Path(name.stem).suffix if name.suffix[1:].isdigit() else name.suffix) in SUFFIXES


def read_keys(path: Path) -> list[str]:
    """Return the keys of the first object."""
    for _, record in objects(path):
        return list(record)
    raise InputError(str(path), "the file is empty", _REMEDY)


def line_batches(path: Path, kind: Kind, layout: Layout) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches. Names are dictionary-encoded, numbers are float64."""
    if not layout.header or layout.separator is not None:
        wrong = "--separator" if layout.header else "--no-header"
        raise InputError(str(path), "JSON lines name their values themselves", f"leave out {wrong}")
    keys: dict[str, str] = {}
    values: dict[str, list[Any]] = {name: [] for name in kind.columns}
    rows = 0
    for line, record in objects(path):
        if not keys:
            keys = _keys(kind, layout, list(record), f"{path}:{line}")
        for name, key in keys.items():
            if key not in record and name not in kind.optional:
                raise InputError(f"{path}:{line}", f'there is no key "{key}"', f"the keys are {', '.join(record)}")
            values[name].append(_value(record.get(key), name, kind, f"{path}:{line}"))
        rows += 1
        if rows == _BATCH_ROWS:
            yield _batch(values, kind)
            values, rows = {name: [] for name in kind.columns}, 0
    if rows:
        yield _batch(values, kind)


def objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each object with its line number."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with opened(path) as file:
        line = 0
        while raw := file.readline(LINE_BYTES_MAX + 1):
            line += 1
            if len(raw) > LINE_BYTES_MAX:
                raise InputError(f"{path}:{line}", f"the line is longer than {LINE_BYTES_MAX:,} bytes", _REMEDY)
            text = raw.removeprefix(b"\xef\xbb\xbf").strip() if line == 1 else raw.strip()
            if not text:
                continue
            try:
                record = decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"{path}:{line}", f"not a JSON object ({error})", _REMEDY) from error
            yield line, record


def _keys(kind: Kind, layout: Layout, present: list[str], where: str) -> dict[str, str]:
    """Return for each of our columns its key, chosen among the keys of the first object."""
    wanted = [name for name in kind.columns if name not in kind.optional]
    if not layout.columns and set(wanted) <= set(present):
        return {name: name for name in kind.columns}
    return {name: present[index] for name, index in layout.places(kind, present, where).items()}


def _value(value: Any, name: str, kind: Kind, where: str) -> Any:
    if name in kind.numbers:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(where, f"{name} is not a number", "write a finite number")
        return float(value)
    if value is None:
        return ""  # As in other tables, an empty name is refused or allowed later.
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(where, f"{name} is neither text nor a whole number", "names are text or whole numbers")
    return str(value)


def _batch(values: dict[str, list[Any]], kind: Kind) -> pa.RecordBatch:
    columns = [
        pa.array(column, pa.float64()) if name in kind.numbers else pa.array(column, pa.string()).dictionary_encode()
        for name, column in values.items()
    ]
    return pa.RecordBatch.from_arrays(columns, list(values))
