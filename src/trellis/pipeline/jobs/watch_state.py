"""The state of a watch, its update by a batch, and the tables that people read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError, TrellisError
from trellis.model import Interests, Names, Overlay, read_overlay
from trellis.pipeline import lineage
from trellis.pipeline.beside import now
from trellis.pipeline.file_systems import FileSystems, for_reader, shown_path
from trellis.pipeline.jobs.run import MAX_BAD_SHARE, OnBadRows, versions_of
from trellis.pipeline.jobs.watch_start import checkpoint_id
from trellis.pipeline.schemas import EVENTS, INTERESTS
from trellis.pipeline.sinks import whole_folder
from trellis.pipeline.sources.parsing import Source, bad_rows, good_rows
from trellis.pipeline.stages import watch as stages
from trellis.pipeline.stages.interests import final_subscriptions
from trellis.plan.replan import replan, without_departed

WATERMARK_S = 86_400.0
_TABLES = {
    "nodes": stages.NODES,
    "changes": stages.CHANGES,
    "counts": stages.COUNTS,
    "deltas": "node string, topic string, event string",
}
_CHANGES = "step int, do string, u string, v string"
_LINKS = "u string, v string"


@dataclass(frozen=True)
class Settings:
    """How a watch treats the lines."""

    watermark_s: float = WATERMARK_S  # An event that is older than the latest one by more is late.
    on_bad_rows: OnBadRows = "fail"
    max_bad_share: float = MAX_BAD_SHARE  # of all rows so far, with quarantine
    overlay: str | None = None  # links that exist; after each batch with deltas they are replanned

    def __post_init__(self) -> None:
        if self.watermark_s < 0:
            raise InputError("", f"watermark {self.watermark_s:g}", "give seconds, 0 or more")
        if self.on_bad_rows not in ("fail", "quarantine"):
            raise InputError("", f'on-bad-rows "{self.on_bad_rows}"', "choose fail or quarantine")
        if not 0 <= self.max_bad_share <= 1:
            raise InputError("", f"max-bad-share {self.max_bad_share:g}", "give a share from 0 to 1, such as 0.01")


class Watch:
    """The state of one watch, and its update by a batch."""

    def __init__(
        self, spark: SparkSession, output: str, source: Source, settings: Settings, logs: list[str] | None = None
    ) -> None:
        self.spark, self.output, self.source, self.settings = spark, output, source, settings
        self.parameters: dict[str, Any] = {
            "format": source.name,
            "logs": sorted(logs or []),
            "watermark_s": settings.watermark_s,
            "on_bad_rows": settings.on_bad_rows,
            "max_bad_share": settings.max_bad_share,
            "overlay": settings.overlay,
        }
        self.started = now()
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
        facts = self._manifest("state").get("facts")
        return facts if isinstance(facts, dict) else {}

    def _manifest(self, name: str) -> dict[str, Any]:
        return self.file_systems.manifest(f"{self.output}/{name}") or {}

    def _told(self, facts: dict[str, Any], files: set[str]) -> dict[str, object]:
        """Return the manifest of a table. The logs grow, so they have no hash there."""
        context = self.spark.sparkContext
        return {
            "job": "watch",
            "inputs": [{"path": path} for path in sorted(files)],
            "parents": [],
            "started": self.started,
            "ended": now(),
            "application": context.applicationId,
            "settings": lineage.settings_of(context.getConf().getAll()),
            "parameters": self.parameters,
            "versions": versions_of(self.spark),
            "facts": facts,
        }

    def _remember(self, lines: DataFrame, number: int) -> None:
        parsed = self.source.parse(lines, []).persist()
        facts = self.facts()
        try:
            given = good_rows(parsed, EVENTS)
            horizon = facts["last"] - self.settings.watermark_s if "last" in facts else None
            events = given if horizon is None else given.where(F.col("time") >= F.lit(horizon))
            tally = self._tally(events, given, facts) | {"batch": number}
            tally |= self._rejected(parsed, facts, tally)
            tally["checkpoint"] = checkpoint_id(self.file_systems, self.output)
            files = {shown_path(row["file"]) for row in parsed.select("file").distinct().collect()}
            self._write(events, tally, files)
        finally:
            parsed.unpersist()

    def _rejected(self, parsed: DataFrame, facts: dict[str, Any], tally: dict[str, Any]) -> dict[str, Any]:
        """Count the bad rows, those of earlier batches included. Raise InputError if they are not allowed."""
        bad = bad_rows(parsed)
        reasons = {row["reason"]: row["count"] for row in bad.groupBy("reason").count().collect()}
        here = sum(reasons.values())
        wrong = facts.get("rejected", 0) + here
        total = tally["events"] + tally["late"] + wrong
        too_many = wrong > self.settings.max_bad_share * total
        if here and (self.settings.on_bad_rows == "fail" or too_many):
            shown = bad.orderBy("file", "line").first()
            assert shown is not None
            example = f"for instance {json.dumps(shown['line'][:80])} ({shown['reason']})"
            if self.settings.on_bad_rows == "fail":
                what, remedy = (
                    f"{here:,} rows do not parse, {example}",
                    "pass --on-bad-rows quarantine to leave them out",
                )
            else:
                share = f"more than --max-bad-share {self.settings.max_bad_share:g}"
                what = f"{wrong:,} of {total:,} rows so far do not parse, {share}, {example}"
                remedy = "correct them, check the format, or allow more"
            raise InputError(shown_path(shown["file"]), what, remedy)
        counted = facts.get("rejected_by_reason", {})
        by_reason = {name: counted.get(name, 0) + reasons.get(name, 0) for name in sorted({**counted, **reasons})}
        return {"rejected": wrong, "rejected_by_reason": by_reason}

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

    def _write(self, events: DataFrame, facts: dict[str, Any], files: set[str]) -> None:
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
                nodes, changes = stages.forgetting(nodes, changes, after, facts["last"] - self.settings.watermark_s)
            tables = {"nodes": nodes, "changes": changes, "counts": counts, "deltas": changed}
            with whole_folder(self.spark, f"{self.output}/state", overwrite=True, by_manifest=True) as folder:
                for name, table in tables.items():
                    folder.write(table.coalesce(4), name)
                files |= {entry["path"] for entry in self._manifest("state").get("inputs", [])}
                folder.manifest = self._told({key: value for key, value in facts.items() if value is not None}, files)
        finally:
            after.unpersist()

    def _table(self, name: str) -> DataFrame:
        """A table of the state, from the files that its manifest lists."""
        outputs = self._manifest("state").get("outputs", [])
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
        told = self._manifest(name).get("rows") or {}
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
            if not self._is_of(name, number):
                self._publish(name, table(), facts)
        if self.settings.overlay is not None and not self._is_of("overlay", number):
            self._hand_over(facts, self.settings.overlay)

    def _is_of(self, name: str, number: int) -> bool:
        return (self._manifest(name).get("facts") or {}).get("batch") == number

    def _publish(self, name: str, table: DataFrame, facts: dict[str, Any]) -> None:
        files = {entry["path"] for entry in self._manifest("state").get("inputs", [])}
        with whole_folder(self.spark, f"{self.output}/{name}", overwrite=True) as folder:
            rows = folder.write(table)
            folder.manifest = self._told(facts, files) | {"rows": {"table": rows}}

    def _hand_over(self, facts: dict[str, Any], given: str) -> None:
        """Replan the links for the interests now, and write the changes. Without deltas there is nothing to do."""
        there_before = bool(self._manifest("overlay"))
        if there_before and self._table("deltas").isEmpty():
            return
        pairs = [(row["node"], row["topic"]) for row in self.interests().collect()]
        if not pairs:
            return  # Nobody wants anything now. The links stay for those who come.
        interests = Interests.from_pairs(pairs)
        present, departed = without_departed(interests, self._links() if there_before else read_overlay(given))
        made = replan(interests, present)
        rows = [(step, *change) for step, change in enumerate([*made.changes(), *departed])]
        changes = self.spark.createDataFrame(rows, _CHANGES).orderBy("step")
        self._publish(f"changes/batch={facts['batch']:08d}", changes, facts)
        links = [(row["u"], row["v"]) for row in made.target.to_table().to_pylist()]
        self._publish("overlay", self.spark.createDataFrame(links, _LINKS).orderBy("u", "v"), facts)

    def _links(self) -> Overlay:
        """Return the links after the changes of earlier batches."""
        files = [file.path for file in self.file_systems.files([f"{self.output}/overlay"])]
        parts = [for_reader(path) for path in files if path.endswith(".parquet")]
        links = [(row["u"], row["v"]) for row in self.spark.read.schema(_LINKS).parquet(*parts).collect()]
        return Overlay.from_pairs(Names.in_order({name for link in links for name in link})[0], links)


def _known(choose: Any) -> Any:
    return lambda *values: choose((value for value in values if value is not None), default=None)
