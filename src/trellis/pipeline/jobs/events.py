"""`events`: telemetry or Mosquitto's logs -> one table of events, a folder for each day, to which more is appended.

Logs are parsed once. `pairs`, `rates` and `churn` read the table instead of the logs.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.content import begins_with, identity
from trellis.pipeline.file_systems import File, is_remote
from trellis.pipeline.jobs.run import MAX_BAD_SHARE, OnBadRows, Paths, Report, Run, running

FORMATS = ("events", "mosquitto")


def events(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    format: str | None = None,
    append: bool = False,
    on_bad_rows: OnBadRows = "fail",
    max_bad_share: float = MAX_BAD_SHARE,
    overwrite: bool = False,
) -> Report:
    """Write the events of the logs, by day (UTC).

    append   add to the table of an earlier run. Logs are known by their content: one that is in the table already is
             skipped, whatever its name. One that has grown is refused, because its first part would be there twice
    """
    parameters = {"format": format, "append": append, "on_bad_rows": on_bad_rows, "max_bad_share": max_bad_share}
    with running(
        spark, "events", output, parameters=parameters, overwrite=overwrite, append=append
    ) as (run, reports):  # fmt: skip
        fresh = _fresh(run, paths)
        run.facts |= {"files_skipped": len(run.files(paths)) - len(fresh)}
        run.inputs = {file.path: file for file in fresh}
        run.rows["table"] = 0
        if fresh:
            _, given = run.read([file.path for file in fresh], format, FORMATS)
            day = F.date_format(F.timestamp_seconds("time"), "yyyy-MM-dd")
            run.write(given.withColumn("day", day).repartition("day").sortWithinPartitions("time", "node"), by="day")
    return reports[0]


def _fresh(run: Run, paths: Paths) -> list[File]:
    """The logs whose content is not in the table yet, each content once; InputError for one that has only grown."""
    known = {identity(entry): entry for entry in run.folder.before.get("inputs", [])}
    at = {entry["path"]: entry for entry in known.values()}
    fresh = []
    for file in run.files(paths):
        entry = run.described(file)
        if identity(entry) in known:
            continue
        # The first bytes of a remote file are not compared, since all of it would be read again.
        grown = at.get(file.path) if is_remote(file.path) else begins_with(file.path, known.values())
        if grown is not None:
            raise InputError(
                file.path,
                f"begins with what was appended before ({grown['path']})",
                "append logs when they are complete, or follow them with trellis pipeline watch",
            )
        known[identity(entry)] = entry
        fresh.append(file)
    return fresh
