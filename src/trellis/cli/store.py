"""`trellis store check|copy|export FOLDER`: read the store of a node, also while it runs.  [docs/durable.md]"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trellis.cli.common import AsJson, examples, show
from trellis.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from trellis.protocols.delivery.records import Kept

EXAMPLE = examples(
    "trellis store check /var/lib/trellis/a",
    "trellis store copy /var/lib/trellis/a /backup/a",
    "trellis store export /var/lib/trellis/a -o messages.parquet",
)
app = typer.Typer(no_args_is_help=True, epilog=EXAMPLE)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The node's `durable.path`.", show_default=False)]
_ROWS = 50_000  # messages that are written to Parquet at a time


@app.callback()
def _store() -> None:
    """The store of a node: check it, copy it, export its messages."""


@app.command("check", epilog=EXAMPLE)
def check(folder: Folder, as_json: AsJson = False) -> None:
    """Read every record, and compare checksums. Exits 1 if something that was promised is damaged."""
    from trellis.store.checks import look, set_aside
    from trellis.store.disk import FolderDisk

    disk = FolderDisk(folder, writes=False)
    segments, aside = list(look(disk)), set_aside(disk)
    damaged = [one for one in segments if one.is_damaged]
    torn = sum(end - begin for one in segments if not one.is_damaged for begin, end in one.bad)
    told = {
        "folder": str(folder),
        "segments": len(segments),
        "bytes": sum(one.size for one in segments),
        "records": sum(one.records for one in segments),
        "indexed": sum(one.has_index for one in segments),
        "torn_bytes": torn,
        "damaged": [{"segment": one.name, "bad": one.bad, "why": one.why} for one in damaged],
        "set_aside": aside,
    }
    lines = [f"{folder}: segments {len(segments)}, bytes {told['bytes']}, records {told['records']}"]
    lines += [f"{one.name}: damaged: {_damage(one.bad, one.why)}" for one in damaged]
    lines += [f"{name}: was damaged, and a node has set it aside" for name in aside]
    if torn:
        lines.append(f"the newest segment ends in the middle of a write: {torn} bytes, of which nothing was promised")
    if damaged:
        lines.append("start the node: it sets damaged segments aside, and fetches from other nodes what they held")
    show(told, as_json, lines)
    raise typer.Exit(1 if damaged else 0)


def _damage(bad: list[tuple[int, int]], why: str) -> str:
    return why or ", ".join(f"bytes {begin} to {end}" for begin, end in bad[:5])


@app.command("copy", epilog=EXAMPLE)
def copy(
    folder: Folder,
    to: Annotated[Path, typer.Argument(metavar="TO", help="A new folder for the copy.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Copy a store, also while its node runs. A node can be started on the copy, once, in place of the other."""
    from trellis.files import removed_on_failure
    from trellis.store.checks import copy as copy_store
    from trellis.store.disk import FolderDisk

    source = FolderDisk(folder, writes=False)
    if to.exists() and any(to.iterdir() if to.is_dir() else [to]):
        raise InputError(str(to), "is there already and not empty", "name a new folder")
    with removed_on_failure(to):
        target = FolderDisk(to)
        segments, size = copy_store(source, target)
        target.close()
    show({"to": str(to), "segments": segments, "bytes": size}, as_json, [f"{to}: segments {segments}, bytes {size}"])


@app.command("export", epilog=EXAMPLE)
def export(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", help="A Parquet file.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write all messages of a store to a Parquet file, in the order in which the node got them."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise MissingExtra("pyarrow", "plan") from error
    from trellis.files import written_whole
    from trellis.store.disk import FolderDisk

    schema = pa.schema(
        [
            pa.field("topic", pa.string(), nullable=False),
            pa.field("origin", pa.string(), nullable=False),
            pa.field("incarnation", pa.int64(), nullable=False),
            pa.field("sequence", pa.int64(), nullable=False),
            pa.field("published", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("payload", pa.binary(), nullable=False),
        ]
    )
    disk, count = FolderDisk(folder, writes=False), 0
    with written_whole(output) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for rows in _batches(_messages(disk)):
            columns = [
                [one.topic for one, _ in rows],
                [one.origin for one, _ in rows],
                [one.incarnation for one, _ in rows],
                [one.sequence for one, _ in rows],
                [one.born_ms for one, _ in rows],
                [payload for _, payload in rows],
            ]
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            count += len(rows)
    show({"output": str(output), "messages": count}, as_json, [f"{output}: messages {count}"])


def _messages(disk: object) -> Iterator[tuple[Kept, bytes]]:
    """Yield the messages of a store, each once, also if it was written again after a damage."""
    from trellis.protocols.delivery.records import Kept, decode
    from trellis.protocols.wire import WireError
    from trellis.store.checks import records

    seen: set[tuple[str, str, int, int]] = set()
    for head, body in records(disk):  # type: ignore[arg-type]
        try:
            record = decode(head)
        except WireError:
            continue
        if isinstance(record, Kept):
            key = (record.topic, record.origin, record.incarnation, record.sequence)
            if key not in seen:
                seen.add(key)
                yield record, body


def _batches(messages: Iterator[tuple[Kept, bytes]]) -> Iterator[list[tuple[Kept, bytes]]]:
    rows: list[tuple[Kept, bytes]] = []
    for one in messages:
        rows.append(one)
        if len(rows) >= _ROWS:
            yield rows
            rows = []
    if rows:
        yield rows
