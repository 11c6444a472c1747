"""`watch`: logs that grow -> interests, rates and deltas that follow them, with Structured Streaming.

OUT/interests, OUT/rates   as `pairs` and `rates` write them for everything that was read
OUT/deltas/batch=N         the subscriptions that began and ended with batch N
OUT/changes/batch=N        with `overlay`: the changes of links that `replan` makes of these deltas
OUT/overlay                with `overlay`: the links after these changes
OUT/state                  the state; its manifest names the latest batch in it
OUT/_checkpoint            Spark's own: which bytes of which file belong to which batch

A batch becomes part of the state at once, when the manifest of the state is replaced. A batch that Spark runs again
after a stop is recognised by its number. Then the tables that people read are made from the state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from trellis.errors import InputError, TrellisError
from trellis.pipeline.executors import check_executors
from trellis.pipeline.failures import SLOW_PYTHON, explained
from trellis.pipeline.file_systems import FileSystems
from trellis.pipeline.jobs.run import Paths, Report
from trellis.pipeline.jobs.watch_start import (
    FORMATS,
    absolute,
    refuse_other_run,
    refuse_output_among_logs,
    source_of,
)
from trellis.pipeline.jobs.watch_state import WATERMARK_S, Settings, Watch
from trellis.pipeline.session import is_local
from trellis.pipeline.streams import lines_from

__all__ = ["FORMATS", "WATERMARK_S", "Settings", "Watch", "watch", "watching"]

_STARTS = 5  # so often the query is started, where the machine is too busy
_LOOK_S = 1  # Ctrl-C and SIGTERM are seen this soon


def watch(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    format: str | None = None,
    every_s: float | None = 10.0,
    **settings: Any,
) -> Report:
    """Follow the logs until the program is interrupted; with `every_s` None, until all that is there has been read.

    settings   the fields of `Settings`, by name
    """
    began = time.monotonic()
    for left in reversed(range(_STARTS)):
        try:
            with watching(spark, paths, output, format=format, every_s=every_s, **settings) as (query, state):
                while not query.awaitTermination(_LOOK_S):
                    pass
        except TrellisError as error:  # Spark starts a Python for each query, and waits for it ten seconds only
            if str(error) != SLOW_PYTHON or not left:
                raise
        else:
            break
    facts, counts = state.facts(), {name: state.rows(name) for name in ("interests", "rates")}
    return Report("watch", state.output, counts, facts.get("rejected", 0), facts, round(time.monotonic() - began, 3))


@contextmanager
def watching(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    format: str | None = None,
    every_s: float | None = 10.0,
    **settings: Any,
) -> Iterator[tuple[StreamingQuery, Watch]]:
    """Follow the logs until the block is left. `every_s` None: read what is there, and end by itself.

    An event that is older than the latest one of earlier batches by more than `watermark_s` is late: it is counted and
    left out. Raising `watermark_s` costs memory for unsubscriptions that a late event might contradict.
    """
    if every_s is not None and every_s <= 0:
        raise InputError("", f"a batch every {every_s:g} seconds", "give seconds above 0")
    chosen = Settings(**settings)
    logs = [absolute(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    target = absolute(output)
    refuse_output_among_logs(target, logs)
    file_systems = FileSystems(spark)
    watch = Watch(spark, target, source_of(spark, logs, format), chosen, logs)
    refuse_other_run(file_systems, target, watch.parameters)
    if not is_local(spark.sparkContext.master):
        check_executors(spark)  # The source runs Python there.
    with explained():
        writer = lines_from(spark, logs).writeStream.foreachBatch(watch.batch)
        writer = writer.option("checkpointLocation", f"{target}/_checkpoint")
        trigger: dict[str, Any] = (
            {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
        )
        query = writer.trigger(**trigger).start()
        try:
            yield query, watch
        except PySparkException as error:
            raise watch.failure or error from error
        finally:
            query.stop()
