"""Cut the nodes into parts of about the same size, and find the level of the tree at which each topic closes.

Parts are numbered 0 .. parts - 1. The tree of merges joins `fan_in` consecutive groups at each level, so at level l the
part p belongs to group p // fan_in^l. A topic *closes* at the first level where all its subscribers are in one group.
Above that level it needs no representatives.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

from trellis.pipeline.chance import key

PARTITIONERS = ("random", "minhash")

# One row a node of a part, or a representative of a group.
MEMBERS = StructType(
    [
        StructField("part", LongType(), False),  # the part, or the group of the level before, that the node stands for
        StructField("node", StringType(), False),
        StructField("topics", ArrayType(StringType()), False),
        StructField("closes", ArrayType(IntegerType()), False),  # of each topic: the level where it closes
        StructField("degree", LongType(), False),  # real: links of all levels so far
        StructField("degree_max", LongType(), False),  # of the whole part or group, not only of the members here
    ]
)

_CLASSES = 64  # buckets of the first and of the second minimum


def levels_of(parts: int, fan_in: int) -> int:
    """How many levels of merges join so many parts into one group."""
    level = 0
    while fan_in**level < parts:
        level += 1
    return level


def in_random_parts(interests: DataFrame, *, parts: int, seed: int | str) -> DataFrame:
    """INTERESTS -> node, topic, part: parts by a hash of the node."""
    part = F.pmod(key(seed, "part", F.col("node")), F.lit(parts))
    return interests.select("node", "topic", part.alias("part"))


def in_similar_parts(interests: DataFrame, *, nodes: int, parts: int, seed: int | str) -> DataFrame:
    """INTERESTS -> node, topic, part: `nodes` nodes, in order of their MinHash, cut into parts of the same size.

    The smallest of the hashes of a node's topics is equal for two nodes with the probability of their Jaccard
    similarity. Nodes are put in order of the smallest under one hash function, then under a second and a third, so
    that similar nodes tend to be near each other. Each bucket is ordered by itself; only counts are added up.
    """
    minima = [F.min(key(seed, f"minhash{n}", F.col("topic"))).alias(f"h{n}") for n in (1, 2, 3)]
    bucket = F.pmod("h1", F.lit(_CLASSES)) * _CLASSES + F.pmod("h2", F.lit(_CLASSES))
    signatures = interests.groupBy("node").agg(*minima).withColumn("bucket", bucket)
    sizes = signatures.groupBy("bucket").agg(F.count("*").alias("size"))
    # A window without partitions, over a few thousand rows.
    earlier = Window.orderBy("bucket").rowsBetween(Window.unboundedPreceding, -1)
    before = sizes.select("bucket", F.coalesce(F.sum("size").over(earlier), F.lit(0)).alias("before"))
    within = Window.partitionBy("bucket").orderBy("h1", "h2", "h3", key(seed, "part", F.col("node")), "node")
    placed = (
        signatures.join(F.broadcast(before), "bucket")
        .withColumn("place", F.col("before") + F.row_number().over(within) - 1)
        .select("node", F.expr(f"place * {parts} div {nodes}").alias("part"))
    )
    return interests.join(placed, "node").select("node", "topic", "part")


def members_of_parts(placed: DataFrame, *, fan_in: int, levels: int) -> DataFrame:
    """node, topic, part -> MEMBERS: one row a node with each topic once, without links yet."""
    reach = placed.groupBy("topic").agg(F.min("part").alias("first"), F.max("part").alias("last"))
    closes = reach.select("topic", _closing_level(fan_in, levels).alias("closes"))
    own = F.collect_set(F.struct("topic", "closes"))
    nodes = placed.join(closes, "topic").groupBy("part", "node").agg(own.alias("own"))
    none = F.lit(0).cast("long")
    return nodes.select("part", "node", "own.topic", "own.closes", none, none).toDF(*MEMBERS.names)


def _closing_level(fan_in: int, levels: int) -> Column:
    """Groups only grow: the level where the first and the last part meet is the number of levels where they do not."""
    total = F.lit(0)
    for level in range(levels):
        width = fan_in**level
        total = total + F.expr(f"first div {width} != last div {width}").cast("int")
    return total
