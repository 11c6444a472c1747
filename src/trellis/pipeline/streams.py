"""The lines that a watch follows, as a stream of Spark: from growing files, from object stores, or from Kafka.

Growing files      of this machine, or of a folder that all machines share: `tail.py`
s3a://..., hdfs    files that are complete when they appear. Each is read once; what is appended to it later is not read
kafka://HOST:9092/TOPIC    the values of its messages, from the earliest that is kept. It needs Spark's connector
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import reduce
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.file_systems import is_remote
from trellis.pipeline.tail import NAME, TailSource

Kind = Literal["growing files", "complete files", "kafka"]

_KAFKA = re.compile(r"kafka://([^/\s]+)/([^/\s]+)")
# Spark's default is a week. A file that is older than the newest one by more would be left out, and nobody told.
_FILE_AGE_MAX = "36500d"


def kind_of(paths: Sequence[str]) -> Kind:
    """Return the kind of source that the paths name. Raise InputError if they are of several kinds."""
    kinds = [_kind(path) for path in paths]
    if len(set(kinds)) > 1:
        raise InputError(paths[0], f"is followed together with {kinds[-1]}", "follow one kind of source at a time")
    return kinds[0]


def lines_from(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the stream of lines: file, line."""
    kind = kind_of(paths)
    if kind == "growing files":
        spark.dataSource.register(TailSource)
        stream = spark.readStream.format(NAME).option("paths", json.dumps(paths)).load()
        return stream.select("file", F.col("line").cast("string").alias("line"))
    streams = [(_messages if kind == "kafka" else _complete_files)(spark, path) for path in paths]
    return reduce(DataFrame.union, streams)


def _kind(path: str) -> Kind:
    if path.lower().startswith("kafka://"):
        _kafka_parts(path)
        return "kafka"
    return "complete files" if is_remote(path) else "growing files"


def _complete_files(spark: SparkSession, path: str) -> DataFrame:
    reader = spark.readStream.format("text").option("recursiveFileLookup", "true")
    stream = reader.option("maxFileAge", _FILE_AGE_MAX).load(path)
    return stream.select(F.col("_metadata.file_path").alias("file"), F.col("value").alias("line"))


def _messages(spark: SparkSession, path: str) -> DataFrame:
    servers, topic = _kafka_parts(path)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("kafka").options(**options).load()
    file = F.concat(F.lit("kafka:"), F.col("topic"), F.lit("/"), F.col("partition"))
    return stream.select(file.alias("file"), F.col("value").cast("string").alias("line"))


def _kafka_parts(path: str) -> tuple[str, str]:
    match = _KAFKA.fullmatch(path)
    if match is None:
        raise InputError(path, "is no address of a topic of Kafka", "write kafka://HOST:9092/TOPIC")
    return match.group(1), match.group(2)
