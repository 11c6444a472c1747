"""`pairs`: any table of users and topics, or our own telemetry -> interests, with filters by popularity and size."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.jobs.run import OnBadRows, Paths, Report, Run, running
from trellis.pipeline.stages import interests

FORMATS = ("pairs", "telemetry")


def pairs(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    format: str | None = None,
    columns: tuple[str, str] | tuple[int, int] | None = None,
    header: bool | None = None,
    separator: str | None = None,
    comment: str | None = None,
    subscribers_min: int = 1,
    subscribers_max: int | None = None,
    topics_min: int = 1,
    topics_max: int | None = None,
    sample_nodes: int | None = None,
    seed: int | str = 0,
    on_bad_rows: OnBadRows = "fail",
    overwrite: bool = False,
) -> Report:
    """Writes the pairs of the table, each once.

    columns, header, separator, comment   how the table is written, see `sources.pairs`
    subscribers_max, topics_max           drop more popular topics, then nodes with more topics: once, at the start
    sample_nodes                          then so many random nodes
    subscribers_min, topics_min           then drop less popular topics and nodes with fewer topics, again and again
                                          until nothing changes: what is left keeps both bounds
    telemetry                             the subscriptions in force when the log ends
    """
    if min(subscribers_min, topics_min) < 1 or (sample_nodes is not None and sample_nodes < 1):
        raise InputError("", "a bound below 1", "give bounds of 1 or more")
    parameters = {
        "format": format,
        "columns": columns,
        "header": header,
        "separator": separator,
        "comment": comment,
        "subscribers_min": subscribers_min,
        "subscribers_max": subscribers_max,
        "topics_min": topics_min,
        "topics_max": topics_max,
        "sample_nodes": sample_nodes,
        "on_bad_rows": on_bad_rows,
    }
    with running(
        spark, "pairs", output, parameters=parameters, seed=seed, overwrite=overwrite, on_bad_rows=on_bad_rows
    ) as (run, reports):
        how: dict[str, Any] = {"columns": columns, "header": header, "separator": separator, "comment": comment}
        is_telemetry = format == "telemetry"
        source, given = run.read(paths, format or "pairs", FORMATS, **({} if is_telemetry else how))
        table = interests.final_subscriptions(given) if source.name == "telemetry" else given.distinct()
        table = run.keep(table)
        run.facts |= _sizes(table, "")
        table = interests.within_sizes(table, "topic", at_most=subscribers_max) if subscribers_max else table
        table = interests.within_sizes(table, "node", at_most=topics_max) if topics_max else table
        if sample_nodes is not None:
            table = interests.with_random_nodes(table, nodes=sample_nodes, seed=seed)
        if subscribers_min > 1 or topics_min > 1:
            table = _until_stable(run, table, subscribers_min, topics_min)
        if not run.write(table.orderBy("node", "topic")):
            raise InputError("", "no subscription is left after the filters", "loosen them")
        run.facts |= _sizes(table, "kept_")
    return reports[0]


def _until_stable(run: Run, table: DataFrame, subscribers_min: int, topics_min: int) -> DataFrame:
    before, rounds = -1, 0
    table, size = run.settle(table)
    while size != before:
        before, rounds = size, rounds + 1
        run.step(f"filtering, round {rounds}: {size:,} subscriptions")
        popular = interests.within_sizes(table, "topic", at_least=subscribers_min)
        table, size = run.settle(interests.within_sizes(popular, "node", at_least=topics_min))
    run.facts["filter_rounds"] = rounds
    return table


def _sizes(table: DataFrame, prefix: str) -> dict[str, object]:
    counts = table.agg(F.count("*"), F.countDistinct("node"), F.countDistinct("topic")).head()
    return dict(zip((f"{prefix}subscriptions", f"{prefix}nodes", f"{prefix}topics"), counts or (), strict=True))
