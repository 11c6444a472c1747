"""`churn`: machine events, availability sessions or telemetry -> a churn trace.  [OMen 6.1; Vitis IV-F]

Random machines are mapped onto the nodes of given interests, each onto one of its own; a node comes and goes as its
machine does, and keeps its interests. Telemetry is a trace already, and is only put in order.
"""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.jobs.run import MAX_BAD_SHARE, OnBadRows, Paths, Report, Run, running
from trellis.pipeline.schemas import CHURN, MACHINE_EVENTS, SESSIONS
from trellis.pipeline.stages import churn as stages

FORMATS = ("google2011", "google2019", "avt", "fta", "sessions", "telemetry", "mosquitto")
SampleFrom = Literal["start", "all"]


def churn(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    map_to: Paths | None = None,
    format: str | None = None,
    machines: int | None = None,
    sample_from: SampleFrom | None = None,
    seed: int | str = 0,
    on_bad_rows: OnBadRows = "fail",
    max_bad_share: float = MAX_BAD_SHARE,
    overwrite: bool = False,
) -> Report:
    """Write a churn trace in time order; times are seconds since the trace began.

    map_to       the interests whose nodes come and go; not for telemetry, which names its own
    machines     how many to map, by default one for each node; nodes without a machine stay all the time
    sample_from  `start`: machines there when the trace began, as OMen has it [E-10], the default for Google's traces;
                 `all`: any machine, the default for sessions, where few are there at the start
    """
    parameters = {
        "format": format,
        "map_to": None if map_to is None else str(map_to),
        "machines": machines,
        "sample_from": sample_from,
        "on_bad_rows": on_bad_rows,
        "max_bad_share": max_bad_share,
    }
    if sample_from not in (None, "start", "all"):
        raise InputError("", f'sample-from "{sample_from}" is unknown', "choose start or all")
    with running(spark, "churn", output, parameters=parameters, seed=seed, overwrite=overwrite) as (run, reports):
        source, given = run.read(paths, format, FORMATS)
        if source.name in ("telemetry", "mosquitto"):
            given = given.where(F.col("event") != "publish").select(*CHURN.names)
            trace = run.keep(stages.trace_of_telemetry(given))
        else:
            if map_to is None:
                raise InputError("", "a trace of machines needs nodes to stand for", "name interests with --map-to")
            given = run.keep(given)
            if source.schema == MACHINE_EVENTS:
                changes = _changes_of_events(run, given)
            else:
                changes = _changes_of_sessions(run, given)
            interests = run.read_interests(map_to)
            trace = run.keep(_mapped(run, changes, interests, machines, _choice(source.schema, sample_from), seed))
        counts = trace.groupBy("event").count().collect()
        run.facts |= {"events": {row["event"]: row["count"] for row in counts}}
        run.write(stages.in_time_order(trace))
    return reports[0]


def _choice(schema: object, sample_from: SampleFrom | None) -> SampleFrom:
    return sample_from or ("start" if schema == MACHINE_EVENTS else "all")


def _changes_of_events(run: Run, events: DataFrame) -> DataFrame:
    run.step("machine events")
    facts = events.agg(
        F.countDistinct("machine").alias("machines"),
        F.count_if(F.col("event") == "add").alias("add"),
        F.count_if(F.col("event") == "remove").alias("remove"),
        F.count_if(F.col("event") == "update").alias("update"),
        F.min("time").alias("began"),
        F.max("time").alias("ended"),
    ).head()
    run.facts |= facts.asDict() if facts else {}
    raw = stages.changes_of_events(events, began=run.facts["began"])
    return _alternating(run, raw)


def _changes_of_sessions(run: Run, observed: DataFrame) -> DataFrame:
    run.step("availability sessions")
    # The trace begins and ends with what was observed, sessions or not.
    facts = observed.agg(
        F.countDistinct("machine").alias("machines"),
        F.count_if("up").alias("sessions"),
        F.min("start").alias("began"),
        F.max("end").alias("ended"),
    ).head()
    run.facts |= facts.asDict() if facts else {}
    began, ended = run.facts["began"], run.facts["ended"]
    sessions = observed.where("up").select(*SESSIONS.names)
    merged = run.keep(stages.merged_sessions(sessions))
    run.facts |= {
        "sessions_merged": run.facts["sessions"] - merged.count(),
        "sessions_open_at_end": merged.where(F.col("end") >= ended).count(),
    }
    return _alternating(run, stages.changes_of_sessions(merged, began=began, ended=ended))


def _alternating(run: Run, raw: DataFrame) -> DataFrame:
    changes = run.keep(stages.alternating(raw))
    run.facts["changes_without_effect"] = raw.count() - changes.count()
    return changes


def _mapped(
    run: Run, changes: DataFrame, interests: DataFrame, machines: int | None, sample_from: SampleFrom, seed: int | str
) -> DataFrame:
    run.step("mapping machines onto nodes")
    first = run.keep(stages.first_changes(changes))
    population = first.where(F.col("present")) if sample_from == "start" else first
    nodes = run.keep(interests.select("node").distinct())
    available, node_count = population.count(), nodes.count()
    wanted = node_count if machines is None else machines
    run.facts |= {"machines_to_draw_from": available, "nodes": node_count, "machines_mapped": wanted}
    if wanted < 1 or wanted > node_count:
        raise InputError("", f"{wanted:,} machines for {node_count:,} nodes", f"ask for 1 to {node_count}")
    if wanted > available:
        raise InputError(
            "",
            f"{wanted:,} nodes, but the trace has only {available:,} machines to draw from",
            f"take smaller interests, or map only some nodes with --machines {available}",
        )
    mapping = run.keep(stages.mapped_at_random(population, nodes, count=wanted, seed=seed))
    present = first.where(F.col("present")).join(mapping, "machine").count()
    run.facts["nodes_present_at_start"] = node_count - wanted + present
    return stages.churn_trace(changes, mapping)
