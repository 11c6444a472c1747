"""Social graphs as edge lists: SNAP, KONECT, Kwak's Twitter.

One edge a line, `#` and `%` lines are comments, fields separated by spaces, tabs or commas; trailing blanks do not
matter. KONECT lists may have a weight and a time behind the two ends; they are read over, but every line must
have as many columns as the file's other lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trellis.pipeline.schemas import EDGES
from trellis.pipeline.sources.parsing import (
    Source,
    columns_in,
    data_lines,
    fields,
    is_digits,
    judged,
    separator_in,
    share,
    split_like,
    without_comments,
)

_MARKS = ("#", "%")


def parse_edges(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """`u v`: u follows v, or u and v are friends."""
    return _parse(lines, first, whole_numbers=False, swapped=False)


def parse_facebook(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """`u v`, whole numbers: u and v are friends."""
    return _parse(lines, first, whole_numbers=True, swapped=False)


def parse_twitter(lines: DataFrame, first: Sequence[str]) -> DataFrame:
    """`user follower`, whole numbers: the second follows the first.  [Kwak et al. 2010]"""
    return _parse(lines, first, whole_numbers=True, swapped=True)


def _parse(lines: DataFrame, first: Sequence[str], *, whole_numbers: bool, swapped: bool) -> DataFrame:
    separator = separator_in(first, *_MARKS)
    separator = separator if separator == "," else " "
    columns = min(max(columns_in(first, separator, *_MARKS), 2), 4)
    field = F.transform(fields(F.col("line"), separator), lambda field: F.trim(field))
    rows = without_comments(lines, *_MARKS).withColumn("field", field)
    ends = F.get("field", F.lit(0)), F.get("field", F.lit(1))
    rows = rows.withColumns({"source": ends[1] if swapped else ends[0], "target": ends[0] if swapped else ends[1]})
    problems = [
        (F.size("field") != columns, f"not {columns} columns"),
        ((F.col("source") == "") | (F.col("target") == ""), "an end is empty"),
    ]
    if whole_numbers:
        both = is_digits(F.col("source")) & is_digits(F.col("target"))
        problems.append((~both, "an end is not a whole number"))
    return judged(rows, EDGES, *problems)


def says_directed(first: Sequence[str]) -> bool | None:
    """What a KONECT header says: `% asym ...` is directed, `% sym ...` is not; None without one."""
    for line in first:
        found = re.match(r"%\s*(asym|sym|bip)\b", line)
        if found:
            return found.group(1) != "sym"
    return None


def _sniff(first: Sequence[str], separator: str, *, numbers_only: bool) -> float:
    lines = data_lines(first, *_MARKS)
    wanted = re.compile(r"\d+" if numbers_only else r"\S+")

    def is_edge(line: str) -> bool:
        parts = [part.strip() for part in split_like(line.strip(), separator)]
        columns = 2 if numbers_only else columns_in(first, separator, *_MARKS)
        return 2 <= len(parts) <= 4 and len(parts) == columns and all(map(wanted.fullmatch, parts[:2]))

    return share(lines, is_edge)


def sniff_edges(first: Sequence[str]) -> float:
    separator = "," if separator_in(first, *_MARKS) == "," else " "
    konect = any(re.match(r"%\s*(asym|sym|bip)\b", line) for line in first)
    if any(line.lstrip().startswith("{") for line in first):
        return 0.0
    return (0.9 if konect else 0.5) * _sniff(first, separator, numbers_only=False)


def sniff_facebook(first: Sequence[str]) -> float:
    """Direction cannot be seen in a file: `edges` wins over this, the user names it."""
    return 0.3 * _sniff(first, " ", numbers_only=True)


def sniff_twitter(first: Sequence[str]) -> float:
    """Kwak's files have tabs; see `sniff_facebook`."""
    return 0.3 * _sniff(first, "\t", numbers_only=True)


SOURCES = (
    Source("twitter", "Kwak's Twitter graph: `user follower`, directed", EDGES, sniff_twitter, parse_twitter),
    Source("facebook", "a list of friendships between whole numbers", EDGES, sniff_facebook, parse_facebook),
    Source("edges", "an edge list of SNAP or KONECT, directed or not", EDGES, sniff_edges, parse_edges),
)
