"""Edit logs of Wikipedia: as JSON lines, as tab-separated `user page time`, and in JODIE's re-indexed form.

An anonymous editor's name is an internet address. It is masked here, before anything else sees it, in rejected
lines as well: the same address gives the same `masked-...` name under the same secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.chance import masked
from trellis.pipeline.schemas import EDITS
from trellis.pipeline.sources.parsing import (
    Source,
    data_lines,
    fields,
    is_digits,
    judged,
    not_finite,
    share,
    without_comments,
)

_HEADER = ("user", "page", "time")
_IPV4 = r"(?:\d{1,3}\.){3}\d{1,3}"
_HEX = "[0-9A-Fa-f]{1,4}"
_IPV6 = rf"(?:{_HEX}:){{7}}{_HEX}|(?:{_HEX}(?::{_HEX}){{0,6}})?::(?:{_HEX}(?::{_HEX}){{0,6}})?"
_ADDRESS = f"(?:{_IPV6}|{_IPV4})"
_JSON = "struct<time:string,channel:string,page:string,user:string,isAnonymous:boolean,isRobot:boolean,_corrupt:string>"


def parse_wikipedia(lines: DataFrame, first: Sequence[str], *, secret: int | str = 0) -> DataFrame:
    """Parse the lines. `secret` keys the masks: without it, the address behind a mask cannot be found by trial."""
    match variant(first):
        case "json":
            return _parse_json(lines, secret)
        case "tsv":
            return _parse_tsv(lines, first, secret)
        case "jodie":
            return _parse_jodie(lines)
    raise InputError(
        "", "no edit log of a form that is known", "give JSON lines, `user TAB page TAB time`, or `user item time`"
    )


def variant(first: Sequence[str]) -> str | None:
    """json, tsv or jodie: what most of the first lines are."""
    lines = data_lines(first)
    for name, test in (("json", _is_json_edit), ("tsv", _is_tsv_edit), ("jodie", _is_jodie_edit)):
        if share(lines, test) > 0.5:
            return name
    return None


def _is_json_edit(line: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and {"time", "user", "page"} <= record.keys()


def _is_tsv_edit(line: str) -> bool:
    return len(line.split("\t")) == 3 and all(part.strip() for part in line.split("\t"))


def _is_jodie_edit(line: str) -> bool:
    return re.fullmatch(r"\d+ +\d+ +\d+(?:\.\d+)? *", line) is not None


def _parse_json(lines: DataFrame, secret: int | str) -> DataFrame:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    rows = without_comments(lines).withColumn("edit", F.from_json("line", _JSON, options))
    edit = F.col("edit")
    # A page's title is unique only within its channel, the language edition.
    page = F.when(edit["channel"].isNull(), edit["page"]).otherwise(
        F.concat(F.ltrim(edit["channel"], F.lit("#")), F.lit("/"), edit["page"])
    )
    rows = rows.withColumns(
        {
            "page": page,
            "time": _seconds(edit["time"]),
            "anonymous": F.coalesce(edit["isAnonymous"], F.lit(False)),
            "robot": F.coalesce(edit["isRobot"], F.lit(False)),
            "masked": F.coalesce(edit["isAnonymous"], F.lit(False)) | _is_address(edit["user"]),
        }
    ).withColumn("user", _user(edit["user"], F.col("masked"), secret))
    return judged(
        rows,
        EDITS,
        (edit.isNull() | edit["_corrupt"].isNotNull(), "not a JSON object of an edit"),
        *_common_problems(),
        (F.coalesce(edit["page"], F.lit("")) == "", "no page"),
        line=_without_addresses(F.col("line")),
    )


def _parse_tsv(lines: DataFrame, first: Sequence[str], secret: int | str) -> DataFrame:
    head = data_lines(first)[0].rstrip("\r")
    names = tuple(name.strip().lower() for name in head.split("\t"))
    has_header = sorted(names) == sorted(_HEADER)
    index_of = {name: (names if has_header else _HEADER).index(name) for name in _HEADER}
    rows = without_comments(lines)
    if has_header:
        rows = rows.where(F.col("line") != head)
    rows = rows.withColumn("field", fields(F.col("line"), "\t"))
    raw = {name: F.trim(F.get("field", F.lit(index))) for name, index in index_of.items()}
    rows = rows.withColumns(
        {
            "page": raw["page"],
            "time": _seconds(raw["time"]),
            "anonymous": _is_address(raw["user"]),
            "robot": F.lit(False),
            "masked": _is_address(raw["user"]),
        }
    ).withColumn("user", _user(raw["user"], F.col("masked"), secret))
    return judged(
        rows,
        EDITS,
        (F.size("field") != 3, "not 3 columns"),
        *_common_problems(),
        line=_without_addresses(F.col("line")),
    )


def _parse_jodie(lines: DataFrame) -> DataFrame:
    rows = without_comments(lines).withColumn("field", fields(F.col("line"), " "))
    user, page, time = (F.get("field", F.lit(index)) for index in range(3))
    rows = rows.withColumns(
        {
            "user": user,
            "page": page,
            "time": time.try_cast("double"),
            "anonymous": F.lit(False),
            "robot": F.lit(False),
            "masked": F.lit(False),
        }
    )
    return judged(
        rows,
        EDITS,
        (F.size("field") != 3, "not 3 columns"),
        (~(is_digits(user) & is_digits(page)), "user or page is not a whole number"),
        (not_finite(F.col("time")) | (F.col("time") < 0), "the time is not a number of seconds"),
    )


def _common_problems() -> list[tuple[Column, str]]:
    return [
        (F.coalesce(F.col("user"), F.lit("")) == "", "no user"),
        (F.coalesce(F.col("page"), F.lit("")) == "", "no page"),
        (not_finite(F.col("time")), "the time is neither seconds nor ISO 8601"),
    ]


def _seconds(text: Column) -> Column:
    stamp = text.try_cast("timestamp")
    return F.coalesce(text.try_cast("double"), F.unix_micros(stamp) / F.lit(1e6))


def _is_address(user: Column) -> Column:
    return F.coalesce(user.rlike(f"^{_ADDRESS}$"), F.lit(False))


def _user(user: Column, is_masked: Column, secret: int | str) -> Column:
    return F.when(is_masked & (user != ""), masked(user, secret)).otherwise(user)


def _without_addresses(line: Column) -> Column:
    return F.regexp_replace(line, rf"(?<![\w.:])({_ADDRESS})(?![\w:])", "<address>")


def sniff_wikipedia(first: Sequence[str]) -> float:
    lines = data_lines(first)
    if lines and sorted(name.strip().lower() for name in lines[0].split("\t")) == sorted(_HEADER):
        return 0.95
    return max(
        0.95 * share(lines, _is_json_edit),
        # Three columns with a time at the end; the middle one may be anything.
        0.8 * share(lines, lambda line: _is_tsv_edit(line) and _is_time(line.split("\t")[2].strip())),
        0.7 * share(lines, _is_jodie_edit) * _times_rise(lines),
    )


def _is_time(text: str) -> bool:
    return text == "time" or re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*|\d{9,}(\.\d+)?", text) is not None


def _times_rise(lines: list[str]) -> bool:
    times = [float(line.split()[2]) for line in lines if _is_jodie_edit(line)]
    return times == sorted(times)


SOURCES = (
    Source(
        "wikipedia",
        "edit logs: JSON lines, `user TAB page TAB time`, or JODIE's",
        EDITS,
        sniff_wikipedia,
        parse_wikipedia,
    ),
)
