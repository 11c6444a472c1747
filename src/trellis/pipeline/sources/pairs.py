"""Any table of users and things that they like: Last.fm, Meetup, genre lists, tables of interests.

Each line is a row, separated by tabs, commas, semicolons or spaces. The two columns are found by their names in a
header line, or by their numbers (from 1). Quotes count with commas and semicolons only, as in CSV. A pair may repeat.
JSON lines and tables name their columns themselves.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.schemas import INTERESTS
from trellis.pipeline.sources import records
from trellis.pipeline.sources.parsing import (
    Source,
    columns_in,
    data_lines,
    fields,
    judged,
    separator_in,
    share,
    split_like,
    without_comments,
)

COLUMNS_MAX = 1_000  # A line with more is no row of a table.

# Header names that say for themselves which column is which (compared as `records.plain` writes them).
_NODE_NAMES = ("node", "user", "userid", "username", "member", "memberid", "subscriber", "client", "clientid", "person")
_TOPIC_NAMES = (
    "topic",
    "topicid",
    "item",
    "itemid",
    "artist",
    "artistid",
    "group",
    "groupid",
    "genre",
    "friendid",
    "page",
)


def parse_pairs(
    lines: DataFrame,
    first: Sequence[str],
    *,
    columns: tuple[str, str] | tuple[int, int] | None = None,
    header: bool | None = None,
    separator: str | None = None,
    comment: str | None = None,
) -> DataFrame:
    """Node and topic of each row.

    columns    their names in the header line, or their numbers from 1; without: what a known header says, else 1, 2
    header     whether the first line is a header; without: it is where names were given or known
    separator  without: what most of the first lines share
    comment    lines that begin with it are comments; without: no line is (a name may well begin with #)
    """
    marks = (comment,) if comment else ()
    shown = data_lines(first, *marks)
    if not shown:
        raise InputError("", "there is no row to read", "check the file")
    if records.is_json(first):
        return _parse_records(lines, first, columns)
    separator = separator or separator_in(first, *marks)
    head = _cells(shown[0], separator)
    node, topic, has_header = _places(head, columns, header)
    width = len(head) if has_header else columns_in(first, separator, *marks)
    if width > COLUMNS_MAX:
        raise InputError("", f"its first line has {width:,} columns", "check that it is a table of users and topics")
    if max(node, topic) >= width:
        raise InputError("", f"there is no column {max(node, topic) + 1}", f"the rows have {width}")
    rows = without_comments(lines, *marks)
    if has_header:
        rows = rows.where(F.col("line") != shown[0])  # the first line of each file, equal in all of them
    rows = rows.withColumn("field", _fields(separator, width))
    rows = rows.withColumns(
        {"node": F.trim(F.get("field", F.lit(node))), "topic": F.trim(F.get("field", F.lit(topic)))}
    )
    return judged(
        rows,
        INTERESTS,
        (F.coalesce(F.size("field"), F.lit(-1)) != width, f"not {width} columns"),
        (F.coalesce("node", F.lit("")) == "", "no user"),
        (F.coalesce("topic", F.lit("")) == "", "no topic"),
    )


def _parse_records(
    lines: DataFrame, first: Sequence[str], columns: tuple[str, str] | tuple[int, int] | None
) -> DataFrame:
    names = records.keys_in(first)
    node, topic, known = _places(names, columns, None)
    if columns is None and not known and len(names) != 2:
        shown = ", ".join(names)[:120]
        raise InputError("", f"no column is known as user and as topic ({shown})", "name two with --columns")
    if max(node, topic) >= len(names):
        raise InputError("", f"there is no column {max(node, topic) + 1}", f"the rows have {len(names)}")
    rows = records.with_record(lines, (names[node], names[topic]))
    record = F.col("record")
    rows = rows.withColumns({"node": F.trim(record[names[node]]), "topic": F.trim(record[names[topic]])})
    return judged(
        rows,
        INTERESTS,
        (records.is_broken(), records.NOT_AN_OBJECT),
        (F.coalesce("node", F.lit("")) == "", "no user"),
        (F.coalesce("topic", F.lit("")) == "", "no topic"),
    )


def _places(
    head: list[str], columns: tuple[str, str] | tuple[int, int] | None, header: bool | None
) -> tuple[int, int, bool]:
    """Return the indexes of node and topic from 0, and whether the first line is a header."""
    if columns is not None and all(isinstance(column, int) for column in columns):
        numbers = [int(column) for column in columns]
        if min(numbers) < 1 or numbers[0] == numbers[1]:
            raise InputError("", f"columns {numbers[0]} and {numbers[1]}", "give two different numbers from 1")
        return numbers[0] - 1, numbers[1] - 1, bool(header)
    if columns is not None:
        missing = [column for column in columns if column not in head]
        if missing or header is False:
            raise InputError(
                "",
                f'the first line has no column "{(missing or columns)[0]}" (it reads {", ".join(head)[:120]})',
                "add a header line, or give the columns by number",
            )
        return head.index(str(columns[0])), head.index(str(columns[1])), True
    plain = [records.plain(name) for name in head]
    nodes = [index for index, name in enumerate(plain) if name in _NODE_NAMES]
    topics = [index for index, name in enumerate(plain) if name in _TOPIC_NAMES]
    if nodes and topics and header is not False:
        return nodes[0], topics[0], True
    return 0, 1, bool(header)


def _cells(line: str, separator: str) -> list[str]:
    if separator in ",;":
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]
    return [cell.strip() for cell in split_like(line.strip(" "), separator)]


def _fields(separator: str, width: int) -> Column:
    if separator not in ",;":
        return fields(F.col("line"), separator)
    names = [f"c{number}" for number in range(width)]
    schema = ",".join(f"{name} string" for name in [*names, "_corrupt"])
    options = {
        "sep": separator,
        "quote": '"',
        "escape": '"',
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": "_corrupt",
    }
    record = F.from_csv("line", schema, options)
    return F.when(record["_corrupt"].isNull(), F.array(*[record[name] for name in names]))


def sniff_pairs(first: Sequence[str]) -> float:
    lines = data_lines(first)
    if records.is_json(first):
        return 0.3 * _knows_keys(first)
    if len(lines) < 2:
        return 0.0
    separator = separator_in(first)
    head = _cells(lines[0], separator)
    try:
        known = _places(head, None, None)[2]
    except InputError:
        return 0.0
    same = share(lines, lambda line: len(_cells(line, separator)) == len(head) >= 2)
    return (0.85 if known else 0.2) * same


def _knows_keys(first: Sequence[str]) -> bool:
    try:
        names = records.keys_in(first)
    except InputError:
        return False
    return len(names) == 2 or _places(names, None, None)[2]


SOURCES = (
    Source(
        "pairs", "any table of users and topics, with a header or column numbers", INTERESTS, sniff_pairs, parse_pairs
    ),
)
