"""What every job does around its stages: check the output's place, read with bad rows set apart, write, report."""

from __future__ import annotations

import platform
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import trellis
from trellis.errors import InputError
from trellis.pipeline import progress
from trellis.pipeline.places import File, Places, for_reader, is_remote
from trellis.pipeline.schemas import INTERESTS
from trellis.pipeline.sinks import Folder, whole_folder
from trellis.pipeline.sources import pairs as pairs_source
from trellis.pipeline.sources import sniff_format, source_named
from trellis.pipeline.sources.parsing import Source, bad_rows, good_rows
from trellis.pipeline.stages.distributions import distributions

OnBadRows = Literal["fail", "quarantine"]
IntArray = npt.NDArray[np.int64]
Paths = str | Path | Sequence[str | Path]

REJECTED_FOLDER = "_rejected"
FIRST_LINES = 200  # read for sniffing: separators, headers, numbers of columns
SMALL_NODES = 200_000  # a table of so many names may be held by every executor (and pass through the driver)


@dataclass(frozen=True)
class Report:
    """What a job did; the same is in its manifest."""

    job: str
    output: str
    rows: dict[str, int]
    rejected: int
    facts: dict[str, Any]
    duration_s: float


@dataclass
class Run:
    """One job under way."""

    spark: SparkSession
    folder: Folder
    on_bad_rows: OnBadRows
    facts: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, File] = field(default_factory=dict)
    rejected: list[tuple[DataFrame, int]] = field(default_factory=list)
    _kept: list[DataFrame] = field(default_factory=list)

    @property
    def places(self) -> Places:
        return Places(self.spark)

    def step(self, text: str) -> None:
        progress.step(self.spark, text)

    def files(self, paths: Paths) -> list[File]:
        found = self.places.files([paths] if isinstance(paths, str | Path) else paths)
        self.inputs |= {file.path: file for file in found}
        return found

    def read(
        self,
        paths: Paths,
        format: str | None,
        allowed: Sequence[str],
        *,
        counts: Mapping[str, Column] | None = None,
        **options: object,
    ) -> tuple[Source, DataFrame]:
        """The rows of the files in a format (sniffed where None), bad rows dealt with as the user asked.

        counts   aggregates over the good rows that become facts: they cost no further pass over the files
        """
        files = self.files(paths)
        first = self.first_lines(files)
        where = files[0].path
        source = source_named(format, allowed) if format else sniff_format(first, allowed, where)
        self.facts["format"] = source.name
        self.step(f"reading {source.name}")
        try:
            parsed = source.parse(self.lines(files), first, **options)
        except InputError as error:
            raise error if error.where else InputError(where, error.what, error.remedy) from error
        self._judge(parsed, where, counts or {})
        return source, good_rows(parsed, source.schema)

    def lines(self, files: Sequence[File]) -> DataFrame:
        """LINES, as they stand: Spark does not touch their bytes."""
        text = self.spark.read.text([for_reader(file.path) for file in files])
        return text.select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("line"))

    def first_lines(self, files: Sequence[File]) -> list[str]:
        head = self.spark.read.text(for_reader(files[0].path)).select(F.make_valid_utf8("value")).head(FIRST_LINES)
        return [row[0] for row in head]

    def _judge(self, parsed: DataFrame, where: str, counts: Mapping[str, Column]) -> None:
        bad = bad_rows(parsed)
        tally = parsed.agg(
            F.count("*").alias("rows"),
            F.count("reason").alias("wrong"),
            *[count.alias(name) for name, count in counts.items()],
        ).first()
        assert tally is not None  # an aggregate without groups always has its one row
        total, wrong = tally["rows"], tally["wrong"]
        self.facts |= {"rows_read": total - wrong} | {name: tally[name] for name in counts}
        if total == 0:
            raise InputError(where, "there is no row in it", "check the file")
        if not wrong:
            return
        if self.on_bad_rows == "quarantine" and wrong < total:
            self.rejected.append((bad, wrong))
            return
        raise _refusal(bad, wrong, total)

    def read_interests(self, paths: Paths) -> DataFrame:
        """INTERESTS in any form of the shared data: a folder of Parquet parts, Parquet, TSV or CSV, plain or gzip."""
        files = self.files(paths)
        where = str(paths)
        parts = [for_reader(file.path) for file in files if file.path.endswith(".parquet")]
        if parts:  # beside them lies the manifest of the job that wrote them
            table = self.spark.read.parquet(*parts)
            missing = [name for name in INTERESTS.names if name not in table.columns]
            if missing:
                raise InputError(where, f'there is no column "{missing[0]}"', "interests have columns node, topic")
            table = table.select(F.col("node").cast("string"), F.col("topic").cast("string"))
            empty = table.where(F.col("node").isNull() | F.col("topic").isNull()).count()
            if empty:
                raise InputError(where, f"{empty:,} rows have no node or no topic", "remove or mend them")
            return table
        parsed = pairs_source.parse_pairs(self.lines(files), self.first_lines(files), columns=("node", "topic"))
        self._judge(parsed, files[0].path, {})
        return good_rows(parsed, INTERESTS)

    def keep(self, table: DataFrame) -> DataFrame:
        """The table, computed once: on the executors' disks, since a graph may be larger than their memory."""
        kept = table.persist(pyspark.StorageLevel.DISK_ONLY)
        self._kept.append(kept)
        return kept

    def settle(self, table: DataFrame) -> tuple[DataFrame, int]:
        """A small table computed now, cut off from how it came about; and its number of rows.

        Loops need this: without it every round would carry the plans of all rounds before. A reliable checkpoint
        where the session has a place for it, else one on the executors.
        """
        reliable = self.spark.sparkContext._jsc.sc().getCheckpointDir().isDefined()
        settled = table.checkpoint() if reliable else table.localCheckpoint()
        return settled, settled.count()

    def write(self, table: DataFrame, name: str = "") -> int:
        self.step(f"writing {name or 'the table'}")
        self.rows[name or "table"] = self.folder.write(table, name)
        return self.rows[name or "table"]

    def close(self) -> None:
        for table in self._kept:
            table.unpersist()


