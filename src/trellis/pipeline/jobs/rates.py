"""`rates`: telemetry of live nodes -> how often each topic is published on."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.jobs.run import MAX_BAD_SHARE, OnBadRows, Paths, Report, running
from trellis.pipeline.sources.mosquitto import sniff_mosquitto
from trellis.pipeline.stages.rates import publication_rates

FORMATS = ("publications", "mosquitto")


def rates(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    format: str | None = None,
    on_bad_rows: OnBadRows = "fail",
    max_bad_share: float = MAX_BAD_SHARE,
    overwrite: bool = False,
) -> Report:
    """Publications a second, over the time from the first interval that was told of to the last."""
    parameters = {"format": format, "on_bad_rows": on_bad_rows, "max_bad_share": max_bad_share}
    with running(spark, "rates", output, parameters=parameters, overwrite=overwrite) as (run, reports):
        _, given = run.read(paths, format or told(run.look(paths).first), FORMATS)
        given = given.where(F.col("count").isNotNull())
        if not run.write(publication_rates(run.keep(given)).orderBy("topic")):
            raise InputError(str(paths), "nothing was published in it", "give a longer log")
    return reports[0]


def told(first: list[str]) -> str:
    """Return the format of these lines: Mosquitto's log, else telemetry, whatever is in it."""
    return "mosquitto" if sniff_mosquitto(first) > 0.3 else "publications"
