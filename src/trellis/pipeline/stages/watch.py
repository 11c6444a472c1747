"""The state of a log from which its interests and rates can be made without reading it again.

Three tables. For each node its latest join or departure; for each node and topic the latest change; for each topic the
number of publications. The first two are maxima over (time, which of two at one time counts more), so the order in
which events arrive does not matter, and an event that arrives twice changes nothing.
`stages.interests.final_subscriptions` of the events that `remembered_events` gives back is that of all events.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trellis.pipeline.schemas import CHURN

NODES = "node string, time double, event string"
CHANGES = "node string, topic string, time double, event string"
COUNTS = "topic string, count bigint"
_BOUNDARIES = ("join", "leave", "crash")


def latest_boundaries(events: DataFrame) -> DataFrame:
    """events with time, node, event -> the latest join or departure of each node; at one time a join is the later."""
    rank = F.struct("time", (F.col("event") == "join").alias("back"), "event")
    latest = events.where(F.col("event").isin(*_BOUNDARIES)).groupBy("node").agg(F.max(rank).alias("last"))
    return latest.select("node", "last.time", "last.event")


def latest_changes(events: DataFrame) -> DataFrame:
    """The latest change of each node and topic; at one time a subscribe is the later."""
    rank = F.struct("time", (F.col("event") == "subscribe").alias("wanted"), "event")
    changes = events.where(F.col("event").isin("subscribe", "unsubscribe"))
    latest = changes.groupBy("node", "topic").agg(F.max(rank).alias("last"))
    return latest.select("node", "topic", "last.time", "last.event")


def counted(publications: DataFrame) -> DataFrame:
    """topic, count -> their sums."""
    return publications.groupBy("topic").agg(F.sum("count").alias("count"))


def remembered_events(nodes: DataFrame, changes: DataFrame) -> DataFrame:
    """NODES, CHANGES -> CHURN: events that leave the same subscriptions in force as those that were seen."""
    none = F.lit(None).cast("string").alias("topic")
    return nodes.select("time", "node", "event", none).union(changes.select(*CHURN.names))


def forgetting(
    nodes: DataFrame, changes: DataFrame, interests: DataFrame, before: float
) -> tuple[DataFrame, DataFrame]:
    """Drop what no event at `before` or later can make matter again: changes that are not in force, idle nodes."""
    is_old = F.col("time") < F.lit(before)
    in_force = interests.select("node", "topic", F.lit(True).alias("holds"))
    marked = changes.join(in_force, ["node", "topic"], "left")
    kept = marked.where(~is_old | F.col("holds").isNotNull()).select("node", "topic", "time", "event")
    busy = kept.select("node").distinct().withColumn("busy", F.lit(True))
    held = nodes.join(busy, "node", "left").where(~is_old | F.col("busy").isNotNull())
    return held.select("node", "time", "event"), kept


def deltas(before: DataFrame, after: DataFrame) -> DataFrame:
    """INTERESTS, INTERESTS -> node, topic, event: the subscriptions that have come and gone."""
    came = after.join(before, ["node", "topic"], "left_anti").select("node", "topic", F.lit("subscribe").alias("event"))
    went = before.join(after, ["node", "topic"], "left_anti")
    return came.union(went.select("node", "topic", F.lit("unsubscribe").alias("event")))
