"""What our own live nodes tell: JSON lines with time, node, event and topic."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trellis.pipeline.schemas import CHURN
from trellis.pipeline.sources.parsing import Source, data_lines, judged, not_finite, share, without_comments

EVENTS = ("join", "leave", "crash", "subscribe", "unsubscribe")
_RECORD = "struct<time:double,node:string,event:string,topic:string,_corrupt:string>"


def parse_telemetry(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """`{"time": 3.5, "node": "n1", "event": "subscribe", "topic": "t"}`; further keys are read over."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    rows = without_comments(lines).withColumn("record", F.from_json("line", _RECORD, options))
    record = F.col("record")
    rows = rows.withColumns({name: record[name] for name in CHURN.names})
    has_topic = F.coalesce("topic", F.lit("")) != ""
    needs_topic = F.col("event").isin("subscribe", "unsubscribe")
    return judged(
        rows.withColumn("topic", F.when(has_topic, F.col("topic"))),
        CHURN,
        (record.isNull() | record["_corrupt"].isNotNull(), "not a JSON object with time, node, event, topic"),
        (not_finite(F.col("time")), "no time in seconds"),
        (F.coalesce("node", F.lit("")) == "", "no node"),
        (~F.col("event").isin(*EVENTS), f"the event is none of {', '.join(EVENTS)}"),
        (needs_topic != F.col("topic").isNotNull(), "a subscription without topic, or a topic without subscription"),
    )


def sniff_telemetry(first: Sequence[str]) -> float:
    def is_event(line: str) -> bool:
        try:
            record = json.loads(line)
        except ValueError:
            return False
        return isinstance(record, dict) and {"time", "node", "event"} <= record.keys() and record["event"] in EVENTS

    return share(data_lines(first), is_event)


SOURCES = (
    Source("telemetry", "subscription events of our live nodes, JSON lines", CHURN, sniff_telemetry, parse_telemetry),
)
