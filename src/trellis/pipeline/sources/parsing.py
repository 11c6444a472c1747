"""Parse lines into rows. A row that does not parse keeps its line and gets a reason.

A source reads text lines, never records. So every line that does not parse is known completely, with its file. Spark
passes the bytes of a line on as they are. A line that is not UTF-8 is a bad row like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from trellis.pipeline.schemas import REJECTED


@dataclass(frozen=True)
class Source:
    """One format. `parse(lines, first, **options)` gives the schema's columns and file, line, reason."""

    name: str
    about: str
    schema: StructType
    sniff: Callable[[Sequence[str]], float]  # 0: certainly not this format; 1: certainly
    parse: Callable[..., DataFrame]


def judged(rows: DataFrame, schema: StructType, *problems: tuple[Column, str], line: Column | None = None) -> DataFrame:
    """The schema's columns with `reason`: null for a good row, else the first problem that it has."""
    return parsed(with_reason(rows, *problems), schema, line=line)


def with_reason(rows: DataFrame, *problems: tuple[Column, str]) -> DataFrame:
    """Adds `reason`. A condition that is null counts as a problem: what cannot be told is not good."""
    reason = F.when(~F.is_valid_utf8("line"), F.lit("not UTF-8"))
    for wrong, text in problems:
        reason = reason.when(F.coalesce(wrong, F.lit(True)), F.lit(text))
    return rows.withColumn("reason", reason)


def parsed(rows: DataFrame, schema: StructType, *, line: Column | None = None) -> DataFrame:
    """What every `parse` gives: the schema's columns, then file, line, reason."""
    text = F.make_valid_utf8(F.col("line") if line is None else line)
    return rows.select(*schema.names, "file", text.alias("line"), "reason")


def good_rows(parsed: DataFrame, schema: StructType) -> DataFrame:
    """The rows that parsed, in the schema's columns and types."""
    good = parsed.where(F.col("reason").isNull())
    columns = [
        F.col(field.name) if field.nullable else F.coalesce(F.col(field.name), _never_null(field.name))
        for field in schema
    ]
    return good.select(
        *[column.cast(field.dataType).alias(field.name) for column, field in zip(columns, schema, strict=True)]
    )


def _never_null(name: str) -> Column:
    # Spark takes the column for non-null from here on, as the schema says; a null would be our bug, and loud.
    return F.raise_error(F.lit(f"bug: a good row has no {name}"))


def among_good(value: Column) -> Column:
    """For aggregates over a parsed table: the value in good rows, null (which aggregates skip) in bad ones."""
    return F.when(F.col("reason").isNull(), value)


def bad_rows(parsed: DataFrame) -> DataFrame:
    """REJECTED: the lines that did not parse."""
    return parsed.where(F.col("reason").isNotNull()).select(*REJECTED.names)


def without_comments(lines: DataFrame, *marks: str) -> DataFrame:
    """Lines that are not blank and do not begin with one of the comment marks."""
    bare = F.ltrim(F.col("line"))
    kept = lines.where(F.trim(F.translate("line", "\t", " ")) != "")
    for mark in marks:
        kept = kept.where(~bare.startswith(mark))
    return kept


def fields(line: Column, separator: str) -> Column:
    """The fields of a line as an array. The separator " " stands for any run of spaces and tabs."""
    if separator == " ":
        return F.filter(F.split(F.translate(line, "\t", " "), " "), lambda field: field != "")
    # split takes a regular expression; a separator is one character and is meant as it is.
    return F.split(line, f"[{separator}]" if separator != "\t" else "\t", -1)


def is_digits(text: Column) -> Column:
    """Digits only, and at least one. (No regular expression: this runs on billions of rows.)"""
    return (text != "") & (F.translate(text, "0123456789", "") == "")


def not_finite(number: Column) -> Column:
    """Null, NaN or infinite. (Spark's isnan says false for null.)"""
    return number.isNull() | F.isnan(number) | (F.abs(number) == float("inf"))


def data_lines(first: Sequence[str], *marks: str) -> list[str]:
    """The first lines of a file without blank lines and comments, for sniffing."""
    return [line for line in first if line.strip() and not (marks and line.lstrip().startswith(marks))]


def split_like(line: str, separator: str) -> list[str]:
    return line.split() if separator == " " else line.split(separator)


def separator_in(first: Sequence[str], *marks: str, candidates: str = "\t,; ") -> str:
    """The separator that most of the first lines share; " " (any white space) where none does."""
    lines = data_lines(first, *marks)
    for separator in candidates:
        if lines and 2 * sum(separator in line.strip() for line in lines) > len(lines):
            return separator
    return " "


def columns_in(first: Sequence[str], separator: str, *marks: str) -> int:
    """The number of columns that most of the first lines have: a lone count line at the top does not set it."""
    counts = Counter(len(split_like(line.strip(" "), separator)) for line in data_lines(first, *marks))
    return max(counts, key=counts.__getitem__, default=0)  # of equals, the one that comes first


def share(first: Sequence[str], test: Callable[[str], bool]) -> float:
    """The share of lines that pass `test`; 0 for no lines."""
    return sum(map(test, first)) / len(first) if first else 0.0
