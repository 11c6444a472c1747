"""Whole folders or nothing.

A folder of ours holds Parquet parts, Spark's `_SUCCESS`, `manifest.json`, and `_rejected/` where rows were set aside.
The manifest lists the files of the result: readers of ours take these and no others.

On file systems that rename folders at once (this machine's, HDFS), a result is written beside its place under a hidden
name and renamed into it. A job that is killed leaves at most a hidden `.NAME.*.part` folder.

Object stores cannot rename a folder at once. There a result is written into its place, below a `data-*` folder of its
own, and writing the manifest, one object, makes it the result. A job that is killed leaves at most a `data-*` folder
that no manifest lists.
"""

from __future__ import annotations

import json
import math
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trellis.errors import InputError
from trellis.pipeline.failures import cancel_jobs
from trellis.pipeline.places import MANIFEST, Places, for_reader, is_object_store, is_remote

DATA = "data-"  # folders of results that are committed by their manifest


class Folder:
    """A result that is being written. The first table goes into the folder itself, others into folders below."""

    def __init__(self, spark: SparkSession, places: Places, path: str, scratch: str) -> None:
        self._spark, self._places, self.path = spark, places, path
        self.scratch = scratch  # a folder for what the job itself needs on the way; it is removed at the end
        self.manifest: dict[str, object] = {}
        self.before: dict[str, Any] = {}  # the manifest of the result that this one is appended to

    def write(self, table: DataFrame, name: str = "", *, by: str | None = None) -> int:
        """Write the table, in its order, and return the number of rows that are on disk. `by`: a folder per value."""
        path = _join(self.path, name)
        writer = table.write.option("compression", "zstd")
        (writer.partitionBy(by) if by else writer).parquet(path)
        parts = self._spark.read.option("pathGlobFilter", "*.parquet").schema(table.schema).parquet(for_reader(path))
        return parts.count()

    def write_bytes(self, name: str, content: bytes) -> None:
        self._places.write_bytes(_join(self.path, name), content)


@contextmanager
def whole_folder(
    spark: SparkSession,
    output: str,
    *,
    overwrite: bool = False,
    append: str | None = None,
    by_manifest: bool | None = None,
) -> Iterator[Folder]:
    """Give a folder to write to; at the end add its manifest and make it the result; on any error remove it.

    append        the job whose result is added to, where there is one already: its files stay, and the new manifest
                  lists them as well
    by_manifest   commit by the manifest, without renaming anything; without: on object stores, and to append
    """
    places = Places(spark)
    before = _appendable(places, output, append) if append else None
    if before is None:
        refuse_unless_free(places, output, overwrite=overwrite)
    token = secrets.token_hex(4)
    stored = (is_object_store(output) if by_manifest is None else by_manifest) or before is not None
    path = _join(output, f"{DATA}{token}") if stored else _beside(output, f"{token}.part")
    folder = Folder(spark, places, path, _beside(output, f"{token}.scratch"))
    folder.before = before or {}
    done = False
    try:
        yield folder
        listed = places.listed(folder.path, below=f"{DATA}{token}/" if stored else "")
        content = as_json(folder.manifest | {"outputs": [*folder.before.get("outputs", []), *listed]}).encode()
        if stored:
            if before is not None and places.manifest(output) != before:
                raise InputError(output, "has changed since this job began", "run it again")
            old = [] if before is not None else _data_folders(places, output)
            places.replace(_join(output, MANIFEST), content)  # from here on it is the result
            done = True
            for name in old:
                places.remove(_join(output, name))
        else:
            places.write_bytes(_join(folder.path, MANIFEST), content)
            _put_in_place(places, folder.path, output, _beside(output, f"{token}.old"), overwrite=overwrite)
    except (KeyboardInterrupt, SystemExit):
        cancel_jobs(spark)  # else its tasks go on, and write into the folder that is being removed
        raise
    finally:
        for left in (folder.scratch,) if done else (folder.scratch, folder.path):
            _remove(places, left)


def _appendable(places: Places, output: str, job: str) -> dict[str, Any] | None:
    """The manifest of the result to append to; None where there is none yet; InputError where it is another's."""
    found = places.manifest(output) if places.is_folder(output) else None
    if found is None:
        return None
    if found.get("job") != job:
        raise InputError(output, f"was not written by trellis pipeline {job}", "append to a result of the same job")
    return found


def refuse_unless_free(places: Places, output: str, *, overwrite: bool) -> None:
    """InputError where `output` is taken, or is no folder of ours that `overwrite` may replace."""
    if not places.exists(output):
        return
    if not places.is_folder(output):
        raise InputError(output, "is a file", "name a folder to write to")
    names = places.names_in(output)
    if names and all(name.startswith(DATA) for name in names):
        return  # left by a job that was killed before it wrote its manifest
    if not overwrite:
        raise InputError(output, "exists already", "choose another folder, or pass --overwrite")
    if names and MANIFEST not in names:
        raise InputError(output, "was not written by trellis pipeline, so it stays", "choose another folder")


def _data_folders(places: Places, output: str) -> list[str]:
    """The data folders of the present manifest. Those of other jobs that write at this moment must stay."""
    manifest = places.manifest(output) or {}
    outputs = manifest.get("outputs")
    paths = [str(entry["path"]) for entry in outputs] if isinstance(outputs, list) else []
    return sorted({path.partition("/")[0] for path in paths if path.startswith(DATA)})


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


def _remove(places: Places, path: str) -> None:
    """Remove a folder, also where Java has ended: the signal that ends us may have gone to Java as well."""
    with suppress(Exception):
        places.remove(path)
        return
    if not is_remote(path):
        shutil.rmtree(path, ignore_errors=True)


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
