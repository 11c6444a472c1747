"""`rates`: telemetry of live nodes -> how often each topic is published on."""

from __future__ import annotations

from pyspark.sql import SparkSession

from trellis.errors import InputError
from trellis.pipeline.jobs.run import OnBadRows, Paths, Report, running
from trellis.pipeline.stages.rates import publication_rates

FORMATS = ("publications",)


def rates(
    spark: SparkSession, paths: Paths, output: str, *, on_bad_rows: OnBadRows = "fail", overwrite: bool = False
) -> Report:
    """Publications a second, over the time from the first interval that was told of to the last."""
    parameters = {"on_bad_rows": on_bad_rows}
    with running(
        spark, "rates", output, parameters=parameters, overwrite=overwrite, on_bad_rows=on_bad_rows
    ) as (run, reports):  # fmt: skip
        _, given = run.read(paths, FORMATS[0], FORMATS)
        if not run.write(publication_rates(run.keep(given)).orderBy("topic")):
            raise InputError(str(paths), "nothing was published in it", "give a longer log")
    return reports[0]
