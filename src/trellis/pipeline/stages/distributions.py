"""Measures of a workload: distributions, overlap of interests, correlation."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from trellis.pipeline.chance import key, order


def distributions(table: DataFrame, *columns: str) -> DataFrame:
    """any table -> quantity, value, count: how many rows have each value of each of the integer columns.

    It has few rows: the different degrees of a graph sum to at most twice its edges, so there are fewer than
    2 sqrt(edges) of them. It may go to the driver.
    """
    values = F.array(
        *[F.struct(F.lit(name).alias("quantity"), F.col(name).cast("long").alias("value")) for name in columns]
    )
    return (
        table.select(F.explode(values).alias("one"))
        .groupBy("one.quantity", "one.value")
        .agg(F.count("*").alias("count"))
        .select("quantity", "value", "count")
    )


def sizes(interests: DataFrame, column: str) -> DataFrame:
    """INTERESTS -> column, size: topics of each node, or nodes of each topic."""
    return interests.groupBy(column).agg(F.count("*").alias("size")).select(column, "size")


def top_intersections(interests: DataFrame, *, closest: int, sample: int, seed: int | str) -> DataFrame:
    """INTERESTS -> node, percentage, found: tdi(d) of a random sample of nodes.  [SpiderCast 3.4]

    For a node n the mean, over the `closest` other nodes m of highest intersection with n, of
    100 |n & m| / min(|n|, |m|). Nodes that share no topic count 0. `found` is the number of those that share one.
    Ties at the last rank are broken by a keyed hash of the two names.
    """
    size = sizes(interests, "node")
    chosen = interests.select("node").distinct().orderBy(*order(seed, "tdi", "node")).limit(sample)
    mine = interests.join(F.broadcast(chosen), "node", "left_semi").select("node", "topic")
    theirs = interests.select(F.col("node").alias("other"), "topic")
    shared = (
        mine.join(theirs, "topic")
        .where(F.col("node") != F.col("other"))
        .groupBy("node", "other")
        .agg(F.count("*").alias("shared"))
    )
    rank = Window.partitionBy("node").orderBy(
        F.desc("shared"), key(seed, "tdi-tie", F.col("node"), F.col("other")), F.col("other")
    )
    closest_nodes = shared.withColumn("place", F.row_number().over(rank)).where(F.col("place") <= closest)
    sized = closest_nodes.join(size.withColumnRenamed("size", "own"), "node").join(
        size.select(F.col("node").alias("other"), F.col("size").alias("its")), "other"
    )
    percentage = 100.0 * F.col("shared") / F.least("own", "its")
    totals = sized.groupBy("node").agg(F.sum(percentage).alias("total"), F.count("*").alias("found"))
    return chosen.join(totals, "node", "left").select(
        "node",
        (F.coalesce("total", F.lit(0.0)) / F.lit(float(closest))).alias("percentage"),
        F.coalesce("found", F.lit(0)).cast("long").alias("found"),
    )


def correlations(interests: DataFrame) -> DataFrame:
    """INTERESTS -> measure, value.

    size_popularity      over subscriptions: do nodes with many topics want popular ones?
    followers_followees  over names that are node and topic (social graphs): do the followed follow many?
    Null where there is nothing to compare or no variation.
    """
    size = sizes(interests, "node").withColumnRenamed("size", "followees")
    popularity = sizes(interests, "topic").withColumnRenamed("size", "followers")
    by_row = interests.join(size, "node").join(popularity, "topic")
    by_name = size.withColumnRenamed("node", "name").join(popularity.withColumnRenamed("topic", "name"), "name")
    return _pearson(by_row, "size_popularity").union(_pearson(by_name, "followers_followees"))


def _pearson(table: DataFrame, measure: str) -> DataFrame:
    value = F.corr("followees", "followers")
    return table.agg(F.when(~F.isnan(value), value).alias("value")).select(F.lit(measure).alias("measure"), "value")
