"""Write results as folders that are complete or do not exist.

The folder of a result holds Parquet parts, Spark's `_SUCCESS`, `manifest.json`, and `_rejected/` if rows were rejected.
The manifest lists the files of the result. All readers in this package take these files and no others.

Some file systems rename folders at once (local ones, HDFS). There a result is written to a hidden folder beside the
output, and renamed at the end. A job that is killed leaves at most a hidden `.NAME.*.part` folder.

Object stores cannot rename a folder at once. There a result is written into the output, in a `data-*` folder of its
own. Writing the manifest, one object, makes it the result. A job that is killed leaves at most a `data-*` folder that
no manifest lists.
"""

from __future__ import annotations

import hashlib
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
from trellis.pipeline.file_systems import MANIFEST, FileSystems, for_reader, is_object_store, is_remote

DATA = "data-"  # folders of results that are committed by their manifest


class Folder:
    """A result that is being written. The first table goes into the folder itself, others into folders below."""

    def __init__(self, spark: SparkSession, file_systems: FileSystems, path: str, scratch: str) -> None:
        self._spark, self._places, self.path = spark, file_systems, path
        self.scratch = scratch  # a folder for what the job itself needs on the way; it is removed at the end
        self.manifest: dict[str, object] = {}
        self.before: dict[str, Any] = {}  # the manifest of the result that this one is appended to
        self.before_sha256 = ""  # of that manifest

    def write(self, table: DataFrame, name: str = "", *, by: str | None = None) -> int:
        """Write the table, in its order, and return the number of rows that are on disk. `by`: a folder per value."""
        path = _join(self.path, name)
        writer = table.write.option("compression", "zstd")
        (writer.partitionBy(by) if by else writer).parquet(path)
        parts = self._spark.read.option("pathGlobFilter", "*.parquet").schema(table.schema).parquet(for_reader(path))
        return parts.count()

    def finished(self, listed: list[dict[str, object]]) -> bytes:
        """Return the manifest with the files of the result: those of earlier runs, and those that are new."""
        runs = self.manifest.get("runs")
        if isinstance(runs, list) and runs:
            runs[-1]["outputs"] = [entry["path"] for entry in listed]
        return as_json(self.manifest | {"outputs": [*self.before.get("outputs", []), *listed]}).encode()

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
    file_systems = FileSystems(spark)
    before = _appendable(file_systems, output, append) if append else None
    if before is None:
        refuse_unless_free(file_systems, output, overwrite=overwrite)
    token = secrets.token_hex(4)
    stored = (is_object_store(output) if by_manifest is None else by_manifest) or before is not None
    path = _join(output, f"{DATA}{token}") if stored else _beside(output, f"{token}.part")
    folder = Folder(spark, file_systems, path, _beside(output, f"{token}.scratch"))
    folder.before = before or {}
    if before is not None:
        folder.before_sha256 = hashlib.sha256(file_systems.read_bytes(_join(output, MANIFEST))).hexdigest()
    done = False
    try:
        yield folder
        listed = file_systems.listed(folder.path, below=f"{DATA}{token}/" if stored else "")
        content = folder.finished(listed)
        if stored:
            if before is not None and file_systems.manifest(output) != before:
                raise InputError(output, "has changed since this job began", "run it again")
            old = [] if before is not None else _data_folders(file_systems, output)
            file_systems.replace(_join(output, MANIFEST), content)  # from here on it is the result
            done = True
            for name in old:
                file_systems.remove(_join(output, name))
        else:
            file_systems.write_bytes(_join(folder.path, MANIFEST), content)
            _commit(file_systems, folder.path, output, _beside(output, f"{token}.old"), overwrite=overwrite)
    except (KeyboardInterrupt, SystemExit):
        cancel_jobs(spark)  # else its tasks go on, and write into the folder that is being removed
        raise
    finally:
        for left in (folder.scratch,) if done else (folder.scratch, folder.path):
            _remove(file_systems, left)


def _appendable(file_systems: FileSystems, output: str, job: str) -> dict[str, Any] | None:
    """The manifest of the result to append to; None where there is none yet; InputError where it is another's."""
    manifest = file_systems.manifest(output) if file_systems.is_folder(output) else None
    if manifest is None:
        return None
    if manifest.get("job") != job:
        raise InputError(output, f"was not written by trellis pipeline {job}", "append to a result of the same job")
    return manifest


def refuse_unless_free(file_systems: FileSystems, output: str, *, overwrite: bool) -> None:
    """Raise InputError if `output` exists, unless `overwrite` is set and it is a result that may be replaced."""
    if not file_systems.exists(output):
        return
    if not file_systems.is_folder(output):
        raise InputError(output, "is a file", "name a folder to write to")
    names = file_systems.names_in(output)
    if names and all(name.startswith(DATA) for name in names):
        return  # left by a job that was killed before it wrote its manifest
    if not overwrite:
        raise InputError(output, "exists already", "choose another folder, or pass --overwrite")
    if names and MANIFEST not in names:
        raise InputError(output, "was not written by trellis pipeline, so it stays", "choose another folder")


def _data_folders(file_systems: FileSystems, output: str) -> list[str]:
    """The data folders of the present manifest. Those of other jobs that write at this moment must stay."""
    manifest = file_systems.manifest(output) or {}
    outputs = manifest.get("outputs")
    paths = [str(entry["path"]) for entry in outputs] if isinstance(outputs, list) else []
    return sorted({path.partition("/")[0] for path in paths if path.startswith(DATA)})


def _commit(file_systems: FileSystems, new: str, output: str, aside: str, *, overwrite: bool) -> None:
    refuse_unless_free(file_systems, output, overwrite=overwrite)  # Another job may have written it meanwhile.
    if not file_systems.exists(output):
        file_systems.rename(new, output)
        return
    file_systems.rename(output, aside)
    try:
        file_systems.rename(new, output)
    except BaseException:
        file_systems.rename(aside, output)
        raise
    file_systems.remove(aside)


def _remove(file_systems: FileSystems, path: str) -> None:
    """Remove a folder, also if Java has ended: the signal that ends this process may have reached Java as well."""
    with suppress(Exception):
        file_systems.remove(path)
        return
    if not is_remote(path):
        shutil.rmtree(path, ignore_errors=True)


def as_json(value: object) -> str:
    """Return JSON that is easy to read: indented, sorted, and with null for NaN and infinity."""
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
