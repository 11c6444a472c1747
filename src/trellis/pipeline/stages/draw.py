"""Steps before and after the planner's kernel: executors draw candidates, and links get the names of their ends.

`trellis.plan.candidates` says how candidates are drawn. A node looks at some thousand subscriptions to its own topics.
As rows of a join these would be 4,000,000,000 for 1,000,000 nodes. So every task gets the interests as arrays of
integers instead (8 bytes for each subscription, as a broadcast), and draws the candidates of its own nodes by the
planner's kernel. A node's candidates depend only on the interests and the seed. So they are the same for any number of
tasks, and the same as on one machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from trellis.pipeline.stages.plan_kernels import import_from_files

if TYPE_CHECKING:
    from pyspark import Broadcast

    from trellis.model.names import IdArray
    from trellis.plan.candidates import Sampling

SLAB_NODES = 4096  # drawn at once: below 1 MB of candidates
SLAB_LINKS = 1 << 16
TASKS_MAX = 256
DRAWN = StructType([StructField("first", LongType(), False), StructField("kept", BinaryType(), False)])
NUMBERED = StructType([StructField("i", IntegerType(), False), StructField("j", IntegerType(), False)])


def drawn_candidates(
    spark: SparkSession, arrays: Broadcast[Any], nodes: int, sampling: Sampling, seed: int | str, slab: int = SLAB_NODES
) -> DataFrame:
    """The candidates of the nodes first, first + 1, ...: one row for each `slab` nodes, as DRAWN.

    arrays   the `Subscribers` of `trellis.plan.candidates`, as a plain tuple
    """
    sample, keep = sampling.sample, sampling.keep

    def draw(batches: Iterable[Any]) -> Iterator[Any]:
        import_from_files()
        import pyarrow as pa

        from trellis.plan.candidates import Sampling, Subscribers, drawn

        table = Subscribers(*arrays.value)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                first = number * slab
                kept = drawn(table, first, min(first + slab, nodes), Sampling(sample, keep), seed)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([first], pa.int64()), pa.array([kept.tobytes()], pa.binary())], names=DRAWN.names
                )

    return _slabs(spark, nodes, slab).mapInArrow(draw, DRAWN)


def kept_of(rows: Iterable[Any], nodes: int, sampling: Sampling) -> IdArray:
    """Rows of DRAWN -> the candidates of all nodes, as `trellis.plan.candidates.drawn` has them."""
    import numpy as np

    width = min(sampling.keep, max(nodes - 1, 1))
    kept = np.full((nodes, width), -1, np.int32)
    for row in rows:
        piece = np.frombuffer(row["kept"], np.int32).reshape(-1, width)
        kept[row["first"] : row["first"] + len(piece)] = piece
    return kept


def numbered_links(spark: SparkSession, ends: Broadcast[Any], count: int) -> DataFrame:
    """Links that the driver holds -> NUMBERED. `ends` has their two ends as arrays."""

    def give(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        i, j = ends.value
        for batch in batches:
            for number in batch.column(0).to_pylist():
                here = slice(number * SLAB_LINKS, (number + 1) * SLAB_LINKS)
                yield pa.RecordBatch.from_arrays([pa.array(i[here]), pa.array(j[here])], names=NUMBERED.names)

    return _slabs(spark, count, SLAB_LINKS).mapInArrow(give, NUMBERED)


def named_links(links: DataFrame, nodes: DataFrame) -> DataFrame:
    """NUMBERED and RANKED -> LINKS, the end that comes first in shortlex order as u."""
    first = nodes.select(F.col("rank").alias("i"), F.col("node").alias("one"))
    second = nodes.select(F.col("rank").alias("j"), F.col("node").alias("other"))
    met = links.join(first, "i").join(second, "j")
    is_first = F.struct(F.octet_length("one"), "one") < F.struct(F.octet_length("other"), "other")
    u, v = F.when(is_first, F.col("one")), F.when(is_first, F.col("other"))
    return met.select(u.otherwise(F.col("other")).alias("u"), v.otherwise(F.col("one")).alias("v"))


def _slabs(spark: SparkSession, count: int, slab: int) -> DataFrame:
    slabs = -(-count // slab)
    return spark.range(0, slabs, 1, max(1, min(slabs, TASKS_MAX)))
