"""From logs and tables to interests: random topics with all their users, and filters by popularity and size."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from trellis.pipeline.chance import order


def edits_to_interests(edits: DataFrame) -> DataFrame:
    """EDITS -> INTERESTS: a user wants the pages it edited, each once.  [Magnet 4.5]"""
    return edits.select(F.col("user").alias("node"), F.col("page").alias("topic")).distinct()


def with_random_topics(interests: DataFrame, *, topics: int, seed: int | str) -> DataFrame:
    """INTERESTS -> INTERESTS: `topics` random topics with all their nodes; all topics where there are fewer."""
    chosen = interests.select("topic").distinct().orderBy(*order(seed, "topics", "topic")).limit(topics)
    return interests.join(chosen, "topic", "left_semi").select("node", "topic")


def with_random_nodes(interests: DataFrame, *, nodes: int, seed: int | str) -> DataFrame:
    """INTERESTS -> INTERESTS: `nodes` random nodes with all their topics; all nodes where there are fewer."""
    chosen = interests.select("node").distinct().orderBy(*order(seed, "nodes", "node")).limit(nodes)
    return interests.join(chosen, "node", "left_semi").select("node", "topic")


def within_sizes(interests: DataFrame, column: str, *, at_least: int = 1, at_most: int | None = None) -> DataFrame:
    """INTERESTS -> INTERESTS: rows whose `column` (node or topic) has at least and at most so many rows."""
    sizes = interests.groupBy(column).agg(F.count("*").alias("size")).where(F.col("size") >= at_least)
    if at_most is not None:
        sizes = sizes.where(F.col("size") <= at_most)
    return interests.join(sizes.select(column), column, "left_semi").select("node", "topic")


def final_subscriptions(events: DataFrame) -> DataFrame:
    """CHURN (telemetry) -> INTERESTS: the subscriptions in force when the log ends.

    A node that left has none; a subscription counts when its last event since the node's last join or departure
    is `subscribe`. At one time, a departure comes first, then a join, then changes of subscriptions; of a
    subscribe and an unsubscribe at one time, the subscribe is the later.
    """
    departures = F.when(F.col("event").isin("leave", "crash", "join"), F.col("time"))
    last_reset = F.max(departures).over(Window.partitionBy("node"))
    changes = (
        events.withColumn("reset", last_reset)
        .where(F.col("event").isin("subscribe", "unsubscribe"))
        .where(F.col("reset").isNull() | (F.col("time") >= F.col("reset")))
    )
    latest = changes.groupBy("node", "topic").agg(
        F.max(F.struct("time", (F.col("event") == "subscribe").alias("wanted"))).alias("last")
    )
    gone = (
        events.where(F.col("event").isin("leave", "crash", "join"))
        .groupBy("node")
        .agg(F.max(F.struct("time", (F.col("event") == "join").alias("back"))).alias("last"))
        .where(~F.col("last.back"))
    )
    # A node that subscribes after it left has restarted, and its join was lost from the log.
    wanted = latest.where(F.col("last.wanted"))
    joined = wanted.join(gone.select("node", F.col("last.time").alias("gone")), "node", "left")
    return joined.where(F.col("gone").isNull() | (F.col("last.time") > F.col("gone"))).select("node", "topic")
