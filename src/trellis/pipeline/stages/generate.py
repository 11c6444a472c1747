"""The workload generators, some nodes at a time. A node has the same topics in whichever chunk it is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from trellis.pipeline.schemas import INTERESTS
from trellis.pipeline.stages.plan_kernels import import_from_files

if TYPE_CHECKING:
    from trellis.workloads.configs import WorkloadConfig

CHUNK_NODES = 8192  # drawn at once: a few hundred thousand rows of Arrow
CHUNKS = StructType([StructField("id", LongType(), False)])


def generated(
    chunks: DataFrame, *, config: WorkloadConfig, seed: int | str, chunk_nodes: int = CHUNK_NODES
) -> DataFrame:
    """CHUNKS -> INTERESTS: the nodes id * chunk_nodes .. (id + 1) * chunk_nodes - 1 of the workload, by node and topic.

    The rows are those of `trellis.workloads.generate.generate(config, seed)`, for the configs of its `RangeConfig`.
    """

    def draw(batches: Iterable[Any]) -> Iterator[Any]:
        import_from_files()
        from trellis.workloads.generate import generate_range

        for batch in batches:
            for chunk in batch.column(0).to_pylist():
                first = chunk * chunk_nodes
                yield _rows(first, *generate_range(config, seed, first, min(first + chunk_nodes, config.nodes)))  # type: ignore[arg-type]

    return chunks.mapInArrow(draw, INTERESTS)


def generated_whole(one: DataFrame, *, config: WorkloadConfig, seed: int | str) -> DataFrame:
    """CHUNKS (a single row) -> INTERESTS, for workloads that are drawn as a whole: by one task, in its memory."""

    def draw(batches: Iterable[Any]) -> Iterator[Any]:
        import_from_files()
        from trellis.workloads.generate import generate

        for batch in batches:
            if batch.num_rows:
                yield from generate(config, seed).to_table().to_batches(max_chunksize=1 << 18)

    return one.mapInArrow(draw, INTERESTS)


def _rows(first: int, offsets: Any, topics: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    nodes = np.repeat(np.arange(first + 1, first + len(offsets)), np.diff(offsets))
    return pa.record_batch({"node": _numbered("n", nodes), "topic": _numbered("t", topics + 1)})


def _numbered(prefix: str, numbers: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(numbers), pa.string()), "")
