"""`events`: telemetry or Mosquitto's logs -> one table of events, a folder for each day, to which more is appended.

Logs are parsed once. `pairs`, `rates` and `churn` read the table instead of the logs.
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.file_systems import File
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

    append   add to the table of an earlier run. Logs that are in it already are skipped; a log that has changed since
             is refused, because its first part would be there twice
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
    """The files that are not in the table yet; InputError where one is there with other content."""
    known = {entry["path"]: entry for entry in run.folder.before.get("inputs", [])}
    fresh = []
    for file in run.files(paths):
        old = known.get(file.path)
        if old is None:
            fresh.append(file)
        elif old != run.file_systems.checksum(file):
            raise InputError(
                file.path,
                "has changed since it was appended",
                "append logs when they are complete, or follow them with trellis pipeline watch",
            )
    return fresh
