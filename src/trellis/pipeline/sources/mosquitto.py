"""Mosquitto's log: when clients come and go, and what they subscribe to and publish.

Subscriptions are there with `log_type subscribe` and `log_type unsubscribe`, publications with `log_type debug`,
clients that come and go with `log_type notice`; all of them with `log_type all`. Every line must begin with its time,
in seconds since 1970 as Mosquitto writes it, or as `log_timestamp_format %Y-%m-%dT%H:%M:%S` does. Lines about anything
else are read over.

A client is a node. Mosquitto does not quote names, so a client whose name has a blank in it is not understood where it
subscribes. A client that disconnects has no subscriptions until it subscribes again, also if its session persists.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trellis.pipeline.schemas import EVENTS
from trellis.pipeline.sources.parsing import Source, data_lines, judged, share, without_comments

_STAMP = r"^(\d{9,}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*): "
_BODIES = {
    "join": r"New client connected from \S+ as (.+) \(p\d, c[01], k\d+.*\)\.?$",
    "leave": r"Client (.+?)(?: \[[^\]]*\])? (?:disconnected|closed its connection|has exceeded timeout"
    r"|been disconnected by administrative action)",
    "publish": r"Received PUBLISH from (.+) \(d\d, q\d, r\d, m\d+, '(.*)', \.\.\. \(\d+ bytes\)\)$",
    "subscribe": r"(\S+) [012] (\S.*)$",
    # Two words. Another message of two words does no harm: nobody has subscribed to its second word.
    "unsubscribe": r"(\S*[^\s:]) (\S*[^\s.])$",
}
_WITH_TOPIC = ("publish", "subscribe", "unsubscribe")


def parse_mosquitto(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """EVENTS of the lines that tell of clients and topics."""
    line = F.col("line")
    stamp = F.regexp_extract(line, _STAMP, 1)
    event, node, topic = (_chosen(what) for what in ("event", "node", "topic"))
    rows = without_comments(lines).withColumns({"stamp": stamp, "event": event, "node": node, "topic": topic})
    rows = rows.where((F.col("stamp") == "") | F.col("event").isNotNull() | ~F.is_valid_utf8("line"))
    seconds = F.coalesce(
        F.col("stamp").try_cast("double"), F.unix_micros(F.col("stamp").try_cast("timestamp")) / F.lit(1e6)
    )
    is_publish = F.col("event") == "publish"
    rows = rows.withColumns(
        {
            "time": seconds,
            "count": F.when(is_publish, F.lit(1)).cast("long"),
            "seconds": F.when(is_publish, F.lit(0.0)),
        }
    )
    return judged(rows, EVENTS, (F.col("time").isNull(), "the line does not begin with a time"))


def _chosen(what: str) -> Column:
    """The event, node or topic of the first form that the line has; null where it has none."""
    line = F.col("line")
    first_match: Column = F.lit(None).cast("string")
    for event, body in reversed(_BODIES.items()):
        pattern = _STAMP + body
        if what == "event":
            value = F.lit(event)
        elif what == "node":
            value = F.regexp_extract(line, pattern, 2)
        else:
            value = F.regexp_extract(line, pattern, 3) if event in _WITH_TOPIC else F.lit(None).cast("string")
        first_match = F.when(line.rlike(pattern), value).otherwise(first_match)
    return first_match


def sniff_mosquitto(first: Sequence[str]) -> float:
    """Most lines have a time, and one of them tells something."""
    lines = data_lines(first)
    telling = any(re.search(_STAMP + body, line) for line in lines for body in _BODIES.values())
    return 0.6 * share(lines, lambda line: re.search(_STAMP, line) is not None) * telling


SOURCES = (Source("mosquitto", "the log of a Mosquitto broker", EVENTS, sniff_mosquitto, parse_mosquitto),)
