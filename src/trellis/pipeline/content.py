"""Tell logs apart by their content, so that a log counts once, whatever its name is and whether it is compressed.

A log that is renamed or compressed when it is full has the same content. A log that has grown begins with content that
is known.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from trellis.errors import InputError
from trellis.pipeline.file_systems import File, FileSystems, is_remote

Entry = dict[str, Any]  # of a file, in the inputs of a manifest
_BLOCK = 1 << 20


def described(file_systems: FileSystems, file: File) -> Entry:
    """Return the entry of a file. That of a local .gz file has size and hash of what it contains as well."""
    entry: Entry = file_systems.checksum(file)
    if "sha256" not in entry:
        entry["sha256"] = file_systems.sha256(file.path)
    if file.path.endswith(".gz") and not is_remote(file.path):
        size, digest = 0, hashlib.sha256()
        for block in _blocks(file.path):
            size += len(block)
            digest.update(block)
        entry |= {"content_bytes": size, "content_sha256": digest.hexdigest()}
    return entry


def identity(entry: Entry) -> tuple[int, str]:
    """Return the size and the hash of a file's content, without compression where both are known."""
    size: int = entry.get("content_bytes") or entry.get("bytes") or 0
    return size, str(entry.get("content_sha256", entry.get("sha256", entry.get("checksum"))))


def begins_with(path: str, known: Iterable[Entry]) -> Entry | None:
    """Return the longest known log that a local file begins with, and that is shorter than it; else None."""
    shorter = sorted(((identity(entry), entry) for entry in known if identity(entry)[0]), key=lambda one: one[0])
    digest, at, longest = hashlib.sha256(), 0, None
    blocks, rest = _blocks(path), b""
    for (size, sha256), entry in shorter:
        while at < size:
            rest = rest or next(blocks, b"")
            if not rest:
                return longest  # the file is shorter than this and all further known logs
            taken = rest[: size - at]
            digest.update(taken)
            at, rest = at + len(taken), rest[len(taken) :]
        if digest.copy().hexdigest() == sha256 and (rest or (rest := next(blocks, b""))):
            longest = entry
    return longest


def _blocks(path: str) -> Iterator[bytes]:
    try:
        with Path(path).open("rb") as plain:
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if path.endswith(".gz") else plain
            while block := stream.read(_BLOCK):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(path, f"the gzip stream is damaged ({error})", "fetch or write the file again") from error
