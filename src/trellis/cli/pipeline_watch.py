"""`trellis pipeline watch`: interests and rates that follow logs as they grow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from trellis.cli.common import examples
from trellis.cli.spark import on_spark
from trellis.cli.values import FORMATS, among

SparkSession: TypeAlias = Any  # of packages that only a job imports
Report: TypeAlias = Any

EXAMPLE = examples(
    "trellis pipeline watch /var/log/mosquitto --format mosquitto -o followed",
    "trellis pipeline watch events/*.jsonl --once -o followed",
    "trellis pipeline watch events/ --overlay overlay.parquet -o followed",
)


@on_spark
def watch(
    spark: SparkSession,
    files: Annotated[
        list[str],
        typer.Argument(metavar="LOG...", help="Logs, folders of logs, patterns, or addresses.", show_default=False),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", help="The folder with interests, rates and deltas.", metavar="DIR")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            help="Told from the first lines unless given.",
            metavar="NAME",
            autocompletion=among(FORMATS["watch"]),
            show_default=False,
        ),
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds from one batch to the next.", metavar="SECONDS")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="Read what is there, and end.")] = False,
    watermark: Annotated[
        float, typer.Option(help="Events older than the latest by more are left out.", metavar="SECONDS")
    ] = 86_400.0,
    overlay: Annotated[
        Path | None,
        typer.Option(
            help="Links that exist, a table of u, v: after each batch, write the changes that replan makes of them.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    on_bad_rows: Annotated[
        str,
        typer.Option(
            help="fail, or quarantine: count them and leave them out.",
            metavar="WHAT",
            autocompletion=among(["fail", "quarantine"]),
        ),
    ] = "fail",
    max_bad_share: Annotated[
        float, typer.Option("--max-bad-share", help="With quarantine: fail above this share.", metavar="SHARE")
    ] = 0.01,
) -> Report:
    """Follow logs with Structured Streaming, until Ctrl-C: interests, rates and deltas, as the batch jobs give them.

    It goes on where it was stopped, also after a crash. Each complete line counts once.
    """
    from trellis.pipeline import jobs

    return jobs.watch(
        spark,
        files,
        output,
        format=format,
        every_s=None if once else every,
        watermark_s=watermark,
        on_bad_rows=on_bad_rows,
        max_bad_share=max_bad_share,
        overlay=None if overlay is None else str(overlay.absolute()),
    )
