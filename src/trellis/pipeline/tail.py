"""Log files that grow, as a stream of Spark: each line once, across stops, starts and rotations.

Spark's own source of files takes each file once, when it appears. Logs grow, and are renamed when they are full. So
here an offset says how many bytes of each file were read, and a file is identified by its inode and the hash of its
first line, not by its name. A line is read when its end has been written.

The driver and the executors must be able to read the files. It needs Spark 4.2.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

NAME = "trellis_tail"
SCHEMA = "file string, line binary"
FIRST_LINE_BYTES_MAX = 1 << 20
_BLOCK = 1 << 20
_ROWS = 50_000  # lines in one batch of Arrow


class TailSource(DataSource):
    """`spark.readStream.format("trellis_tail").option("paths", JSON list of files, folders and patterns)`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return Tail(json.loads(self.options["paths"]))


class Piece(InputPartition):
    def __init__(self, path: str, start: int, stop: int) -> None:
        self.path, self.start, self.stop = path, start, stop


class Tail(DataSourceStreamReader):
    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def initialOffset(self) -> dict[str, int]:
        return {}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """Return for each file the end of its complete lines. A batch has no upper bound: everything is read."""
        return {key: stop for key, (_, stop) in complete_lines(self.paths).items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        known = complete_lines(self.paths)
        pieces: list[InputPartition] = []
        for key, stop in sorted(end.items()):
            first = start.get(key, 0)
            if stop > first:
                if key not in known:
                    raise RuntimeError(f"a log was deleted before all of it was read, at byte {first} of {stop}")
                pieces.append(Piece(known[key][0], first, stop))
        return pieces

    def read(self, partition: Any) -> Iterator[Any]:
        import pyarrow as pa

        lines: list[bytes] = []
        for line in lines_between(partition.path, partition.start, partition.stop):
            lines.append(line)
            if len(lines) == _ROWS:
                yield _batch(pa, partition.path, lines)
                lines = []
        if lines:
            yield _batch(pa, partition.path, lines)


def complete_lines(paths: list[str]) -> dict[str, tuple[str, int]]:
    """Return the identity of each file with a complete line, its path, and the offset behind its last line end."""
    files: dict[str, tuple[str, int]] = {}
    for path in sorted(_files(paths)):
        try:
            with path.open("rb") as stream:
                first = stream.readline(FIRST_LINE_BYTES_MAX)
                if not first.endswith(b"\n"):
                    continue
                stat = path.stat()
                stop = _last_line_end(stream, stat.st_size)
        except OSError:
            continue  # It is being renamed or deleted. The next look finds it under its new name.
        key = f"{stat.st_ino}-{hashlib.sha256(first).hexdigest()[:16]}"
        files[key] = (str(path), stop)
    return files


def lines_between(path: str, start: int, stop: int) -> Iterator[bytes]:
    """Yield the lines between two offsets, without their ends. Both offsets are behind a line end, or 0."""
    with Path(path).open("rb") as stream:
        stream.seek(start)
        offset = start
        while offset < stop:
            line = stream.readline()
            if not line:
                raise RuntimeError(f"{path} became shorter than it was: {offset} of {stop} bytes")
            offset += len(line)
            yield line.rstrip(b"\r\n")


def _files(paths: list[str]) -> Iterator[Path]:
    for path in paths:
        if Path(path).is_dir():
            inside = (one for one in Path(path).rglob("*") if not one.name.startswith((".", "_")))
            yield from (one for one in inside if one.is_file())
        elif Path(path).is_file():
            yield Path(path)
        else:
            yield from (one for one in Path(path).parent.glob(Path(path).name) if one.is_file())


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


def _batch(pa: Any, path: str, lines: list[bytes]) -> Any:
    columns = [pa.array([path] * len(lines), pa.string()), pa.array(lines, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["file", "line"])
