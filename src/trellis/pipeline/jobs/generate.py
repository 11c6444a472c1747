"""`generate`: the synthetic workloads at any size. The same rows as `trellis workload` gives on one machine."""

from __future__ import annotations

import msgspec
from pyspark.sql import SparkSession

from trellis.errors import InputError
from trellis.pipeline.jobs.run import Report, running
from trellis.pipeline.stages.generate import CHUNK_NODES, generated, generated_whole
from trellis.workloads.configs import Hierarchical, Spatial, WorkloadConfig
from trellis.workloads.options import parse_spec

WHOLE_NODES_MAX = 200_000  # of workloads that one task must draw alone
CHUNKS_PER_FILE = 64  # half a million nodes


def generate(
    spark: SparkSession,
    workload: str | WorkloadConfig,
    output: str,
    *,
    seed: int | str = 0,
    partitions: int | None = None,
    overwrite: bool = False,
) -> Report:
    """Write the interests of a workload, by node.

    workload    a configuration, or its text: uniform:nodes=1000000,topics=10000,subs=20
    partitions  Parquet parts to write; without: one for each half million nodes, and no fewer than there are cores
    """
    config = parse_spec(workload) if isinstance(workload, str) else workload
    if partitions is not None and partitions < 1:
        raise InputError("", f"{partitions} partitions", "give 1 or more")
    whole = isinstance(config, Spatial | Hierarchical)
    name = type(config).__name__.lower()
    if whole and config.nodes > WHOLE_NODES_MAX:
        raise InputError(
            "",
            f"{name} workloads are drawn as a whole, by one task: {config.nodes:,} nodes are too many for it",
            f"give at most {WHOLE_NODES_MAX:,} nodes, or choose a workload whose nodes are independent",
        )
    parameters = {"workload": name, "config": msgspec.to_builtins(config), "partitions": partitions}
    with running(spark, "generate", output, parameters=parameters, seed=seed, overwrite=overwrite, kernels=True) as (
        run,
        reports,
    ):
        chunks = -(-config.nodes // CHUNK_NODES)
        parts = partitions or max(-(-chunks // CHUNKS_PER_FILE), spark.sparkContext.defaultParallelism)
        run.facts |= {"nodes": config.nodes, "topics_drawn_from": config.topics}
        if whole:
            rows = generated_whole(spark.range(0, 1, 1, 1), config=config, seed=seed)
        else:
            rows = generated(spark.range(0, chunks, 1, min(parts, chunks)), config=config, seed=seed)
        run.facts["subscriptions"] = run.write(rows)
    return reports[0]
