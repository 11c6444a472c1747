"""Connected components of graphs that no single worker can hold: large-star and small-star, in turn.

[Kiveris et al., Connected components in MapReduce and beyond, SoCC 2014] Both steps keep the components as they are,
and link every node to smaller and smaller neighbors, until each component is a star around its smallest node. The
paper proves O(log^2 n) rounds. Many graphs are handled at once: those of different topics have no edge between them.

An edge is topic, node, root with root < node.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

STARS = StructType([StructField(name, StringType(), False) for name in ("topic", "node", "root")])


def edges_of(links: DataFrame) -> DataFrame:
    """TOPIC_LINKS -> STARS: the links as edges, the larger name first."""
    return links.select("topic", F.greatest("u", "v").alias("node"), F.least("u", "v").alias("root"))


def large_star(edges: DataFrame) -> DataFrame:
    """Link the larger neighbors of each node to the smallest of its neighbors and itself."""
    there = edges.select("topic", F.col("root").alias("center"), F.col("node").alias("near"))
    back = edges.select("topic", F.col("node").alias("center"), F.col("root").alias("near"))
    both = there.union(back)
    smallest = both.groupBy("topic", "center").agg(F.least(F.min("near"), F.col("center")).alias("root"))
    larger = both.where(F.col("near") > F.col("center"))
    moved = larger.join(smallest, ["topic", "center"]).select("topic", F.col("near").alias("node"), "root")
    return moved.distinct()


def small_star(edges: DataFrame) -> DataFrame:
    """Link each node and its smaller neighbors to the smallest of them."""
    smallest = edges.groupBy("topic", "node").agg(F.min("root").alias("least"))
    itself = smallest.select("topic", "node", F.col("least").alias("root"))
    others = (
        edges.join(smallest, ["topic", "node"])
        .where(F.col("root") != F.col("least"))
        .select("topic", F.col("root").alias("node"), F.col("least").alias("root"))
    )
    return itself.union(others).distinct()


def not_yet_stars(edges: DataFrame) -> DataFrame:
    """Return the edges because of which the graph is not yet a set of disjoint stars.

    They are those of nodes with two roots, and of roots that have a root themselves. If there are none, every component
    is a star, so no further round is needed to see that nothing changes.
    """
    several = edges.groupBy("topic", "node").agg(F.count("*").alias("roots")).where(F.col("roots") > 1)
    inner = edges.join(edges.select("topic", F.col("node").alias("root")).distinct(), ["topic", "root"], "left_semi")
    return several.select("topic", "node").union(inner.select("topic", "node"))
