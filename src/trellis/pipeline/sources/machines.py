"""Machine events of Google's clusters: when a machine came, went or changed.  [OMen 6.1: ADD = join, REMOVE = leave]"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trellis.pipeline.schemas import MACHINE_EVENTS
from trellis.pipeline.sources.parsing import Source, data_lines, fields, is_digits, judged, share, without_comments

_MICROSECONDS = 1e6
_KINDS_2011 = {"0": "add", "1": "remove", "2": "update"}
# The third version of the trace numbers from 1 and has 0 for "unknown".
_KINDS_2019 = {"1": "add", "2": "remove", "3": "update", "ADD": "add", "REMOVE": "remove", "UPDATE": "update"}


def parse_google2011(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """CSV without header: time in microseconds, machine, event type 0|1|2, platform, cpus, memory (may be empty)."""
    rows = without_comments(lines).withColumn("field", fields(F.col("line"), ","))
    time, machine, kind = (F.get("field", F.lit(index)) for index in range(3))
    capacity = [F.get("field", F.lit(index)) for index in (4, 5)]
    rows = rows.withColumns(
        {"time": time.try_cast("bigint") / F.lit(_MICROSECONDS), "machine": machine, "event": _kind(kind, _KINDS_2011)}
    )
    return judged(
        rows,
        MACHINE_EVENTS,
        (F.size("field") != 6, "not 6 columns"),
        (~is_digits(time) | F.col("time").isNull(), "the time is not a whole number of microseconds"),
        (~is_digits(machine), "the machine is not a whole number"),
        (F.col("event").isNull(), "the event type is not 0, 1 or 2"),
        *[((value != "") & value.try_cast("double").isNull(), "a capacity is not a number") for value in capacity],
    )


def parse_google2019(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """JSON lines with time, machine_id and type (1|2|3 or ADD|REMOVE|UPDATE); numbers may be quoted."""
    schema = "struct<time:string,machine_id:string,type:string,_corrupt:string>"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    rows = without_comments(lines).withColumn("record", F.from_json("line", schema, options))
    record = F.col("record")
    rows = rows.withColumns(
        {
            # The export leaves out what is 0: the machines there before the trace began have no time.
            "time": F.coalesce(record["time"], F.lit("0")).try_cast("bigint") / F.lit(_MICROSECONDS),
            "machine": record["machine_id"],
            "event": _kind(record["type"], _KINDS_2019),
        }
    )
    return judged(
        rows,
        MACHINE_EVENTS,
        (record.isNull() | record["_corrupt"].isNotNull(), "not a JSON object"),
        (F.col("time").isNull() | (F.col("time") < 0), "the time is not a whole number of microseconds"),
        (F.coalesce("machine", F.lit("")) == "", "no machine_id"),
        (F.col("event").isNull(), "the type is not ADD, REMOVE or UPDATE"),
    )


def _kind(code: Column, kinds: dict[str, str]) -> Column:
    pairs = [F.lit(part) for pair in kinds.items() for part in pair]
    return F.try_element_at(F.create_map(*pairs), code)


def sniff_google2011(first: Sequence[str]) -> float:
    return share(
        data_lines(first), lambda line: re.fullmatch(r"\d+,\d+,[012],[^,]*,[\d.e-]*,[\d.e-]*\r?", line) is not None
    )


def sniff_google2019(first: Sequence[str]) -> float:
    def is_event(line: str) -> bool:
        try:
            record = json.loads(line)
        except ValueError:
            return False
        return isinstance(record, dict) and {"machine_id", "type"} <= record.keys()

    return share(data_lines(first), is_event)


SOURCES = (
    Source(
        "google2011",
        "machine events of Google's 2011 cluster trace",
        MACHINE_EVENTS,
        sniff_google2011,
        parse_google2011,
    ),
    Source(
        "google2019",
        "machine events of Google's 2019 traces, JSON lines",
        MACHINE_EVENTS,
        sniff_google2019,
        parse_google2019,
    ),
)
