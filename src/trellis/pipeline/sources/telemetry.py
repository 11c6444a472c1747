"""The telemetry of live nodes (`live/telemetry.py`): JSON lines with time, node, event and topic.

One file holds both kinds of events: `telemetry` reads those of nodes and subscriptions, `publications` the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trellis.pipeline.schemas import CHURN, EVENTS, PUBLICATIONS
from trellis.pipeline.sources.parsing import Source, data_lines, judged, not_finite, share, without_comments

EVENTS_OF_NODES = ("join", "leave", "crash", "subscribe", "unsubscribe")
PUBLISH = "publish"
EVENT_NAMES = (*EVENTS_OF_NODES, PUBLISH)
_RECORD = "struct<time:double,node:string,event:string,topic:string,count:bigint,seconds:double,_corrupt:string>"


def parse_telemetry(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """`{"time": 3.5, "node": "n1", "event": "subscribe", "topic": "t"}`; further keys are read over."""
    record = F.col("record")
    rows = _records(lines).where(F.coalesce(record["event"], F.lit("")) != PUBLISH)
    rows = rows.withColumns({name: record[name] for name in CHURN.names})
    has_topic = F.coalesce("topic", F.lit("")) != ""
    needs_topic = F.col("event").isin("subscribe", "unsubscribe")
    return judged(
        rows.withColumn("topic", F.when(has_topic, F.col("topic"))),
        CHURN,
        (record.isNull() | record["_corrupt"].isNotNull(), "not a JSON object with time, node, event, topic"),
        (not_finite(F.col("time")), "no time in seconds"),
        (F.coalesce("node", F.lit("")) == "", "no node"),
        (~F.col("event").isin(*EVENTS_OF_NODES), f"the event is none of {', '.join(EVENTS_OF_NODES)}"),
        (needs_topic != F.col("topic").isNotNull(), "a subscription without topic, or a topic without subscription"),
    )


def parse_publications(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """`{"time": 10, "node": "n1", "event": "publish", "topic": "t", "count": 7, "seconds": 5}`: 7 in the last 5 s."""
    record = F.col("record")
    is_other = F.coalesce(record["event"], F.lit("")).isin(*EVENTS_OF_NODES)
    rows = _records(lines).where(~is_other | record["_corrupt"].isNotNull())
    return judged(
        rows.withColumns({name: record[name] for name in PUBLICATIONS.names}),
        PUBLICATIONS,
        (record.isNull() | record["_corrupt"].isNotNull(), "not a JSON object with time, node, event, topic"),
        (record["event"] != PUBLISH, f"the event is none of {', '.join(EVENT_NAMES)}"),
        (not_finite(F.col("time")), "no time in seconds"),
        (F.coalesce("node", F.lit("")) == "", "no node"),
        (F.coalesce("topic", F.lit("")) == "", "no topic"),
        (~(F.col("count") >= 0), "no count"),
        (not_finite(F.col("seconds")) | (F.col("seconds") < 0), "no duration in seconds"),
    )


def parse_events(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """Both kinds: what `parse_telemetry` and `parse_publications` read."""
    record = F.col("record")
    rows = _records(lines).withColumns({name: record[name] for name in EVENTS.names})
    has_topic = F.coalesce("topic", F.lit("")) != ""
    needs_topic = F.col("event").isin("subscribe", "unsubscribe", PUBLISH)
    is_publish = F.col("event") == PUBLISH
    timed = ~not_finite(F.col("seconds")) & (F.col("seconds") >= 0)
    return judged(
        rows.withColumn("topic", F.when(has_topic, F.col("topic"))),
        EVENTS,
        (record.isNull() | record["_corrupt"].isNotNull(), "not a JSON object with time, node, event, topic"),
        (not_finite(F.col("time")), "no time in seconds"),
        (F.coalesce("node", F.lit("")) == "", "no node"),
        (~F.col("event").isin(*EVENT_NAMES), f"the event is none of {', '.join(EVENT_NAMES)}"),
        (needs_topic != F.col("topic").isNotNull(), "a subscription without topic, or a topic without subscription"),
        (is_publish & ~F.coalesce(F.col("count") >= 0, F.lit(False)), "no count"),
        (is_publish & ~timed, "no duration in seconds"),
    )


def _records(lines: DataFrame) -> DataFrame:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    return without_comments(lines).withColumn("record", F.from_json("line", _RECORD, options))


def sniff_telemetry(first: Sequence[str]) -> float:
    """A log in which nodes publish is telemetry as well, but looks more like `publications`."""
    return share(data_lines(first), _is_event) * (0.9 if _tells_publications(first) else 1.0)


def sniff_events(first: Sequence[str]) -> float:
    return 0.8 * share(data_lines(first), _is_event)


def sniff_publications(first: Sequence[str]) -> float:
    return share(data_lines(first), _is_event) if _tells_publications(first) else 0.0


def _is_event(line: str, events: Sequence[str] = EVENT_NAMES) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and {"time", "node", "event"} <= record.keys() and record["event"] in events


def _tells_publications(first: Sequence[str]) -> bool:
    return any(_is_event(line, [PUBLISH]) for line in data_lines(first))


SOURCES = (
    Source("telemetry", "subscription events of our live nodes, JSON lines", CHURN, sniff_telemetry, parse_telemetry),
    Source("events", "all events of our live nodes, JSON lines", EVENTS, sniff_events, parse_events),
    Source(
        "publications",
        "how often our live nodes publish, JSON lines",
        PUBLICATIONS,
        sniff_publications,
        parse_publications,
    ),
)
