"""Churn traces from the events of machines and nodes.  [OMen 6.1; Vitis IV-F; E-9, E-10]

Between the two there is a table of changes: machine, time (seconds since the trace began), up (it came, or it went).

I1  the changes of one machine alternate.
I2  a machine that is up when the trace begins has no change for that. One that is still up at the end has none either.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from trellis.pipeline.chance import order

_RANK = {"leave": 0, "crash": 0, "join": 1, "unsubscribe": 2, "subscribe": 3}


def changes_of_events(events: DataFrame, *, began: float) -> DataFrame:
    """MACHINE_EVENTS -> machine, time, up: ADD and REMOVE; UPDATE says nothing about presence."""
    return events.where(F.col("event").isin("add", "remove")).select(
        "machine", (F.col("time") - F.lit(began)).alias("time"), (F.col("event") == "add").alias("up")
    )


def changes_of_sessions(sessions: DataFrame, *, began: float, ended: float) -> DataFrame:
    """SESSIONS -> machine, time, up. A session that lasts until the trace ends has no end, since none was observed."""
    bounds = F.array(
        F.struct(F.col("start").alias("time"), F.lit(True).alias("up")),
        F.struct(F.col("end").alias("time"), F.lit(False).alias("up")),
    )
    ends = sessions.select("machine", F.explode(bounds).alias("bound")).select("machine", "bound.*")
    return ends.where(F.col("up") | (F.col("time") < F.lit(ended))).select(
        "machine", (F.col("time") - F.lit(began)).alias("time"), "up"
    )


def merged_sessions(sessions: DataFrame) -> DataFrame:
    """SESSIONS -> SESSIONS: those of one machine that touch or overlap become one."""
    before = Window.partitionBy("machine").orderBy("start", "end").rowsBetween(Window.unboundedPreceding, -1)
    running = Window.partitionBy("machine").orderBy("start", "end").rowsBetween(Window.unboundedPreceding, 0)
    apart = F.col("start") > F.coalesce(F.max("end").over(before), F.lit(float("-inf")))
    return (
        sessions.withColumn("apart", apart.cast("int"))
        .withColumn("group", F.sum("apart").over(running))
        .groupBy("machine", "group")
        .agg(F.min("start").alias("start"), F.max("end").alias("end"))
        .select("machine", "start", "end")
    )


def alternating(changes: DataFrame) -> DataFrame:
    """changes -> changes that alternate (I1). A machine that is present cannot come, and an absent one cannot go.

    At one time a machine goes before it comes: if it did both within one tick of the clock, it was restarted.
    """
    by_time = Window.partitionBy("machine").orderBy("time", "up")
    before = F.lag("up").over(by_time)
    return (
        changes.withColumn("before", before)
        .where(F.col("before").isNull() | (F.col("before") != F.col("up")))
        .select("machine", "time", "up")
    )


def first_changes(changes: DataFrame) -> DataFrame:
    """changes -> machine, present: whether the machine was up when the trace began.

    It was, if its first change is to go, or to come at the very beginning.
    """
    first = changes.groupBy("machine").agg(F.min(F.struct("time", "up")).alias("first"))
    return first.select("machine", (~F.col("first.up") | (F.col("first.time") <= 0)).alias("present"))


def mapped_at_random(machines: DataFrame, nodes: DataFrame, *, count: int, seed: int | str) -> DataFrame:
    """machine.., NODES -> MAPPING: `count` random machines, each onto a random node of its own."""
    # A rank over everything needs one task; it holds a name and a key per row, and spills.
    by_machine = Window.orderBy(*order(seed, "machines", "machine"))
    by_node = Window.orderBy(*order(seed, "nodes", "node"))
    ranked = machines.select("machine", F.row_number().over(by_machine).alias("rank"))
    places = nodes.select("node", F.row_number().over(by_node).alias("rank"))
    return ranked.where(F.col("rank") <= count).join(places, "rank").select("machine", "node")


def churn_trace(changes: DataFrame, mapping: DataFrame) -> DataFrame:
    """changes (I1), MAPPING -> CHURN in time order. Coming at the beginning is no event (I2)."""
    events = changes.join(mapping, "machine").where(~(F.col("up") & (F.col("time") <= 0)))
    kind = F.when(F.col("up"), F.lit("join")).otherwise(F.lit("leave"))
    return in_time_order(events.select("time", "node", kind.alias("event"), F.lit(None).cast("string").alias("topic")))


def in_time_order(events: DataFrame) -> DataFrame:
    """CHURN -> CHURN by time; at one time node by node: going, coming, then subscriptions behind their join."""
    return events.select("time", "node", "event", "topic").orderBy("time", "node", _rank(F.col("event")), "topic")


def trace_of_telemetry(events: DataFrame) -> DataFrame:
    """CHURN as live nodes tell it -> CHURN that can be replayed.

    A node of the model has interests. So an incarnation begins with its first subscription, not with its start: the
    join has that time, and the subscriptions of that time are its interests. Repeated subscriptions are dropped, and so
    are unsubscriptions from topics without a subscription. A node that starts again without having left has crashed.
    """
    numbered = _with_incarnation(events)
    changes = _effective_changes(numbered.where(~F.col("boundary")))
    began = changes.groupBy("node", "incarnation").agg(F.min("time").alias("time"))
    joins = began.select("time", "node", F.lit("join").alias("event"), F.lit(None).cast("string").alias("topic"))
    # The event that begins incarnation k + 1 ends incarnation k.
    ends = numbered.where(F.col("boundary")).select(
        "node",
        (F.col("incarnation") - 1).alias("incarnation"),
        "time",
        F.when(F.col("event") == "join", F.lit("crash")).otherwise(F.col("event")).alias("event"),
    )
    departures = ends.join(began.select("node", "incarnation"), ["node", "incarnation"], "left_semi").select(
        "time", "node", "event", F.lit(None).cast("string").alias("topic")
    )
    return in_time_order(joins.union(departures).union(changes.select("time", "node", "event", "topic")))


def _with_incarnation(events: DataFrame) -> DataFrame:
    by_time = (
        Window.partitionBy("node")
        .orderBy("time", _rank(F.col("event")), "topic")
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    boundary = F.col("event").isin("join", "leave", "crash")
    return events.withColumn("boundary", boundary).withColumn(
        "incarnation", F.sum(F.col("boundary").cast("int")).over(by_time)
    )


def _effective_changes(changes: DataFrame) -> DataFrame:
    by_time = Window.partitionBy("node", "incarnation", "topic").orderBy("time", _rank(F.col("event")))
    before = F.coalesce(F.lag("event").over(by_time), F.lit("unsubscribe"))
    return changes.withColumn("before", before).where(F.col("before") != F.col("event"))


def _rank(event: Column) -> Column:
    pairs = [F.lit(part) for pair in _RANK.items() for part in pair]
    return F.create_map(*pairs)[event]
