"""`pairs`: any table of users and topics, telemetry or a log of Mosquitto -> interests, filtered by size."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.jobs.run import MAX_BAD_SHARE, OnBadRows, Paths, Report, Run, running
from trellis.pipeline.sources import SOURCES
from trellis.pipeline.stages import interests

FORMATS = ("pairs", "telemetry", "mosquitto")


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
    max_bad_share: float = MAX_BAD_SHARE,
    overwrite: bool = False,
) -> Report:
    """Write the pairs of the table, each once.

    columns, header, separator, comment   how the table is written, see `sources.pairs`
    subscribers_max, topics_max           drop more popular topics, then nodes with more topics: once, at the start
    sample_nodes                          then so many random nodes
    subscribers_min, topics_min           then drop less popular topics and nodes with fewer topics, again and again
                                          until nothing changes: what is left keeps both bounds
    format                                told from the first lines unless given: JSON lines may be telemetry
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
        "max_bad_share": max_bad_share,
    }
    with running(spark, "pairs", output, parameters=parameters, seed=seed, overwrite=overwrite) as (run, reports):
        how: dict[str, Any] = {"columns": columns, "header": header, "separator": separator, "comment": comment}
        name = format or told(run.look(paths).first)
        source, given = run.read(paths, name, FORMATS, **(how if name == "pairs" else {}))
        table = given.distinct() if source.name == "pairs" else interests.final_subscriptions(given)
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


def told(first: list[str]) -> str:
    """Return the format of these lines. Any table may be given, so only what is clearly a log is taken for one."""
    logs = [name for name in FORMATS if name != "pairs" and SOURCES[name].sniff(first) > 0.5]
    return logs[0] if logs else "pairs"


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
