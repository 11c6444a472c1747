"""`trellis pipeline generate`, `plan` and `verify`: workloads, overlays and checks of any size."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

from trellis.cli.common import Seed, bytes_allowed, examples
from trellis.cli.spark import Folder, Overwrite, on_spark
from trellis.cli.values import CANDIDATES, GREEDY_ALGORITHMS, among, workloads

SparkSession: TypeAlias = Any  # of packages that only a job imports
Report: TypeAlias = Any


@on_spark
def generate(
    spark: SparkSession,
    workload: Annotated[
        str,
        typer.Argument(
            help="A preset, or a generator with options: zipf:nodes=10000,alpha=2.", autocompletion=among(workloads)
        ),
    ],
    output: Folder,
    partitions: Annotated[
        int | None, typer.Option(help="Parquet parts to write.", metavar="N", show_default=False)
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> Report:
    """Make a synthetic workload of any size: the same rows as `trellis workload` makes."""
    from trellis.pipeline import jobs

    return jobs.generate(spark, workload, output, seed=seed, partitions=partitions, overwrite=overwrite)


@on_spark
def plan(
    spark: SparkSession,
    files: Annotated[
        list[str], typer.Argument(metavar="INTERESTS...", help="Table of node, topic.", show_default=False)
    ],
    output: Folder,
    algorithm: Annotated[
        str, typer.Option(help="gm, minmax or lowoda.", metavar="NAME", autocompletion=among(GREEDY_ALGORITHMS))
    ] = "lowoda",
    rho: Annotated[float, typer.Option(help="LowODA's parameter.")] = 3.0,
    candidates: Annotated[
        str,
        typer.Option(
            help="Pairs to choose links from: all; sampled, a few for each node; auto, sampled above 20,000 nodes.",
            metavar="auto|all|sampled",
            autocompletion=among(CANDIDATES),
        ),
    ] = "auto",
    sample: Annotated[
        int, typer.Option(help="Sampled: subscribers of each topic that a node looks at, at least.", metavar="N")
    ] = 64,
    keep: Annotated[
        int, typer.Option(help="Sampled: candidates that a node keeps. More: fewer links, more time.", metavar="N")
    ] = 48,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Of the driver's Python, as 4GiB: plan in parts above it. 60% of the machine's unless given.",
            metavar="SIZE",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(help="Plan in so many parts. Takes more links.", metavar="N", show_default=False),
    ] = None,
    partitioner: Annotated[
        str,
        typer.Option(
            help="Of parts: random, or minhash: similar nodes together.",
            metavar="NAME",
            autocompletion=among(["random", "minhash"]),
        ),
    ] = "random",
    representatives: Annotated[
        int, typer.Option(help="Of each part for each topic; more spread the links.", metavar="N")
    ] = 2,
    fan_in: Annotated[int, typer.Option(help="Parts joined by one merge.", metavar="N")] = 8,
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> Report:
    """Plan a topic-connected overlay for very many nodes, read and written by Spark.

    Executors draw candidates, and the driver chooses links among them: the same links as `trellis plan`. Beyond the
    memory of the driver, nodes are planned in parts, which are then merged through representatives.
    """
    from trellis.pipeline import jobs

    return jobs.plan(
        spark,
        files,
        output,
        algorithm=algorithm,
        rho=rho,
        candidates=candidates,
        sample=sample,
        keep=keep,
        memory_bytes_max=bytes_allowed(memory),
        partitions=partitions,
        partitioner=partitioner,
        representatives=representatives,
        fan_in=fan_in,
        seed=seed,
        overwrite=overwrite,
    )


@on_spark
def verify(
    spark: SparkSession,
    interests: Annotated[str, typer.Argument(metavar="INTERESTS", help="Table of node, topic.")],
    overlay: Annotated[str, typer.Argument(metavar="OVERLAY", help="Table of u, v.")],
    output: Folder,
    overwrite: Overwrite = False,
) -> Report:
    """Check whether an overlay of any size is topic-connected. Exits 0 if it is, else 1, and names split topics."""
    from trellis.pipeline import jobs

    return jobs.verify(spark, interests, overlay, output, overwrite=overwrite)


COMMANDS = {
    generate: examples("trellis pipeline generate uniform:nodes=1000000,topics=10000,subs=20 --seed 7 -o interests"),
    plan: examples(
        "trellis pipeline plan interests -o overlay",
        "trellis pipeline plan interests --memory 8GiB --driver-memory 4g -o overlay",
        "trellis pipeline plan interests --partitions 16 --partitioner minhash -o overlay",
    ),
    verify: examples("trellis pipeline verify interests overlay -o verified"),
}
