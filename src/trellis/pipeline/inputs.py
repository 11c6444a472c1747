"""Input files as lines, and the line numbers of bad rows.

Text files give their lines unchanged. The rows of Parquet and ORC tables become JSON lines, so every source that reads
JSON lines reads tables as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.file_systems import File, FileSystems, for_reader, shown_path
from trellis.pipeline.sources.parsing import bad_rows

Kind = Literal["text", "parquet", "orc"]
Parse = Callable[[DataFrame], DataFrame]

FIRST_LINES = 200  # read for sniffing: separators, headers, numbers of columns
NUMBERED_BYTES_MAX = 1 << 30  # One task reads a file to number its lines. In a larger file, bad rows have no number.
EXAMPLES = 3
_MAGIC: dict[bytes, Kind] = {b"PAR1": "parquet", b"ORC": "orc"}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")


def kind_of(file_systems: FileSystems, files: Sequence[File]) -> Kind:
    """Return the kind of the files, by the endings of their names, else by the first bytes of the first one."""
    endings = {next((kind for kind in ("parquet", "orc") if file.path.endswith(f".{kind}")), "text") for file in files}
    if len(endings) > 1:
        raise InputError(files[0].path, f"is read together with {' and '.join(sorted(endings))} files", "give one kind")
    kind: Kind = endings.pop()  # type: ignore[assignment]
    if kind == "text":
        head = file_systems.first_bytes(files[0].path, 4)
        kind = next((named for magic, named in _MAGIC.items() if head.startswith(magic)), "text")
    return kind


def lines_of(spark: SparkSession, files: Sequence[File], kind: Kind, *, numbered: bool = False) -> DataFrame:
    """LINES of the files. `numbered` (one file, `in_one_partition`): the column file is `PATH:NUMBER`."""
    reader = spark.read.option("recursiveFileLookup", "true").format(kind)
    table = reader.load([for_reader(file.path) for file in files])
    file = F.col("_metadata.file_path")
    if numbered:
        # Numbers rows within a partition, so this is the number of the line where the file is one partition.
        file = F.concat(file, F.lit(":"), F.monotonically_increasing_id() + 1)
    return table.select(file.alias("file"), _line(table, kind).alias("line"))


def first_lines(spark: SparkSession, files: Sequence[File], kind: Kind) -> list[str]:
    """Return the first lines of the first file."""
    lines = lines_of(spark, files[:1], kind)
    return [row[0] for row in lines.select(F.make_valid_utf8("line")).head(FIRST_LINES)]


def unterminated(file_systems: FileSystems, files: Sequence[File]) -> list[str]:
    """Return the text files whose last line has no end. It may have been cut off within a name or a number."""
    plain = [file for file in files if file.bytes and not file.path.endswith(_COMPRESSED)]
    return [file.path for file in plain if file_systems.last_byte(file) not in b"\r\n"]


def refusal(
    spark: SparkSession, parsed: DataFrame, again: Parse, kind: Kind, files: Sequence[File], wrong: int, total: int
) -> InputError:
    """Return the error that says how many rows are bad, why, and on which lines of the worst file.

    again   parses the lines of one file once more, to learn the numbers of the lines
    """
    bad = bad_rows(parsed)
    reasons = bad.groupBy("reason").count().orderBy(F.desc("count"), "reason").limit(EXAMPLES).collect()
    worst = bad.groupBy("file").count().orderBy(F.desc("count"), "file").limit(1).collect()[0]["file"]
    examples = bad.where(F.col("file") == worst)
    where = shown_path(worst)
    file = next((file for file in files if file.path == where), None)
    numbered = file is not None and file.bytes <= NUMBERED_BYTES_MAX
    if numbered and file is not None:
        examples = bad_rows(again(lines_of(spark, [file], kind, numbered=True)))
    number = F.substring_index("file", ":", -1).try_cast("long")
    with in_one_partition(spark):
        rows = examples.select("file", "line", "reason", number.alias("number")).orderBy("number", "line").limit(3)
        shown = rows.collect()
    if numbered and shown:
        where = f"{where}:{shown[0]['number']}"
    said = ", ".join(f'{_line_number(row["number"] if numbered else None)}"{_short(row["line"])}"' for row in shown)
    by_reason = ", ".join(f"{row['count']:,} {row['reason']}" for row in reasons)
    return InputError(
        where,
        f"{wrong:,} of {total:,} rows do not parse ({by_reason}): {said}",
        "correct them, check the format, or pass --on-bad-rows quarantine",
    )


@contextmanager
def in_one_partition(spark: SparkSession) -> Iterator[None]:
    """Let Spark read each file whole, by one task."""
    settings = {"spark.sql.files.maxPartitionBytes": str(1 << 62), "spark.sql.files.minPartitionNum": "1"}
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def _line(table: DataFrame, kind: Kind) -> Column:
    if kind == "text":
        return F.col("value")
    columns = [F.col(f"`{name.replace('`', '``')}`") for name in table.columns]
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})


def _line_number(number: int | None) -> str:
    return "" if number is None else f"line {number} "


def _short(line: str) -> str:
    """Return the line as it can be printed: tabs as \\t, other control characters as a mark."""
    text = line.replace("\t", "\\t")
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return text if len(text) <= 60 else text[:59] + "…"
