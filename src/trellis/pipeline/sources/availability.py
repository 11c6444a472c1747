"""Availability traces: when a machine was up. `avt` (Godfrey's repository; Skype) and `fta` (Failure Trace Archive)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.schemas import OBSERVED
from trellis.pipeline.sources import records
from trellis.pipeline.sources.parsing import (
    Source,
    data_lines,
    fields,
    is_digits,
    judged,
    not_finite,
    parsed,
    separator_in,
    share,
    with_reason,
    without_comments,
)

# event_trace of the archive, when the file has no header line.
FTA_COLUMNS = (
    "event_id",
    "component_id",
    "node_id",
    "platform_id",
    "node_name",
    "event_type",
    "event_start_time",
    "event_stop_time",
    "event_end_reason",
)
_AVAILABLE = "1"  # event_type: 1 available, 0 unavailable


def parse_avt(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """`node TAB k TAB` and k pairs `start end`: ascending, disjoint, of positive length, in seconds."""
    rows = without_comments(lines).withColumn("field", fields(F.col("line"), "\t"))
    machine, count = F.trim(F.get("field", F.lit(0))), F.trim(F.get("field", F.lit(1)))
    texts = fields(F.get("field", F.lit(2)), " ")
    rows = rows.withColumns(
        {
            "machine": machine,
            "count": count.try_cast("int"),
            "times": F.transform(texts, lambda text: text.try_cast("double")),
        }
    )
    starts = F.filter("times", lambda _, index: index % 2 == 0)
    ends = F.filter("times", lambda _, index: index % 2 == 1)
    rows = rows.withColumn("sessions", F.arrays_zip(starts.alias("start"), ends.alias("end")))
    not_a_time = F.exists("times", lambda time: not_finite(time) | (time < 0))
    empty = F.exists("sessions", lambda session: session["start"] >= session["end"])
    rows = with_reason(
        rows,
        (F.size("field") != 3, "not 3 columns"),
        (machine == "", "no node"),
        (~is_digits(count) | (F.col("count") < 1), "the number of sessions is not a whole number above 0"),
        (not_a_time, "a time is not a number of seconds"),
        (F.size("times") != 2 * F.col("count"), "the number of times is not twice the number of sessions"),
        # Sessions may touch: the next begins as one ends.
        ((F.array_sort("times") != F.col("times")) | empty, "the sessions do not rise"),
    )
    session = F.explode_outer(F.when(F.col("reason").isNull(), F.col("sessions")))
    rows = rows.withColumn("session", session).withColumns(
        {"start": F.col("session.start"), "end": F.col("session.end"), "up": F.lit(True)}
    )
    return parsed(rows, OBSERVED)


def parse_fta(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """A table `event_trace`: separated by tabs or commas, its columns named by a header line (which may begin with #),
    else those of FTA_COLUMNS. Read are node_id (else node_name, else component_id), event_type (1 available,
    0 unavailable), event_start_time and event_stop_time in seconds. Rows that are not of type 1 give no session: they
    tell only when the trace began and ended and which nodes there are, and their times may be missing or equal.
    """
    separator = separator_in(first, candidates="\t,")
    head = data_lines(first)[0] if data_lines(first) else ""
    names = [name.strip().lower() for name in head.lstrip("#").split(separator)]
    has_header = "event_start_time" in names
    names = names if has_header else list(FTA_COLUMNS)
    who = next((name for name in ("node_id", "node_name", "component_id") if name in names), "")
    needed = ("event_type", "event_start_time", "event_stop_time")
    missing = [name for name in needed if name not in names] + ([] if who else ["node_id"])
    if missing:
        raise InputError("", f'the header has no column "{missing[0]}"', "name it as the archive's event_trace does")
    rows = without_comments(lines, "#")
    if has_header:
        rows = rows.where(F.col("line") != head)
    rows = rows.withColumn("field", F.transform(fields(F.col("line"), separator), lambda field: F.trim(field)))
    value = {name: F.get("field", F.lit(names.index(name))) for name in (who, *needed)}
    rows = rows.withColumns(
        {
            "machine": value[who],
            "start": value["event_start_time"].try_cast("double"),
            "end": value["event_stop_time"].try_cast("double"),
            "up": value["event_type"] == _AVAILABLE,
        }
    )
    is_session, timeless = F.col("up"), not_finite(F.col("start")) | not_finite(F.col("end"))
    rows = with_reason(
        rows,
        (F.size("field") != len(names), f"not {len(names)} columns"),
        (F.col("machine") == "", "no node"),
        (~is_digits(value["event_type"]), "the event type is not a whole number"),
        (is_session & timeless, "a time is not a number of seconds"),
        (is_session & (F.col("start") >= F.col("end")), "the event ends before it begins"),
    )
    return parsed(rows.where(F.col("reason").isNotNull() | is_session | ~timeless), OBSERVED)


def parse_sessions(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """JSON lines or a table with machine (or node), start and end in seconds: a session a row."""
    names = session_names(records.keys_in(first)) if records.is_json(first) else None
    if names is None:
        raise InputError("", "has no columns machine, start and end", "give JSON lines, Parquet or ORC with these")
    rows = records.with_record(lines, names)
    machine, start, end = (F.trim(F.col("record")[name]) for name in names)
    rows = rows.withColumns(
        {
            "machine": machine,
            "start": start.try_cast("double"),
            "end": end.try_cast("double"),
            "up": F.lit(True),
        }
    )
    return judged(
        rows,
        OBSERVED,
        (records.is_broken(), records.NOT_AN_OBJECT),
        (machine == "", "no node"),
        (not_finite(F.col("start")) | not_finite(F.col("end")), "a time is not a number of seconds"),
        (F.col("start") >= F.col("end"), "the session ends before it begins"),
    )


def session_names(keys: Sequence[str]) -> tuple[str, str, str] | None:
    """Return the names of machine, start and end among these; None where one is missing."""
    who = next((name for name in ("machine", "machine_id", "node", "node_id") if name in keys), None)
    return (who, "start", "end") if who and {"start", "end"} <= set(keys) else None


def sniff_avt(first: Sequence[str]) -> float:
    return share(data_lines(first), lambda line: re.fullmatch(r"[^\t]+\t\s*\d+\t\s*\d[\d. ]*\r?", line) is not None)


def sniff_fta(first: Sequence[str]) -> float:
    if data_lines(first) and "event_start_time" in data_lines(first)[0].lower():
        return 1.0
    times = r"[^\t]*(?:\t[^\t]*){4}\t[01]\t\d+(?:\.\d+)?\t\d+(?:\.\d+)?\t[^\t]*"
    return 0.9 * share(data_lines(first, "#"), lambda line: re.fullmatch(times, line) is not None)


def sniff_sessions(first: Sequence[str]) -> float:
    if not records.is_json(first):
        return 0.0
    return max(records.has_keys(first, who, "start", "end") for who in ("machine", "machine_id", "node", "node_id"))


SOURCES = (
    Source("avt", "availability sessions, one node a line (Skype)", OBSERVED, sniff_avt, parse_avt),
    Source("fta", "event_trace tables of the Failure Trace Archive", OBSERVED, sniff_fta, parse_fta),
    Source(
        "sessions", "sessions as JSON lines or tables: machine, start, end", OBSERVED, sniff_sessions, parse_sessions
    ),
)
