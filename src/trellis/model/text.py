"""Read and write TSV and CSV: one header line, LF, and quotes doubled in names with a separator, quote or line end.

Arrow parses fast, but reports only that something is wrong. Only then the file is read once more, slowly, to find the
line: `diagnose`.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from trellis.errors import InputError
from trellis.model.kinds import Kind
from trellis.model.layout import OURS, Layout

SEPARATORS = {".tsv": "\t", ".csv": ","}
_BLOCK_BYTES = 1 << 24
_TEXT = pa.large_string()  # A block of lines may exceed the 2 GiB of pa.string().


def separator_of(path: Path, layout: Layout = OURS) -> str | None:
    """Return the separator of the layout or of the file's name, or None if the name is not that of a text table."""
    if layout.separator is not None and path.suffix != ".parquet" and not path.is_dir():
        return layout.separator
    return SEPARATORS.get(Path(path.stem).suffix if path.suffix == ".gz" else path.suffix)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a plain or gzip file for reading, and turn errors of either kind into InputError."""
    try:
        with path.open("rb") as plain:
            if path.suffix == ".gz":
                # Python's reader refuses a truncated stream. Arrow's reader would end silently.
                with gzip.GzipFile(fileobj=plain, mode="rb") as unzipped:
                    yield cast(IO[bytes], unzipped)
            else:
                yield plain
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(str(path), f"the gzip stream is damaged ({error})", "fetch or write the file again") from error
    except OSError as error:
        raise InputError(
            str(path), f"cannot be read ({error.strerror or error})", "check the path and its rights"
        ) from error


def read_header(path: Path, separator: str) -> list[str]:
    """Return the fields of the first line, which are the column names unless the line is a row."""
    with opened(path) as file:
        first = file.readline(1 << 20)
    if not first:
        raise InputError(str(path), "the file is empty", "its first line must name the columns")
    try:
        line = first.decode("utf-8-sig")  # Spreadsheets write a byte order mark. Arrow skips it as well.
    except UnicodeDecodeError as error:
        raise _not_utf8(path, 1) from error
    try:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=separator), [])
    except csv.Error as error:
        raise InputError(
            f"{path}:1", f"cannot be split into fields ({error})", "its first line must name the columns"
        ) from error


def read_batches(path: Path, kind: Kind, separator: str, layout: Layout = OURS) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches. Names are dictionary-encoded, numbers are float64."""
    header = read_header(path, separator)
    at = {index: name for name, index in layout.places(kind, header, f"{path}:1").items()}
    types = {
        column: pa.float64() if column in kind.numbers else pa.dictionary(pa.int32(), pa.string())
        for column in kind.columns
    }
    with opened(path) as file:
        counted = _QuoteCounter(file)
        broken_lines = False
        try:
            reader = arrow_csv.open_csv(
                counted,
                read_options=arrow_csv.ReadOptions(
                    block_size=_BLOCK_BYTES,
                    skip_rows=1 if layout.header else 0,
                    column_names=[at.get(index, f"#{index}") for index in range(len(header))],
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=separator, newlines_in_values=True, ignore_empty_lines=False
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(kind.columns),
                    strings_can_be_null=False,
                    quoted_strings_can_be_null=False,
                    null_values=[],
                ),
            )
            for batch in reader:
                broken_lines = broken_lines or _holds_line_ends(batch)
                yield batch
        except pa.ArrowInvalid as error:
            diagnose(path, kind, separator, layout)
            # `diagnose` found nothing, so Arrow's own text is all there is.
            raise InputError(str(path), str(error).splitlines()[0], "repair the file") from error
    # Arrow reads an unclosed quote as one long name. Such a name contains a line end, or the number of quotes is odd.
    if broken_lines or counted.quotes % 2:
        diagnose(path, kind, separator, layout)


