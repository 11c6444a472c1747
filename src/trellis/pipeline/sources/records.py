"""Rows that name their columns: JSON lines. The rows of Parquet and ORC tables are read as JSON lines too."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from trellis.errors import InputError
from trellis.pipeline.sources.parsing import data_lines, share, without_comments

_CORRUPT = "_corrupt"
NOT_AN_OBJECT = "not a JSON object"


def is_json(first: Sequence[str]) -> bool:
    """Return whether the first lines are JSON, of one object a line or of any other form."""
    lines = data_lines(first)
    return bool(lines) and lines[0].lstrip()[:1] in ("{", "[")


def keys_in(first: Sequence[str]) -> list[str]:
    """Return the names in the first objects, in their order; InputError where a line is not an object."""
    lines = data_lines(first)
    objects = [value for line in lines if (value := _object(line)) is not None]
    if 2 * len(objects) <= len(lines):
        raise InputError(
            "", "is one JSON document, not one object a line", "write one object a line, for instance with jq -c '.[]'"
        )
    return list(dict.fromkeys(key for fields in objects for key in fields))


def has_keys(first: Sequence[str], *names: str) -> float:
    """Return the share of lines that are objects with all these names."""
    return share(data_lines(first), lambda line: set(names) <= (_object(line) or {}).keys())


def with_record(lines: DataFrame, names: Sequence[str]) -> DataFrame:
    """Add the struct `record` with these fields as text. A number or an object is the text that stands in the line."""
    schema = StructType([StructField(name, StringType()) for name in (*names, _CORRUPT)])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return without_comments(lines).withColumn("record", F.from_json("line", schema, options))


def is_broken() -> Column:
    """Whether the line of a row `with_record` is not a JSON object."""
    record = F.col("record")
    return record.isNull() | record[_CORRUPT].isNotNull()


def plain(name: str) -> str:
    """Return a column's name as names are compared: in lower case, without marks between words."""
    return "".join(character for character in name.lower() if character.isalnum())


def _object(line: str) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
