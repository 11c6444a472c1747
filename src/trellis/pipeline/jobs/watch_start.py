"""Check, before a watch starts, that its output, its state and its checkpoint belong together.

The checkpoint is Spark's: which lines belong to which batch. The state is ours, and names the latest batch in it. If
one of them is lost or of another run, lines would be left out or counted twice, and nobody would see it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from trellis.errors import InputError
from trellis.pipeline import inputs
from trellis.pipeline.file_systems import FileSystems, is_remote
from trellis.pipeline.logs import LogError, complete_logs, lines_between
from trellis.pipeline.sources import sniff_format, source_named
from trellis.pipeline.sources.parsing import Source
from trellis.pipeline.streams import kind_of

FORMATS = ("events", "mosquitto")
_ELSEWHERE = "watch into another folder"


def absolute(path: str | Path) -> str:
    """Return a local path as an absolute one; an address stays as it is."""
    return str(path) if is_remote(str(path)) else str(Path(path).absolute())


def refuse_output_among_logs(output: str, logs: Sequence[str]) -> None:
    """Raise InputError if the output would be followed as a log."""
    for path in logs:
        if not is_remote(path) and not is_remote(output) and Path(output).is_relative_to(path):
            raise InputError(output, f"lies in {path}, which is followed", "write to a folder elsewhere")


def source_of(spark: SparkSession, logs: Sequence[str], format: str | None) -> Source:
    """Return the source for the logs: the named one, or the one that the first lines tell."""
    if format:
        return source_named(format, FORMATS)
    kind = kind_of(logs)
    if kind == "kafka":
        raise InputError(logs[0], "does not tell its format", f"name it: --format {' or '.join(FORMATS)}")
    if kind == "complete files":
        files = FileSystems(spark).files(logs)
        return sniff_format(inputs.first_lines(spark, files, "text"), FORMATS, files[0].path)
    try:
        log = next(complete_logs(list(logs)), None)
        if log is None:
            what = "there is no log with a line in it yet"
            raise InputError(logs[0], what, f"name its format: {', '.join(FORMATS)}")
        lines = islice(lines_between(log.path, 0, log.stop), inputs.FIRST_LINES)
        return sniff_format([line.decode("utf-8", "replace") for line in lines], FORMATS, log.path)
    except LogError as error:
        raise InputError("", str(error), "move it elsewhere, or make it readable") from error


def refuse_other_run(file_systems: FileSystems, output: str, settings: Mapping[str, Any]) -> None:
    """Raise InputError unless the folder is free, or has state and checkpoint of a watch with these settings."""
    manifest = file_systems.manifest(f"{output}/state")
    checkpoint = f"{output}/_checkpoint"
    begun, done = (_numbers(file_systems, f"{checkpoint}/{name}") for name in ("offsets", "commits"))
    if manifest is None:
        if done:
            raise InputError(output, "has a _checkpoint, and its state is lost", _ELSEWHERE)
        return
    if not begun:
        raise InputError(output, "has a state without its _checkpoint", _ELSEWHERE)
    facts = manifest.get("facts") or {}
    is_of_it = max(done, default=-1) <= facts.get("batch", -1) <= max(begun)
    if not is_of_it or facts.get("checkpoint") != checkpoint_id(file_systems, output):
        raise InputError(output, "has a state and a _checkpoint of different runs", _ELSEWHERE)
    file_systems.files([f"{output}/state"])  # InputError if a file of the state is lost
    _refuse_other_settings(output, manifest.get("parameters") or {}, settings)


def checkpoint_id(file_systems: FileSystems, output: str) -> str | None:
    """Return the name that Spark gave to the checkpoint, or None if it has none yet."""
    path = f"{output}/_checkpoint/metadata"
    if not file_systems.exists(path):
        return None
    try:
        return str(json.loads(file_systems.read_bytes(path))["id"])
    except (ValueError, KeyError, TypeError):
        return None


def _refuse_other_settings(output: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for key, option in (("format", "--format"), ("watermark_s", "--watermark")):
        if before.get(key) != now[key]:
            what = f"was made with {option} {before.get(key)}, not {now[key]}"
            raise InputError(output, what, f"give the same {option}, or {_ELSEWHERE}")
    left_out = [path for path in before.get("logs", []) if path not in now["logs"]]
    if left_out:
        raise InputError(output, f"also follows {left_out[0]}", f"name that as well, or {_ELSEWHERE}")
    if before.get("logs") != now["logs"] and kind_of(now["logs"]) != "growing files":
        what = f"follows {', '.join(before.get('logs', []))}"
        raise InputError(output, what, f"only growing files can be added to others; {_ELSEWHERE}")


def _numbers(file_systems: FileSystems, folder: str) -> list[int]:
    """Return the numbers of the batches that a folder of the checkpoint has."""
    if not file_systems.is_folder(folder):
        return []
    return [int(name) for name in file_systems.names_in(folder) if name.isdigit()]
