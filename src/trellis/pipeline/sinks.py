"""Whole folders or nothing: written beside their place under a hidden name, then renamed into it.

A folder of ours holds Parquet parts, Spark's `_SUCCESS`, `manifest.json`, and `_rejected/` where rows were set aside.
A job that is killed leaves at most a hidden `.NAME.*.part` folder: no reader of ours takes it for a result.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from pyspark.sql import DataFrame, SparkSession

from trellis.errors import InputError
from trellis.pipeline.failures import cancel_jobs
from trellis.pipeline.places import Places, for_reader, is_remote

MANIFEST = "manifest.json"


class Folder:
    """A result that is being written. The first table goes into the folder itself, others into folders below."""

    def __init__(self, spark: SparkSession, places: Places, path: str) -> None:
        self._spark, self._places, self.path = spark, places, path
        self.manifest: dict[str, object] = {}

    def write(self, table: DataFrame, name: str = "") -> int:
        """Writes the table, in its order, and gives the number of rows that are on disk."""
        path = _join(self.path, name)
        table.write.option("compression", "zstd").parquet(path)
        parts = self._spark.read.option("pathGlobFilter", "*.parquet").schema(table.schema).parquet(for_reader(path))
        return parts.count()

    def write_bytes(self, name: str, content: bytes) -> None:
        self._places.write_bytes(_join(self.path, name), content)


@contextmanager
def whole_folder(spark: SparkSession, output: str, *, overwrite: bool = False) -> Iterator[Folder]:
    """Gives a folder to write to; at the end adds its manifest and moves it into place; on any error removes it."""
    places = Places(spark)
    refuse_unless_free(places, output, overwrite=overwrite)
    token = secrets.token_hex(4)
    folder = Folder(spark, places, _beside(output, f"{token}.part"))
    try:
        yield folder
        places.write_bytes(_join(folder.path, MANIFEST), as_json(folder.manifest).encode())
        _put_in_place(places, folder.path, output, _beside(output, f"{token}.old"), overwrite=overwrite)
    except KeyboardInterrupt:
        cancel_jobs(spark)  # else its tasks go on, and write into the folder that is being removed
        raise
    finally:
        places.remove(folder.path)


def refuse_unless_free(places: Places, output: str, *, overwrite: bool) -> None:
    """InputError where `output` is taken, or is no folder of ours that `overwrite` may replace."""
    if not places.exists(output):
        return
    if not places.is_folder(output):
        raise InputError(output, "is a file", "name a folder to write to")
    names = places.names_in(output)
    if not overwrite:
        raise InputError(output, "exists already", "choose another folder, or pass --overwrite")
    if names and MANIFEST not in names:
        raise InputError(output, "was not written by trellis pipeline, so it stays", "choose another folder")


def _put_in_place(places: Places, new: str, output: str, aside: str, *, overwrite: bool) -> None:
    refuse_unless_free(places, output, overwrite=overwrite)  # somebody else may have come first
    if not places.exists(output):
        places.rename(new, output)
        return
    places.rename(output, aside)
    try:
        places.rename(new, output)
    except BaseException:
        places.rename(aside, output)
        raise
    places.remove(aside)


def as_json(value: object) -> str:
    """JSON for people: indented, sorted, numbers that are none as null."""
    return json.dumps(_plain(value), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if name else folder


def _beside(output: str, ending: str) -> str:
    path = output.rstrip("/")
    if is_remote(path):
        parent, _, name = path.rpartition("/")
        return f"{parent}/.{name}.{ending}"
    return str(PurePosixPath(path).with_name(f".{PurePosixPath(path).name}.{ending}"))