class _QuoteCounter(io.RawIOBase):
    """Passes bytes through and counts the double quotes among them."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.quotes = file, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.quotes += data.count(b'"')
        return data


def _holds_line_ends(batch: pa.RecordBatch) -> bool:
    names = [column.dictionary for column in batch.columns if pa.types.is_dictionary(column.type)]
    return any(pc.any(pc.match_substring_regex(column, "[\r\n]")).as_py() for column in names)


def diagnose(path: Path, kind: Kind, separator: str, layout: Layout = OURS) -> None:
    """Read the whole file slowly, and raise InputError for the first wrong line, if there is one."""
    header = read_header(path, separator)
    columns = header if layout.header else [f"field {index + 1}" for index in range(len(header))]
    numbers = {index for name, index in layout.places(kind, header, f"{path}:1").items() if name in kind.numbers}
    for line, row in numbered_rows(path, separator, layout):
        if len(row) != len(columns):
            raise InputError(
                f"{path}:{line}",
                f"{len(row)} fields where {len(columns)} belong" if row else "the line is empty",
                f"give one value for each of {', '.join(columns)}, or remove the line",
            )
        for index, (column, value) in enumerate(zip(columns, row, strict=True)):
            if index in numbers and not _is_number(value):
                raise InputError(f"{path}:{line}", f'{column} "{value}" is not a number', "write a finite number")


def numbered_rows(path: Path, separator: str, layout: Layout = OURS) -> Iterator[tuple[int, list[str]]]:
    """Yield each row, without the header, with the line where it begins. It is slow, and only for error texts."""
    with opened(path) as file:
        reader = csv.reader(_decoded(path, file), delimiter=separator, strict=True)
        begins = 1
        try:
            for row in reader:
                if begins > 1 or not layout.header:
                    yield begins, row
                begins = reader.line_num + 1
        except csv.Error as error:
            raise InputError(
                f"{path}:{begins}",
                f"cannot be split into fields ({error})",
                'close the quote, or write " as ""',
            ) from error


def _decoded(path: Path, file: IO[bytes]) -> Iterator[str]:
    for line, raw in enumerate(file, start=1):
        try:
            yield raw.decode("utf-8-sig" if line == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, line) from error


def _not_utf8(path: Path, line: int) -> InputError:
    return InputError(f"{path}:{line}", "the text is not UTF-8", "convert it, for instance with iconv -t UTF-8")


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def text_of(table: pa.Table, separator: str) -> Iterator[bytes]:
    """Yield the bytes of the whole file: header, then rows. The same table gives the same bytes."""
    yield (separator.join(table.column_names) + "\n").encode()
    for batch in table.to_batches(max_chunksize=1 << 20):
        fields = [_quoted(column, separator) for column in batch.columns]
        fields[-1] = _joined(fields[-1], "\n", by="")
        # The values of an Arrow string array are adjacent in memory. Since every line ends in LF, they are the file.
        values = _joined(*fields, by=separator).buffers()[2]
        yield values.to_pybytes() if values is not None else b""


def _quoted(column: pa.Array, separator: str) -> pa.Array:
    text = pc.fill_null(column.cast(_TEXT), "")
    special = pc.match_substring_regex(text, f'["\r\n{separator}]')
    if not pc.any(special).as_py():
        return text
    doubled = pc.replace_substring(text, '"', '""')
    return pc.if_else(special, _joined('"', doubled, '"', by=""), text)


def _joined(*parts: pa.Array | str, by: str) -> pa.Array:
    typed = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in (*parts, by)]
    return pc.binary_join_element_wise(*typed)


def write_text(table: pa.Table, path: Path, separator: str, *, zipped: bool) -> None:
    """Write the table to `path` directly. The caller passes a temporary path."""
    with path.open("wb") as plain:
        if not zipped:
            plain.writelines(text_of(table, separator))
            return
        # The gzip header has no name and no time, so the same table gives the same bytes.
        with gzip.GzipFile(filename="", fileobj=plain, mode="wb", mtime=0) as file:
            for piece in text_of(table, separator):
                file.write(piece)
