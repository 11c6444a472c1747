"""Social graphs as edge lists: SNAP, KONECT, Kwak's Twitter.

One edge a line, `#` and `%` lines are comments, fields separated by spaces, tabs or commas; trailing blanks do not
matter. KONECT lists may have a weight and a time behind the two ends; they are read over, but every line must
have as many columns as the file's other lines. A header line is not an edge. JSON lines and tables name the two ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.schemas import EDGES
from trellis.pipeline.sources import records
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
# Names of the two ends, compared as `records.plain` writes them.
_ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("fromnodeid", "tonodeid"),
    ("node1", "node2"),
    ("id1", "id2"),
    ("numericid1", "numericid2"),
    ("u", "v"),
    ("user", "follower"),
    ("follower", "followee"),
    ("user", "friend"),
    ("userid", "friendid"),
)


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
    if records.is_json(first):
        names = ends_among(records.keys_in(first))
        rows = records.with_record(lines, names)
        ends = F.trim(F.col("record")[names[0]]), F.trim(F.col("record")[names[1]])
        form = records.is_broken(), records.NOT_AN_OBJECT
    else:
        separator = "," if separator_in(first, *_MARKS) == "," else " "
        columns = min(max(columns_in(first, separator, *_MARKS), 2), 4)
        field = F.transform(fields(F.col("line"), separator), lambda field: F.trim(field))
        rows = without_comments(lines, *_MARKS).withColumn("field", field)
        header = header_in(first)
        if header is not None:
            rows = rows.where(F.col("line") != header)  # in every file
        ends = F.get("field", F.lit(0)), F.get("field", F.lit(1))
        form = F.size("field") != columns, f"not {columns} columns"
    rows = rows.withColumns({"source": ends[1] if swapped else ends[0], "target": ends[0] if swapped else ends[1]})
    problems = [form, ((F.col("source") == "") | (F.col("target") == ""), "an end is empty")]
    if whole_numbers:
        both = is_digits(F.col("source")) & is_digits(F.col("target"))
        problems.append((~both, "an end is not a whole number"))
    return judged(rows, EDGES, *problems)


def header_in(first: Sequence[str]) -> str | None:
    """Return the line that names the columns; None where the first row is an edge.

    It is one where the two names are those of ends, or where they are words and the ends of all other lines numbers.
    """
    lines = data_lines(first, *_MARKS)
    separator = "," if separator_in(first, *_MARKS) == "," else " "
    head, *others = [[part.strip() for part in split_like(line.strip(), separator)][:2] for line in lines] or [[]]
    if len(head) < 2:
        return None
    named = tuple(records.plain(name.strip('"')) for name in head) in _ENDS
    words = not any(re.search(r"^[-+.\d]", name) for name in head)
    numbers = bool(others) and all(all(re.fullmatch(r"\d+", end) for end in ends) for ends in others)
    return lines[0] if named or (words and numbers) else None


def ends_among(names: Sequence[str]) -> tuple[str, str]:
    """Return which of the columns are the ends of an edge: by their names, or because there are only two."""
    by_name = {records.plain(name): name for name in names}
    for one, other in _ENDS:
        if one in by_name and other in by_name:
            return by_name[one], by_name[other]
    if len(names) == 2:
        return names[0], names[1]
    shown = ", ".join(names)[:120]
    raise InputError("", f"no two columns are known as the ends of an edge ({shown})", "name them source and target")


def says_directed(first: Sequence[str]) -> bool | None:
    """Return what a header says: KONECT's `% asym ...`, `% sym ...`, SNAP's `# Directed graph`; None without one."""
    for line in first:
        konect = re.match(r"%\s*(asym|sym|bip)\b", line)
        if konect:
            return konect.group(1) != "sym"
        snap = re.match(r"#\s*(un)?directed graph", line, re.IGNORECASE)
        if snap:
            return snap.group(1) is None
    return None


def may_be_directed(first: Sequence[str], path: str) -> bool:
    """Return whether a list without such a header has the form of KONECT's: its name, or a weight behind the ends."""
    name = path.rpartition("/")[2]
    separator = "," if separator_in(first, *_MARKS) == "," else " "
    return not records.is_json(first) and (name.startswith("out.") or columns_in(first, separator, *_MARKS) > 2)


def promised_edges(first: Sequence[str]) -> int | None:
    """Return how many edges a header says that there are: KONECT's `% 88234 4039`, SNAP's `Edges: 88234`."""
    comments = [line for line in first if line.startswith(_MARKS)]
    for line in comments:
        match = re.match(r"%\s*(\d+)\s+\d+(\s+\d+)?\s*$", line) or re.match(r"#.*\bEdges:\s*(\d+)", line)
        if match:
            return int(match.group(1))
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
    if records.is_json(first):
        return 0.5 * max(records.has_keys(first, *_spelled(first, pair)) for pair in _ENDS)
    return (0.9 if konect else 0.5) * _sniff(first, separator, numbers_only=False)


def _spelled(first: Sequence[str], pair: tuple[str, str]) -> tuple[str, ...]:
    """The two names as the first object writes them; the plain ones where it has none of them."""
    try:
        by_name = {records.plain(name): name for name in records.keys_in(first)}
    except InputError:
        return pair
    return tuple(by_name.get(name, name) for name in pair)


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