@contextmanager
def running(
    spark: SparkSession,
    job: str,
    output: str | Path,
    *,
    parameters: Mapping[str, object],
    seed: int | str | None = None,
    overwrite: bool = False,
    on_bad_rows: OnBadRows = "fail",
) -> Iterator[tuple[Run, list[Report]]]:
    """Gives a run, and a list that holds its report once the block is left and the output is in place."""
    if on_bad_rows not in ("fail", "quarantine"):
        raise InputError("", f'on-bad-rows "{on_bad_rows}"', "choose fail or quarantine")
    began, reports = time.monotonic(), list[Report]()
    target = str(output) if is_remote(str(output)) else str(Path(output).absolute())
    with whole_folder(spark, target, overwrite=overwrite) as folder:
        run = Run(spark, folder, on_bad_rows)
        try:
            yield run, reports
            rejected = _write_rejected(run)
            run.step("checksums")
            inputs = [run.places.checksum(file) for file in run.inputs.values()]
        except (PySparkException, Py4JJavaError) as error:
            raise _unreadable(error) or error from error
        finally:
            run.close()
        report = Report(job, target, run.rows, rejected, run.facts, round(time.monotonic() - began, 3))
        folder.manifest = {
            "job": job,
            "inputs": inputs,
            "parameters": dict(parameters),
            "seed": seed,
            "rows": report.rows,
            "rejected": report.rejected,
            "facts": report.facts,
            "versions": _versions(spark),
            "duration_s": report.duration_s,
        }
    reports.append(report)


def collected(table: DataFrame, *columns: str) -> dict[str, tuple[IntArray, IntArray]]:
    """The distribution (value, count) of each integer column, values ascending, on the driver: they are small."""
    rows = distributions(table, *columns).orderBy("quantity", "value").collect()
    return {
        name: (
            np.array([row["value"] for row in rows if row["quantity"] == name], np.int64),
            np.array([row["count"] for row in rows if row["quantity"] == name], np.int64),
        )
        for name in columns
    }


def _write_rejected(run: Run) -> int:
    if not run.rejected:
        return 0
    run.step("writing rejected rows")
    tables = [table for table, _ in run.rejected]
    all_rows = tables[0]
    for table in tables[1:]:
        all_rows = all_rows.union(table)
    return run.folder.write(all_rows.orderBy("file", "reason", "line"), REJECTED_FOLDER)


def _refusal(bad: DataFrame, wrong: int, total: int) -> InputError:
    files = bad.groupBy("file").count().orderBy(F.desc("count"), "file").limit(1).collect()
    examples = bad.orderBy("reason", "line").limit(3).collect()
    shown = ", ".join(f'"{_short(row.line)}" ({row.reason})' for row in examples)
    return InputError(
        shown_path(files[0].file),
        f"{wrong:,} of {total:,} rows do not parse: {shown}",
        "mend them, check the format, or pass --on-bad-rows quarantine",
    )


def _short(line: str) -> str:
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line)
    return text if len(text) <= 60 else text[:59] + "…"


def shown_path(uri: str) -> str:
    """file:/a%20b and file:///a%20b as a user writes it: /a b."""
    return urllib.parse.unquote(re.sub(r"^file:(//)?", "", uri)) if uri.startswith("file:") else uri


def _unreadable(error: PySparkException | Py4JJavaError) -> InputError | None:
    """A damaged input (cut-off gzip, a Parquet file that is none) is the user's to mend; all else is a bug of ours."""
    said = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    if not re.search(r"\[(FAILED_READ_FILE|CANNOT_READ_FILE|UNABLE_TO_INFER_SCHEMA)", said):
        return None
    named = re.search(r"file:/\S+?(?=\.?\s)", said)
    where = shown_path(named.group()) if named else ""
    return InputError(where, "the file is damaged or not of its kind", "fetch or write it again")


def _versions(spark: SparkSession) -> dict[str, str]:
    jvm: Any = spark._jvm
    return {
        "trellis": trellis.__version__,
        "spark": spark.version,
        "java": jvm.System.getProperty("java.version"),
        "python": platform.python_version(),
    }
