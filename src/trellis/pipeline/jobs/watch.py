"""`watch`: logs that grow -> interests, rates and deltas that follow them, with Structured Streaming.

OUT/interests, OUT/rates   as `pairs` and `rates` write them for everything that was read
OUT/deltas/batch=N         the subscriptions that began and ended with batch N
OUT/state                  the state; its manifest names the latest batch in it
OUT/_checkpoint            Spark's own: which bytes of which file belong to which batch

A batch becomes part of the state at once, when the manifest of the state is replaced. A batch that Spark runs again
after a stop is recognised by its number. Then the tables that people read are made from the state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from trellis.errors import InputError, TrellisError
from trellis.pipeline.failures import SLOW_PYTHON, explained
from trellis.pipeline.file_systems import FileSystems, for_reader
from trellis.pipeline.jobs.run import OnBadRows, Paths, Report
from trellis.pipeline.schemas import EVENTS, INTERESTS
from trellis.pipeline.sinks import whole_folder
from trellis.pipeline.sources import sniff_format, source_named
from trellis.pipeline.sources.parsing import Source, bad_rows, good_rows
from trellis.pipeline.stages import watch as stages
from trellis.pipeline.stages.interests import final_subscriptions
from trellis.pipeline.tail import NAME, TailSource, complete_lines, lines_between

FORMATS = ("events", "mosquitto")
WATERMARK_S = 86_400.0
_STARTS = 5  # so often the query is started, where the machine is too busy
_LOOK_S = 1  # Ctrl-C and SIGTERM are seen this soon
_TABLES = {
    "nodes": stages.NODES,
    "changes": stages.CHANGES,
    "counts": stages.COUNTS,
    "deltas": "node string, topic string, event string",
}


class Watch:
    """The state of one watch, and its update by a batch."""

    def __init__(
        self, spark: SparkSession, output: str, source: Source, watermark_s: float, on_bad_rows: OnBadRows
    ) -> None:
        self.spark, self.output, self.source = spark, output, source
        self.watermark_s, self.on_bad_rows = watermark_s, on_bad_rows
        self.file_systems = FileSystems(spark)
        self.failure: TrellisError | None = None  # why the last batch failed, if it was not Spark's own fault

    def batch(self, lines: DataFrame, number: int) -> None:
        """Handle a batch. Spark calls this for each batch, and again for one that was not finished."""
        try:
            if self.facts().get("batch", -1) < number:
                self._remember(lines, number)
            self.publish()
        except TrellisError as error:
            self.failure = error
            raise

    def facts(self) -> dict[str, Any]:
        """Return the facts of the state's manifest. Empty before the first batch."""
        facts = (self.file_systems.manifest(f"{self.output}/state") or {}).get("facts")
        return facts if isinstance(facts, dict) else {}

    def _remember(self, lines: DataFrame, number: int) -> None:
        parsed = self.source.parse(lines.select("file", F.col("line").cast("string").alias("line")), []).persist()
        facts = self.facts()
        try:
            wrong = self._refuse_or_count(parsed)
            given = good_rows(parsed, EVENTS)
            horizon = facts["last"] - self.watermark_s if "last" in facts else None
            events = given if horizon is None else given.where(F.col("time") >= F.lit(horizon))
            tally = self._tally(events, given, facts) | {"batch": number, "rejected": facts.get("rejected", 0) + wrong}
            self._write(events, tally)
        finally:
            parsed.unpersist()

    def _refuse_or_count(self, parsed: DataFrame) -> int:
        bad = bad_rows(parsed)
        wrong = bad.count()
        if wrong and self.on_bad_rows == "fail":
            shown = bad.orderBy("file", "line").first()
            assert shown is not None
            what = f"{wrong:,} rows do not parse, for instance {json.dumps(shown['line'][:80])} ({shown['reason']})"
            raise InputError(shown["file"], what, "pass --on-bad-rows quarantine to count and leave out such rows")
        return wrong

    def _tally(self, events: DataFrame, given: DataFrame, facts: dict[str, Any]) -> dict[str, Any]:
        is_publish = F.col("event") == "publish"
        tally = events.agg(
            F.count("*").alias("events"),
            F.max("time").alias("last"),
            F.min(F.when(is_publish, F.col("time") - F.col("seconds"))).alias("published_from"),
            F.max(F.when(is_publish, F.col("time"))).alias("published_until"),
        ).first()
        assert tally is not None
        now = tally.asDict()
        least, most = _known(min), _known(max)
        return {
            "events": facts.get("events", 0) + now["events"],
            "late": facts.get("late", 0) + given.count() - now["events"],
            "last": most(facts.get("last"), now["last"]),
            "published_from": least(facts.get("published_from"), now["published_from"]),
            "published_until": most(facts.get("published_until"), now["published_until"]),
        }

    def _write(self, events: DataFrame, facts: dict[str, Any]) -> None:
        before = self.interests()
        nodes = stages.latest_boundaries(self._table("nodes").unionByName(events.select("node", "time", "event")))
        changes = stages.latest_changes(
            self._table("changes").unionByName(events.select("node", "topic", "time", "event"))
        )
        publications = events.where(F.col("event") == "publish").select("topic", "count")
        counts = stages.counted(self._table("counts").unionByName(publications))
        after = final_subscriptions(stages.remembered_events(nodes, changes)).persist()
        try:
            changed = stages.deltas(before, after)
            if facts["last"] is not None:
                nodes, changes = stages.forgetting(nodes, changes, after, facts["last"] - self.watermark_s)
            tables = {"nodes": nodes, "changes": changes, "counts": counts, "deltas": changed}
            with whole_folder(self.spark, f"{self.output}/state", overwrite=True, by_manifest=True) as folder:
                for name, table in tables.items():
                    folder.write(table.coalesce(4), name)
                folder.manifest = {
                    "job": "watch",
                    "facts": {key: value for key, value in facts.items() if value is not None},
                }
        finally:
            after.unpersist()

    def _table(self, name: str) -> DataFrame:
        """A table of the state, from the files that its manifest lists."""
        outputs = (self.file_systems.manifest(f"{self.output}/state") or {}).get("outputs", [])
        files = [entry["path"] for entry in outputs if f"/{name}/" in entry["path"]]
        reader = self.spark.read.schema(_TABLES[name])
        if not files:
            return self.spark.createDataFrame([], _TABLES[name])
        return reader.parquet(*[for_reader(f"{self.output}/state/{path}") for path in files])

    def interests(self) -> DataFrame:
        """INTERESTS in force, from the state."""
        return final_subscriptions(stages.remembered_events(self._table("nodes"), self._table("changes")))

    def rates(self) -> DataFrame:
        """RATES over the time that the publications span, as `stages.rates` has it."""
        facts = self.facts()
        span = facts.get("published_until", 0.0) - facts.get("published_from", 0.0)
        counts = self._table("counts").where((F.col("count") > 0) & F.lit(span > 0))
        return counts.select("topic", (F.col("count") / F.lit(span or 1.0)).alias("rate"))

    def rows(self, name: str) -> int:
        """Return how many rows a table that people read has."""
        told = (self.file_systems.manifest(f"{self.output}/{name}") or {}).get("rows") or {}
        return int(told.get("table", 0))

    def publish(self) -> None:
        """Make the tables that people read from the state, where they are of an older batch."""
        facts = self.facts()
        number = facts.get("batch")
        if number is None:
            return
        tables: dict[str, Callable[[], DataFrame]] = {
            f"deltas/batch={number:08d}": lambda: self._table("deltas").orderBy("node", "topic"),
            "interests": lambda: self.interests().orderBy(*INTERESTS.names),
            "rates": lambda: self.rates().orderBy("topic"),
        }
        for name, table in tables.items():
            path = f"{self.output}/{name}"
            if ((self.file_systems.manifest(path) or {}).get("facts") or {}).get("batch") == number:
                continue
            with whole_folder(self.spark, path, overwrite=True) as folder:
                rows = folder.write(table())
                folder.manifest = {"job": "watch", "rows": {"table": rows}, "facts": facts}


