"""Files and folders that Spark can reach: on this machine, or behind hdfs://, s3a://, gs://.

All access goes through Hadoop's file systems, so the driver sees the same files as the executors.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from trellis.errors import InputError

MANIFEST = "manifest.json"
OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl", "oss", "cos", "cosn", "obs")
DEPTH_MAX = 32  # folders inside folders


@dataclass(frozen=True)
class File:
    path: str  # as a user would write it
    bytes: int


class FileSystems:
    """Operations on paths, each by the file system of its path, in the driver's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()
        self._gateway: Any = spark.sparkContext._gateway

    def _path(self, path: str | Path) -> Any:
        text = str(path)
        # A local path is made absolute here, since Hadoop would take it relative to the JVM's working folder.
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
            raise InputError(str(new), "cannot be created", "check its rights, and that no other job writes there")

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

    def replace(self, path: str, content: bytes) -> None:
        """Replace a file at once: a reader sees the old content or the new one, and nothing between."""
        if is_object_store(path):
            self.write_bytes(path, content)  # one object, which a store replaces at once
            return
        fresh = f"{path}.{secrets.token_hex(4)}.new"
        if is_remote(path):
            self.write_bytes(fresh, content)
            files = self._jvm.org.apache.hadoop.fs
            over = self._gateway.new_array(getattr(files, "Options$Rename"), 1)
            over[0] = getattr(files, "Options$Rename").OVERWRITE
            at = self._path(path)
            files.FileContext.getFileContext(at.toUri(), self._conf).rename(self._path(fresh), at, over)
            return
        target = Path(path)
        Path(fresh).write_bytes(content)
        target.with_name(f".{target.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the old content
        Path(fresh).replace(target)

    def files(self, paths: Iterable[str | Path]) -> list[File]:
        """Return the files behind paths, folders and globs, sorted by name. Raise InputError for a path without any."""
        files: list[File] = []
        for path in paths:
            at = self._path(path)
            try:
                system = self._system(at)
                statuses = [system.getFileStatus(at)] if system.exists(at) else list(system.globStatus(at) or [])
            except Py4JJavaError as error:
                raise InputError(str(path), f"cannot be reached ({_first_line(error)})", "check the path") from error
            inside = [file for status in statuses for file in self._of_result(status)]
            if not inside:
                raise InputError(str(path), "there is no such file", "check the path")
            files += inside
        return sorted(files, key=lambda file: file.path)

    def _of_result(self, status: Any) -> list[File]:
        """Return the files of a folder. Of a result, return only those that its manifest lists."""
        inside = self._inside(status)
        folder = _shown(status.getPath())
        outputs = ((self.manifest(folder) or {}) if status.isDirectory() else {}).get("outputs")
        if not isinstance(outputs, list):
            return inside
        listed = {f"{folder.rstrip('/')}/{entry['path']}": entry for entry in outputs if _is_visible(entry["path"])}
        missing = sorted(listed.keys() - {file.path for file in inside})
        if missing:
            raise InputError(missing[0], "is listed in the manifest of its folder, and is not there", "make it again")
        return [file for file in inside if file.path in listed]

    def manifest(self, folder: str | Path) -> dict[str, Any] | None:
        """Return the manifest of a result, or None if the folder has none that can be read."""
        path = f"{str(folder).rstrip('/')}/{MANIFEST}"
        if not self.exists(path):
            return None
        try:
            manifest = json.loads(self.read_bytes(path))
        except ValueError:
            return None
        return manifest if isinstance(manifest, dict) else None

    def read_bytes(self, path: str | Path) -> bytes:
        at = self._path(path)
        stream = self._system(at).open(at)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of a file that only Hadoop reaches. All of it passes through the driver."""
        at = self._path(path)
        stream = self._system(at).open(at)
        try:
            return str(self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
        finally:
            stream.close()

    def listed(self, folder: str, *, below: str = "") -> list[dict[str, object]]:
        """Return the entries of a manifest for the files of a result: their paths within it, sizes and checksums."""
        at = self._path(folder)
        system = self._system(at)
        if not system.exists(at):
            return []
        root = _shown(system.getFileStatus(at).getPath()).rstrip("/")
        files = sorted(self._inside(system.getFileStatus(at), hidden="_"), key=lambda file: file.path)
        return [self.checksum(file) | {"path": below + file.path.removeprefix(f"{root}/")} for file in files]

    def _inside(self, status: Any, depth: int = 0, hidden: str = "") -> list[File]:
        """Return the files of a folder and of the folders below (`date=2026-11-18/part-0`), without hidden ones.

        hidden   first letters that usually hide a file, but not here
        """
        path = status.getPath()
        if not status.isDirectory():
            return [File(_shown(path), status.getLen())]
        if depth > DEPTH_MAX:
            raise InputError(_shown(path), f"lies more than {DEPTH_MAX} folders deep", "name a folder further down")
        skipped = tuple({".", "_"} - set(hidden))
        inside = [
            child
            for child in self._system(path).listStatus(path)
            if not child.getPath().getName().startswith(skipped) and child.getPath().getName() != "_SUCCESS"
        ]
        # The manifest of a result is in the same folder as its parts, and is not one of them.
        children = [child for child in inside if child.getPath().getName() != MANIFEST]
        return [file for child in children for file in self._inside(child, depth + 1, hidden)]

    def first_bytes(self, path: str, count: int) -> bytes:
        at = self._path(path)
        stream = self._system(at).open(at)
        try:
            content = [stream.read() for _ in range(count)]
        finally:
            stream.close()
        return bytes(one for one in content if one >= 0)

    def last_byte(self, file: File) -> bytes:
        at = self._path(file.path)
        stream = self._system(at).open(at)
        try:
            stream.seek(file.bytes - 1)
            return bytes([stream.read()])
        finally:
            stream.close()

    def checksum(self, file: File) -> dict[str, object]:
        """Return a file's entry in a manifest: sha256 of a local file, the store's own checksum of a remote one.

        A store without checksums of its own, as S3 by default, has its files read for their sha256.
        """
        facts: dict[str, object] = {"path": file.path, "bytes": file.bytes}
        if not is_remote(file.path):
            with Path(file.path).open("rb") as stream:
                return facts | {"sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
        at = self._path(file.path)
        checksum = self._system(at).getFileChecksum(at)
        return facts | ({"sha256": self.sha256(file.path)} if checksum is None else {"checksum": checksum.toString()})


def _is_visible(path: str) -> bool:
    """Tell whether neither the file nor a folder in its path is hidden."""
    return not any(part.startswith(("_", ".")) for part in path.split("/"))


def is_object_store(path: str) -> bool:
    """Tell whether the path is in an object store, where a folder cannot be renamed at once."""
    return is_remote(path) and path.partition("://")[0].lower() in OBJECT_STORES


def is_remote(path: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def for_reader(path: str) -> str:
    """Return the path as Spark's readers need it, with [ ] { } * ? quoted, since they read these as patterns."""
    literal = path if is_remote(path) else Path(path).absolute().as_posix()
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", literal)


def shown_path(uri: str) -> str:
    """Return a path as a user writes it: /a b for file:/a%20b and file:///a%20b."""
    return urllib.parse.unquote(re.sub(r"^file:(//)?", "", uri)) if uri.startswith("file:") else uri


def _shown(path: Any) -> str:
    uri = path.toUri()
    return str(uri.getPath() if uri.getScheme() in (None, "file") else path.toString())


def _first_line(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage() or error.java_exception).splitlines()[0][:200]
