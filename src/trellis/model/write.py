"""Write any table of Trellis in the format of the file's name, completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.model.text import separator_of, write_text


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table as `.parquet`, `.tsv`, `.csv`, `.tsv.gz` or `.csv.gz`. The same table gives the same bytes."""
    path = Path(path)
    expect_format(path)
    separator = separator_of(path)
    columns = {name: _plain(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    plain = pa.table(columns).replace_schema_metadata(table.schema.metadata)
    with written_whole(path) as beside:
        if separator is None:
            pq.write_table(plain, beside, compression="zstd")
        else:
            write_text(plain, beside, separator, zipped=path.suffix == ".gz")


def expect_format(path: str | Path) -> None:
    """Raise InputError if the name has no known format. Call this before long work, not after it."""
    path = Path(path)
    if separator_of(path) is None and path.suffix != ".parquet":
        raise InputError(
            str(path),
            "its name does not tell the format",
            "end it in .parquet, .tsv, .csv, .tsv.gz or .csv.gz",
        )
    if not path.parent.is_dir():
        raise InputError(str(path), f'there is no folder "{path.parent}"', "make it first")


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