def watch(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    format: str | None = None,
    every_s: float | None = 10.0,
    watermark_s: float = WATERMARK_S,
    on_bad_rows: OnBadRows = "fail",
) -> Report:
    """Follow the logs until the program is interrupted; with `every_s` None, until all that is there has been read."""
    began = time.monotonic()
    options: dict[str, Any] = {"every_s": every_s, "watermark_s": watermark_s, "on_bad_rows": on_bad_rows}
    for left in reversed(range(_STARTS)):
        try:
            with watching(spark, paths, output, format=format, **options) as (query, state):
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
    watermark_s: float = WATERMARK_S,
    on_bad_rows: OnBadRows = "fail",
) -> Iterator[tuple[StreamingQuery, Watch]]:
    """Follow the logs until the block is left. `every_s` None: read what is there, and end by itself.

    watermark_s   an event that is older than the latest one of earlier batches by more is late: it is counted and left
                  out. Raising it costs memory for unsubscriptions that a late event might contradict
    """
    if watermark_s < 0 or (every_s is not None and every_s <= 0):
        raise InputError("", "a negative time", "give seconds above 0")
    if on_bad_rows not in ("fail", "quarantine"):
        raise InputError("", f'on-bad-rows "{on_bad_rows}"', "choose fail or quarantine")
    given = [str(Path(path).absolute()) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    target = str(Path(output).absolute())
    state, checkpoint = Path(target, "state", "manifest.json"), Path(target, "_checkpoint")
    if state.exists() and not checkpoint.exists():
        raise InputError(target, "has a state without its _checkpoint", "watch into another folder")
    watch = Watch(spark, target, _source(given, format), watermark_s, on_bad_rows)
    spark.dataSource.register(TailSource)
    stream = spark.readStream.format(NAME).option("paths", json.dumps(given)).load()
    writer = stream.writeStream.foreachBatch(watch.batch).option("checkpointLocation", str(checkpoint))
    trigger: dict[str, Any] = {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
    with explained():
        query = writer.trigger(**trigger).start()
        try:
            yield query, watch
        except PySparkException as error:
            raise watch.failure or error from error
        finally:
            query.stop()


def _source(paths: list[str], format: str | None) -> Source:
    if format:
        return source_named(format, FORMATS)
    logs = complete_lines(paths)
    if not logs:
        raise InputError(paths[0], "there is no log with a line in it yet", f"name its format: {', '.join(FORMATS)}")
    path, stop = next(iter(logs.values()))
    lines = [line.decode("utf-8", "replace") for line, _ in zip(lines_between(path, 0, stop), range(200), strict=False)]
    return sniff_format(lines, FORMATS, path)


def _known(choose: Any) -> Any:
    return lambda *values: choose((value for value in values if value is not None), default=None)
