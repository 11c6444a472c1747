"""Files and folders wherever Spark can reach them: on this machine, or behind hdfs://, s3a://, gs://.

All through Hadoop's own file systems, so that the driver sees what the executors see.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from trellis.errors import InputError


@dataclass(frozen=True)
class File:
    path: str  # as a user would write it
    bytes: int


class Places:
    """The file system behind a path, seen from the driver's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()

    def _path(self, path: str | Path) -> Any:
        text = str(path)
        # A local path is made absolute here: Hadoop's idea of the working folder is the JVM's.
        if not is_remote(text):
            text = Path(text).absolute().as_uri() if text else text
            return self._jvm.org.apache.hadoop.fs.Path(self._jvm.java.net.URI(text))
        return self._jvm.org.apache.hadoop.fs.Path(text)

    def _system(self, path: Any) -> Any:
        return path.getFileSystem(self._conf)

    def exists(self, path: str | Path) -> bool:
        at = self._path(path)
        return bool(self._system(at).exists(at))

    def is_folder(self, path: str | Path) -> bool:
        at = self._path(path)
        system = self._system(at)
        return bool(system.exists(at) and system.getFileStatus(at).isDirectory())

    def names_in(self, folder: str | Path) -> list[str]:
        at = self._path(folder)
        return sorted(status.getPath().getName() for status in self._system(at).listStatus(at))

    def rename(self, old: str | Path, new: str | Path) -> None:
        before, after = self._path(old), self._path(new)
        if not self._system(before).rename(before, after):
            raise InputError(str(new), "cannot be put in place", "check its rights, and that nobody else writes there")

    def remove(self, path: str | Path) -> None:
        at = self._path(path)
        self._system(at).delete(at, True)

    def write_bytes(self, path: str | Path, content: bytes) -> None:
        at = self._path(path)
        stream = self._system(at).create(at, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def files(self, paths: Iterable[str | Path]) -> list[File]:
        """The files behind paths, folders and globs, in the order of their names; a path without any is an error."""
        found: list[File] = []
        for path in paths:
            at = self._path(path)
            try:
                system = self._system(at)
                statuses = [system.getFileStatus(at)] if system.exists(at) else list(system.globStatus(at) or [])
            except Py4JJavaError as error:
                raise InputError(str(path), f"cannot be reached ({_first_line(error)})", "check the path") from error
            inside = [file for status in statuses for file in self._inside(status)]
            if not inside:
                raise InputError(str(path), "there is no such file", "check the path")
            found += inside
        return sorted(found, key=lambda file: file.path)

    def _inside(self, status: Any) -> list[File]:
        path = status.getPath()
        if not status.isDirectory():
            return [File(_shown(path), status.getLen())]
        return [
            File(_shown(child.getPath()), child.getLen())
            for child in self._system(path).listStatus(path)
            if not child.isDirectory() and child.getPath().getName()[0] not in "._"
        ]

    def checksum(self, file: File) -> dict[str, object]:
        """What a manifest keeps of an input: sha256 of a local file, what the store itself says of a remote one."""
        facts: dict[str, object] = {"path": file.path, "bytes": file.bytes}
        if not is_remote(file.path):
            with Path(file.path).open("rb") as stream:
                return facts | {"sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
        at = self._path(file.path)
        checksum = self._system(at).getFileChecksum(at)
        return facts | {"checksum": None if checksum is None else checksum.toString()}


def is_remote(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def for_reader(path: str) -> str:
    """The path as Spark's readers want it: they take [ ] { } * ? for patterns."""
    literal = path if is_remote(path) else Path(path).absolute().as_posix()
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", literal)


def _shown(path: Any) -> str:
    uri = path.toUri()
    return str(uri.getPath() if uri.getScheme() in (None, "file") else path.toString())


def _first_line(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage() or error.java_exception).splitlines()[0][:200]
