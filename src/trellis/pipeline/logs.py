"""Recognize logs by their content, so that each line is read once however its file is renamed, copied or compressed.

A log that was read has a *mark*: how many bytes of it were read, and the hash of the last bytes before that place. A
file carries the log if it begins with the same line and has the same bytes before the mark. So these are one log:

- a file, and the same file under another name (rotation by renaming)
- a file, and a copy of it, also while the copy is being written (rotation by copying and truncating)
- a file, and its .gz (offsets count bytes without compression)

Two files with the same content so far count as one until they differ. A file that has become shorter than its mark
was truncated, and begins with the same line: nobody can tell then what is new in it, so LogError is raised.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, TypedDict, cast

FIRST_LINE_BYTES_MAX = 1 << 20
MARK_BYTES = 4096  # hashed before a mark
GZIP_WRITTEN_S = 60.0  # A .gz that ends early and is younger is still being written.
_BLOCK = 1 << 20
_OTHERS = (".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate", ".zip")


class LogError(RuntimeError):
    """A log that cannot be followed. The text is one line for the user."""


class Mark(TypedDict):
    """The place up to which a log was read."""

    stop: int  # bytes, without compression; behind a line end
    tail: str  # hash of the last bytes before it


@dataclass(frozen=True)
class Log:
    """A file with at least one complete line."""

    path: str
    first: str  # hash of the first line
    stop: int  # the offset behind the last line end

    def tail(self, stop: int) -> str:
        """Return the hash of the bytes before `stop`."""
        begin = max(0, stop - MARK_BYTES)
        if self.path.endswith(".gz"):
            return _gzip_hash(self.path, _version(self.path), begin, stop)
        with Path(self.path).open("rb") as stream:
            stream.seek(begin)
            return _hash(stream.read(stop - begin))

    def mark(self) -> Mark:
        return {"stop": self.stop, "tail": self.tail(self.stop)}

    def carries(self, key: str, mark: Mark) -> bool:
        """Tell whether this file is the log of that key, read up to the mark or further."""
        return self.first == first_of(key) and self.stop >= mark["stop"] and self.tail(mark["stop"]) == mark["tail"]

    def begins(self, other: Log) -> bool:
        """Tell whether this file is `other` up to its own end."""
        return self.first == other.first and self.stop <= other.stop and self.tail(self.stop) == other.tail(self.stop)


def first_of(key: str) -> str:
    """Return the hash of the first line of the log with this key."""
    return key.partition("-")[0]


def recognized(logs: Iterable[Log], known: Mapping[str, Mark]) -> dict[str, Log]:
    """Return for each log that is there its key and the file to read it from. Known logs keep their keys."""
    leaders: dict[str, Log] = {}
    # The longest file of a log leads; the shortest are copies that are being written.
    left = sorted(logs, key=lambda log: (-log.stop, log.path))
    for key, mark in sorted(known.items(), key=lambda one: -one[1]["stop"]):
        leader = next((log for log in left if log.carries(key, mark)), None)
        if leader is not None:
            leaders[key] = leader
            left = [log for log in left if log is not leader and not log.begins(leader)]
    while left:
        leader = left[0]
        _refuse_truncated(leader, {key: mark for key, mark in known.items() if key not in leaders})
        leaders[f"{leader.first}-{leader.stop:x}-{leader.tail(leader.stop)[:8]}"] = leader
        left = [log for log in left[1:] if not log.begins(leader)]
    return leaders


def _refuse_truncated(log: Log, lost: Mapping[str, Mark]) -> None:
    read = max((mark["stop"] for key, mark in lost.items() if first_of(key) == log.first), default=0)
    if log.stop < read:
        raise LogError(f"the log {log.path} was truncated: it has {log.stop} bytes, and {read} were read of it")


def carrier(paths: list[str], key: str, mark: Mark, guess: str = "") -> str:
    """Return the path of the file that has the log up to the mark. `guess` is looked at first."""
    for log in complete_logs([guess] if guess else []):
        if log.carries(key, mark):
            return guess
    for log in complete_logs(paths):
        if log.carries(key, mark):
            return log.path
    raise LogError(f"a log was deleted before all of it was read, up to byte {mark['stop']}")


def complete_logs(paths: list[str]) -> Iterator[Log]:
    """Yield the files that have a complete line. A line that is being written is none."""
    for path in sorted(_files(paths)):
        try:
            if path.suffix in _OTHERS:
                raise LogError(
                    f"the log {path} cannot be read: {path.suffix} is not followed, only plain files and .gz"
                )
            log = _gzip_log(str(path), _version(str(path))) if path.suffix == ".gz" else _plain_log(path)
        except FileNotFoundError:
            continue  # It is being renamed. The next look finds it under its new name.
        except OSError as error:
            raise LogError(f"the log {path} cannot be read: {error.strerror or error}") from error
        if log is not None:
            yield log


def lines_between(path: str, start: int, stop: int) -> Iterator[bytes]:
    """Yield the lines between two offsets, without their ends. Both offsets are behind a line end, or 0."""
    with _opened(path) as stream:
        stream.seek(start)
        offset = start
        while offset < stop:
            line = stream.readline()
            if not line:
                raise LogError(f"the log {path} was truncated: it has {offset} bytes, and {stop} were there before")
            text = line.removeprefix(b"\xef\xbb\xbf") if offset == 0 else line
            offset += len(line)
            yield from text.splitlines()  # CR ends a line as well, as for the batch jobs


def _files(paths: list[str]) -> set[Path]:
    files: set[Path] = set()
    for path in map(Path, paths):
        if path.is_dir():
            inside = (one for one in path.rglob("*") if not _is_hidden(one.relative_to(path)))
            files |= {one for one in inside if one.is_file()}
        elif path.is_file():
            files.add(path)
        else:
            files |= {one for one in _matching(path) if one.is_file()}
    return files


def _matching(pattern: Path) -> Iterator[Path]:
    """Return what a pattern stands for, with patterns in any of its folders."""
    plain = Path(pattern.anchor)
    for index, name in enumerate(pattern.parts[bool(pattern.anchor) :]):
        if any(character in name for character in "*?["):
            return plain.glob("/".join(pattern.parts[bool(pattern.anchor) :][index:]))
        plain /= name
    return iter(())


def _is_hidden(path: Path) -> bool:
    return any(name.startswith((".", "_")) for name in path.parts)


def _plain_log(path: Path) -> Log | None:
    with path.open("rb") as stream:
        first = stream.readline(FIRST_LINE_BYTES_MAX)
        if not first.endswith(b"\n") and len(first) < FIRST_LINE_BYTES_MAX:
            return None
        stop = _last_line_end(stream, os.fstat(stream.fileno()).st_size)
    return Log(str(path), _hash(first), stop) if stop else None


@lru_cache(maxsize=4096)
def _gzip_log(path: str, version: tuple[int, ...]) -> Log | None:
    """`version` makes it look again when the file has changed."""
    offset, stop, first = 0, 0, b""
    try:
        with gzip.open(path, "rb") as stream:
            first = stream.readline(FIRST_LINE_BYTES_MAX)
            offset = len(first)
            stop = offset if first.endswith(b"\n") else 0
            while block := stream.read(_BLOCK):
                end = block.rfind(b"\n")
                stop = offset + end + 1 if end >= 0 else stop
                offset += len(block)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if time.time() - Path(path).stat().st_mtime < GZIP_WRITTEN_S:
            raise FileNotFoundError(path) from error  # It is being written, and is looked at again.
        raise LogError(f"the log {path} cannot be read: the gzip stream is damaged ({error})") from error
    return Log(path, _hash(first), stop) if stop else None


@lru_cache(maxsize=65536)
def _gzip_hash(path: str, version: tuple[int, ...], begin: int, stop: int) -> str:
    with gzip.open(path, "rb") as stream:
        stream.seek(begin)
        return _hash(stream.read(stop - begin))


def _version(path: str) -> tuple[int, ...]:
    stat = Path(path).stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


@contextmanager
def _opened(path: str) -> Iterator[IO[Any]]:
    if path.endswith(".gz"):
        with gzip.open(path, "rb") as unzipped:
            yield cast(IO[Any], unzipped)
    else:
        with Path(path).open("rb") as plain:
            yield plain


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _last_line_end(stream: Any, size: int) -> int:
    """Return the offset behind the last line end among the first `size` bytes."""
    stop = size
    while stop > 0:
        begin = max(0, stop - _BLOCK)
        stream.seek(begin)
        at = stream.read(stop - begin).rfind(b"\n")
        if at >= 0:
            return begin + int(at) + 1
        stop = begin
    return 0
