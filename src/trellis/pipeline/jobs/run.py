"""The steps that all jobs share: check the output, read the input and reject bad rows, write, report."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import trellis
from trellis.errors import InputError
from trellis.pipeline import inputs as reading
from trellis.pipeline import lineage, progress
from trellis.pipeline.beside import now
from trellis.pipeline.content import described
from trellis.pipeline.executors import check_executors
from trellis.pipeline.file_systems import File, FileSystems, for_reader, is_remote, shown_path
from trellis.pipeline.schemas import INTERESTS
from trellis.pipeline.session import is_local
from trellis.pipeline.sinks import Folder, whole_folder
from trellis.pipeline.sources import sniff_format, source_named
from trellis.pipeline.sources.parsing import Source, bad_rows, good_rows
from trellis.pipeline.sources.telemetry import sniff_events
from trellis.pipeline.stages.distributions import distributions

OnBadRows = Literal["fail", "quarantine"]
IntArray = npt.NDArray[np.int64]
Paths = str | Path | Sequence[str | Path]

CHECKPOINTS = "trellis-checkpoints"
REJECTED_FOLDER = "_rejected"
MAX_BAD_SHARE = 0.01  # With quarantine, a job whose bad rows are a larger share of all rows fails nevertheless.
IS_TELEMETRY = (
    "is telemetry: its rows are events of nodes, and not all of them subscriptions",
    "make a table of the subscriptions in force: trellis pipeline pairs FILE --format telemetry -o interests",
)
SMALL_NODES = 200_000  # a table of so many names may be held by every executor (and pass through the driver)


@dataclass(frozen=True)
class Report:
    """The result of a job. Its manifest has the same numbers."""

    job: str
    output: str
    rows: dict[str, int]
    rejected: int
    facts: dict[str, Any]
    duration_s: float


class Look(NamedTuple):
    """The files of an input, their kind, and the first lines of the first file."""

    files: list[File]
    kind: reading.Kind
    first: list[str]


@dataclass
class Run:
    """One running job."""

    spark: SparkSession
    folder: Folder
    on_bad_rows: OnBadRows
    max_bad_share: float = MAX_BAD_SHARE
    first: list[str] = field(default_factory=list)  # lines of the file that was read last
    facts: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, File] = field(default_factory=dict)
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)  # of inputs, for the manifest, where known
    rejected: list[tuple[DataFrame, int]] = field(default_factory=list)
    _looks: dict[str, Look] = field(default_factory=dict)
    _kept: list[DataFrame] = field(default_factory=list)

    @property
    def file_systems(self) -> FileSystems:
        return FileSystems(self.spark)

    def step(self, text: str) -> None:
        progress.step(self.spark, text)

    def files(self, paths: Paths) -> list[File]:
        files = self.file_systems.files([paths] if isinstance(paths, str | Path) else paths)
        self.inputs |= {file.path: file for file in files}
        return files

    def described(self, file: File) -> dict[str, Any]:
        """Return the entry of an input for the manifest, with the identity of its content."""
        if file.path not in self.entries:
            self.entries[file.path] = described(self.file_systems, file)
        return self.entries[file.path]

    def look(self, paths: Paths) -> Look:
        """Return the files behind the paths, their kind and their first lines. They are read only once."""
        key = str(paths)
        if key not in self._looks:
            files = self.files(paths)
            kind = reading.kind_of(self.file_systems, files)
            self._looks[key] = Look(files, kind, reading.first_lines(self.spark, files, kind))
        return self._looks[key]

    def read(
        self,
        paths: Paths,
        format: str | None,
        allowed: Sequence[str],
        *,
        counts: Mapping[str, Column] | None = None,
        **options: object,
    ) -> tuple[Source, DataFrame]:
        """Return the source and the good rows of the files. Bad rows are handled as the user has chosen.

        format   the format; None: it is told from the first lines
        counts   aggregates over the good rows that become facts. They cost no further pass over the files.
        """
        files, kind, first = self.look(paths)
        self.first, where = first, files[0].path
        try:
            source = source_named(format, allowed) if format else sniff_format(first, allowed, where)
            self.facts["format"] = source.name
            self.step(f"reading {source.name}")

            def parse(lines: DataFrame) -> DataFrame:
                return source.parse(lines, first, **options)

            parsed = parse(reading.lines_of(self.spark, files, kind))
        except InputError as error:
            raise error if error.where else InputError(where, error.what, error.remedy) from error
        self._judge(parsed, parse, kind, files, counts or {})
        return source, good_rows(parsed, source.schema)

    def _judge(
        self,
        parsed: DataFrame,
        parse: reading.Parse,
        kind: reading.Kind,
        files: Sequence[File],
        counts: Mapping[str, Column],
    ) -> None:
        """Count good and bad rows. Raise InputError if bad rows are not allowed, or are too many."""
        tally = parsed.agg(
            F.count("*").alias("rows"),
            F.count("reason").alias("wrong"),
            *[count.alias(name) for name, count in counts.items()],
        ).first()
        assert tally is not None  # an aggregate without groups always has its one row
        total, wrong = tally["rows"], tally["wrong"]
        self.facts |= {"rows_read": total - wrong} | {name: tally[name] for name in counts}
        if total == 0:
            raise InputError(files[0].path, "there is no row in it", "check the file")
        if kind == "text" and (cut := reading.unterminated(self.file_systems, files)):
            self.facts["files_without_last_line_end"] = len(cut)
        if not wrong:
            return
        if self.on_bad_rows == "fail" or wrong == total:
            raise reading.refusal(self.spark, parsed, parse, kind, files, wrong, total)
        if wrong > self.max_bad_share * total:
            error = reading.refusal(self.spark, parsed, parse, kind, files, wrong, total)
            more = f"more than --max-bad-share {self.max_bad_share:g}"
            raise InputError(error.where, f"{error.what}, {more}", "correct them, check the format, or allow more")
        bad = bad_rows(parsed)
        self.rejected.append((bad, wrong))
        reasons = {row["reason"]: row["count"] for row in bad.groupBy("reason").count().orderBy("reason").collect()}
        self.facts["rejected_by_reason"] = reasons

    def read_interests(self, paths: Paths) -> DataFrame:
        """INTERESTS in any form of the shared data: a folder of Parquet parts, Parquet, TSV or CSV, plain or gzip."""
        files = self.files(paths)
        where = str(paths)
        parts = [for_reader(file.path) for file in files if file.path.endswith(".parquet")]
        if parts:  # In the same folder is the manifest of the job that wrote them.
            table = self.spark.read.parquet(*parts)
            missing = [name for name in INTERESTS.names if name not in table.columns]
            if missing:
                raise InputError(where, f'there is no column "{missing[0]}"', "interests have columns node, topic")
            if {"time", "event"} <= set(table.columns):
                raise InputError(where, *IS_TELEMETRY)
            table = table.select(F.col("node").cast("string"), F.col("topic").cast("string"))
            empty = table.where(F.col("node").isNull() | F.col("topic").isNull()).count()
            if empty:
                raise InputError(where, f"{empty:,} rows have no node or no topic", "remove or correct them")
            return table
        if sniff_events(self.look(paths).first) > 0:
            raise InputError(where, *IS_TELEMETRY)
        before = dict(self.facts)
        table = self.read(paths, "pairs", ("pairs",), columns=("node", "topic"))[1]
        self.facts |= before  # The facts are about the input that was read first.
        return table

    def keep(self, table: DataFrame) -> DataFrame:
        """Return the table so that it is computed once. It is kept on disks, since a graph may not fit into memory."""
        kept = table.persist(pyspark.StorageLevel.DISK_ONLY)
        self._kept.append(kept)
        return kept

    def settle(self, table: DataFrame) -> tuple[DataFrame, int]:
        """Compute a small table now. Return it without the plan that made it, and its number of rows.

        Loops need this: else every round would carry the plans of all earlier rounds. On a cluster it is a reliable
        checkpoint, which survives the loss of an executor. Its folder is spark.checkpoint.dir, or beside the output.
        """
        reliable = self._checkpoints_are_reliable()
        settled = table.checkpoint() if reliable else table.localCheckpoint()
        return settled, settled.count()

    def _checkpoints_are_reliable(self) -> bool:
        context = self.spark.sparkContext
        current = context.getCheckpointDir()
        if current is not None and CHECKPOINTS not in current:
            return True  # the user's own
        if is_local(context.master):
            return False
        own = f"{self.folder.scratch}/{CHECKPOINTS}"
        if current is None or own not in current:
            context.setCheckpointDir(own)
        return True

    def write(self, table: DataFrame, name: str = "", *, by: str | None = None) -> int:
        self.step(f"writing {name or 'the table'}")
        self.rows[name or "table"] = self.folder.write(table, name, by=by)
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
    append: bool = False,
    kernels: bool = False,
) -> Iterator[tuple[Run, list[Report]]]:
    """Give a run, and a list that holds its report after the block, when the output is complete.

    parameters   for the manifest. on_bad_rows and max_bad_share also say how bad rows are handled.
    append       add to the result of an earlier run of this job, if there is one
    kernels      Python runs in executors, so they are checked first
    """
    on_bad_rows: Any = parameters.get("on_bad_rows", "fail")
    max_bad_share: Any = parameters.get("max_bad_share", MAX_BAD_SHARE)
    if on_bad_rows not in ("fail", "quarantine"):
        raise InputError("", f'on-bad-rows "{on_bad_rows}"', "choose fail or quarantine")
    if not 0 <= max_bad_share <= 1:
        raise InputError("", f"max-bad-share {max_bad_share:g}", "give a share from 0 to 1, such as 0.01")
    began, started, reports = time.monotonic(), now(), list[Report]()
    target = str(output) if is_remote(str(output)) else str(Path(output).absolute())
    with whole_folder(spark, target, overwrite=overwrite, append=job if append else None) as folder:
        run = Run(spark, folder, on_bad_rows, max_bad_share)
        try:
            if kernels and not is_local(spark.sparkContext.master):
                run.step("asking the executors")
                run.facts["executors"] = check_executors(spark)
            yield run, reports
            rejected = _write_rejected(run)
            run.step("checksums")
            inputs = [run.entries.get(path) or run.file_systems.checksum(file) for path, file in run.inputs.items()]
            parents = lineage.parents_of(run.file_systems, run.inputs)
        except (PySparkException, Py4JJavaError) as error:
            raise _unreadable(error) or error from error
        finally:
            run.close()
        report = Report(job, target, run.rows, rejected, run.facts, round(time.monotonic() - began, 3))
        folder.manifest = {
            "job": job,
            "inputs": inputs,
            "parents": parents,
            "started": started,
            "ended": now(),
            "application": spark.sparkContext.applicationId,
            "settings": lineage.settings_of(spark.sparkContext.getConf().getAll()),
            "parameters": dict(parameters),
            "seed": seed,
            "rows": report.rows,
            "rejected": report.rejected,
            "facts": report.facts,
            "versions": versions_of(spark),
            "duration_s": report.duration_s,
        }
        if folder.before:
            folder.manifest |= lineage.appended(folder.before, folder.before_sha256, folder.manifest, inputs)
    reports.append(report)


def collected(table: DataFrame, *columns: str) -> dict[str, tuple[IntArray, IntArray]]:
    """Return the distribution (value, count) of each integer column, values ascending. They fit on the driver."""
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


def _unreadable(error: PySparkException | Py4JJavaError) -> InputError | None:
    """Return an InputError for a damaged input, such as a gzip file that was cut off; None for any other error."""
    said = str(error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error)
    if not re.search(r"\[(FAILED_READ_FILE|CANNOT_READ_FILE|UNABLE_TO_INFER_SCHEMA)", said):
        return None
    named = re.search(r"file:/\S+?(?=\.?\s)", said)
    where = shown_path(named.group()) if named else ""
    return InputError(where, "the file is damaged or not of its kind", "fetch or write it again")


def versions_of(spark: SparkSession) -> dict[str, str]:
    jvm: Any = spark._jvm
    return {
        "trellis": trellis.__version__,
        "spark": spark.version,
        "java": jvm.System.getProperty("java.version"),
        "python": platform.python_version(),
    }
