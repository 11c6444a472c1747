"""How often topics are published on."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trellis.pipeline.schemas import RATES


def publication_rates(publications: DataFrame) -> DataFrame:
    """PUBLICATIONS -> RATES, over the time that the whole table spans: a topic that was silent for long is rare."""
    span = publications.agg((F.max("time") - F.min(F.col("time") - F.col("seconds"))).alias("span"))
    counted = publications.groupBy("topic").agg(F.sum("count").alias("count"))
    rate = (F.col("count") / F.col("span")).alias("rate")
    published = counted.join(F.broadcast(span)).where((F.col("count") > 0) & (F.col("span") > 0))
    return published.select("topic", F.coalesce(rate, F.lit(0.0)).alias("rate")).select(*RATES.names)
