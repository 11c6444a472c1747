"""Nodes and topics as integers, so that a whole instance fits into the arrays of the planner.

The id of a node is its rank (`trellis.plan.ties`), and that of a topic is its index in shortlex order. Both are the
same as everywhere else, so a plan on Spark takes the links that `trellis plan` takes. Ids come from windows over
buckets of the order, and from the sums of the earlier buckets. Only these sums pass through one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from trellis.pipeline.stages.plan_kernels import import_from_files

if TYPE_CHECKING:
    from trellis.plan.candidates import Subscribers


def _table(**columns: object) -> StructType:
    return StructType([StructField(name, kind, False) for name, kind in columns.items()])  # type: ignore[arg-type]


_TEXT, _ID, _IDS = StringType(), IntegerType(), ArrayType(IntegerType(), False)
TOPIC_IDS = _table(topic=_TEXT, id=_ID, rows=LongType())  # rows: as they were given
_KEYED = _table(node=_TEXT, topics=_IDS, rows=LongType(), key=LongType())
RANKED = _table(rank=_ID, node=_TEXT, topics=_IDS, rows=LongType())  # topics ascending; rows: as they were given
PACKED = _table(ranks=BinaryType(), sizes=BinaryType(), topics=BinaryType())  # 4 bytes a number; one row for many nodes
_BUCKET_BITS = 12


def topic_ids(interests: DataFrame) -> DataFrame:
    """INTERESTS -> TOPIC_IDS, in shortlex order from 0 on."""
    named = interests.groupBy("topic").agg(F.count("*").alias("rows"))
    return _numbered(named, F.octet_length("topic"), F.col("topic")).select("topic", F.col("place").alias("id"), "rows")


def ranked(interests: DataFrame, topics: DataFrame, seed: int | str) -> DataFrame:
    """INTERESTS and TOPIC_IDS -> RANKED: one row a node, with each topic once."""
    met = interests.join(topics.select("topic", "id"), "topic").groupBy("node").agg(F.collect_list("id").alias("all"))
    own = F.array_sort(F.array_distinct("all"))
    nodes = met.select("node", own.alias("topics"), F.size("all").cast("long").alias("rows"))

    def add_keys(batches: Iterable[Any]) -> Iterator[Any]:
        import_from_files()
        import numpy as np
        import pyarrow as pa

        from trellis.model.names import Names

        for batch in batches:
            keys = Names(batch.column("node")).keys(seed)
            signed = (keys ^ np.uint64(1 << 63)).view(np.int64)  # in the same order
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(signed)], names=_KEYED.names)

    keyed = nodes.mapInArrow(add_keys, _KEYED)
    bucket = F.shiftright("key", 64 - _BUCKET_BITS)
    places = _numbered(keyed.withColumn("bucket", bucket), F.col("bucket"), F.col("key"), F.col("node"))
    return places.select(F.col("place").alias("rank"), *RANKED.names[1:])


def _numbered(rows: DataFrame, bucket: Column, *order: Column) -> DataFrame:
    """Add the column `place`: the index of each row from 0 on, by bucket and within a bucket by `order`."""
    within = Window.partitionBy("of_bucket").orderBy(*order)
    placed = rows.withColumn("of_bucket", bucket).withColumn("nth", F.row_number().over(within))
    sizes = rows.groupBy(bucket.alias("of_bucket")).agg(F.count("*").alias("size"))
    # A window without partitions, over a few thousand rows.
    earlier = Window.orderBy("of_bucket").rowsBetween(Window.unboundedPreceding, -1)
    before = sizes.select("of_bucket", F.coalesce(F.sum("size").over(earlier), F.lit(0)).alias("before"))
    position = (F.col("before") + F.col("nth") - 1).cast("int")
    return placed.join(F.broadcast(before), "of_bucket").withColumn("place", position)


def packed(nodes: DataFrame) -> DataFrame:
    """RANKED -> PACKED, in any order."""

    def pack(batches: Iterable[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            if batch.num_rows:
                lists = batch.column("topics")
                numbers = (batch.column("rank"), pc.list_value_length(lists), lists.flatten())
                cells = [pa.array([np.asarray(one, np.int32).tobytes()], pa.binary()) for one in numbers]
                yield pa.RecordBatch.from_arrays(cells, names=PACKED.names)

    return nodes.select("rank", "topics").mapInArrow(pack, PACKED)


def unpacked(rows: Iterable[Any], nodes: int, subscriptions: int, topic_count: int) -> Subscribers:
    """Rows of PACKED -> the arrays of the planner, nodes by rank."""
    import numpy as np

    from trellis.plan.candidates import subscribers_of

    sizes, pieces = np.zeros(nodes, np.int64), []
    for row in rows:
        ranks, counts, topics = (np.frombuffer(row[name], np.int32) for name in PACKED.names)
        sizes[ranks] = counts
        pieces.append((ranks, counts, topics))
    offsets = np.zeros(nodes + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    all_topics = np.empty(subscriptions, np.int32)
    while pieces:
        ranks, counts, topics = pieces.pop()
        within = np.arange(len(topics)) - np.repeat(np.cumsum(counts) - counts, counts)
        all_topics[np.repeat(offsets[ranks], counts) + within] = topics
    return subscribers_of(offsets, all_topics, topic_count)
