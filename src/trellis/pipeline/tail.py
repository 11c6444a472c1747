"""Log files that grow, as a stream of Spark: each line once, across stops, starts and rotations.

Spark's own source of files takes each file once, when it appears. Logs grow, and are renamed, copied or compressed when
they are full. So an offset of this source has a mark for each log, which `logs.py` recognizes by its content:

T1  A log that is not there at a look keeps its mark, and no mark goes back. So no line is read twice.
T2  A line is read when its end has been written.

The driver and the executors must be able to read the files. It needs Spark 4.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from trellis.pipeline.logs import LogError, Mark, carrier, complete_logs, lines_between, recognized

NAME = "trellis_tail"
SCHEMA = "file string, line binary"
GONE_MAX = 10_000  # marks of logs that are not there any more
_ROWS = 50_000  # lines in one batch of Arrow

Marks = dict[str, Mark]


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
    """Some lines of a log: those from `start` to the mark."""

    def __init__(self, key: str, start: int, mark: Mark, path: str) -> None:
        self.key, self.start, self.mark = key, start, mark
        self.path = path  # where the log was when the piece was planned


class Tail(DataSourceStreamReader):
    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def initialOffset(self) -> Marks:
        return {}

    def latestOffset(self, start: Any = None, limit: Any = None) -> Marks:
        """Return the mark behind the complete lines of each log. A batch has no upper bound: everything is read."""
        before: Marks = start or {}
        logs = recognized(complete_logs(self.paths), before)
        marks = dict(before)
        for key, log in sorted(logs.items()):
            mark = log.mark()
            if marks.get(key) != mark:
                marks.pop(key, None)
                marks[key] = mark  # at the end: the marks that changed last come last
        if marks != before:
            gone = [key for key in marks if key not in logs]
            for key in gone[: max(0, len(gone) - GONE_MAX)]:
                del marks[key]
        return marks

    def partitions(self, start: Marks, end: Marks) -> list[InputPartition]:
        logs = list(complete_logs(self.paths))
        pieces: list[InputPartition] = []
        for key, mark in sorted(end.items()):
            begin = start[key]["stop"] if key in start else 0
            if mark["stop"] > begin:
                log = next((log for log in logs if log.carries(key, mark)), None)
                if log is None:
                    what = f"at byte {begin} of {mark['stop']}"
                    raise LogError(f"a log was deleted before all of it was read, {what}")
                pieces.append(Piece(key, begin, mark, log.path))
        return pieces

    def read(self, partition: Any) -> Iterator[Any]:
        import pyarrow as pa

        # The log may have been renamed since the piece was planned, and another one may have its name now.
        path = carrier(self.paths, partition.key, partition.mark, partition.path)
        lines: list[bytes] = []
        for line in lines_between(path, partition.start, partition.mark["stop"]):
            lines.append(line)
            if len(lines) == _ROWS:
                yield _batch(pa, path, lines)
                lines = []
        if lines:
            yield _batch(pa, path, lines)


def _batch(pa: Any, path: str, lines: list[bytes]) -> Any:
    columns = [pa.array([path] * len(lines), pa.string()), pa.array(lines, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["file", "line"])
