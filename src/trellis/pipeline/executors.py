"""Check before a job starts whether the executors can run its kernels, so that it does not fail later.

A job whose stages run Python in executors needs the driver's version of Python there, and the packages that its
kernels import. Spark does not say which executor runs a task, so twice as many tasks are started as there are cores. An
executor that none of them reaches is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING

from trellis.errors import TrellisError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = ("numpy", "numba", "pyarrow")
_TASKS_MAX = 256
_REMEDY = 'install the extra "pipeline" there, or name another Python: --conf spark.pyspark.python=/opt/venv/bin/python'

Answer = tuple[str, dict[str, str]]  # a host, and the version of each needed package that it has


def check_executors(spark: SparkSession) -> dict[str, str]:
    """Return the versions that the executors have. Raise TrellisError if they cannot run the kernels."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    context = spark.sparkContext
    tasks = min(_TASKS_MAX, max(2, 2 * context.defaultParallelism))
    try:
        answers = context.parallelize(range(tasks), tasks).mapPartitions(_ask).collect()
    except (Py4JJavaError, PySparkException) as error:
        reason = why(str(error))
        if reason is None:
            raise
        raise TrellisError(f"{reason}; {_REMEDY}") from error
    return verdict(answers, _versions())


def verdict(answers: Iterable[Answer], own: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the executors. Raise TrellisError if one lacks a package or has another major version."""
    versions: dict[str, str] = {}
    for host, theirs in sorted(set_of(answers)):
        has = dict(theirs)
        missing = [name for name in NEEDED if name not in has]
        if missing:
            raise TrellisError(f"the Python of the executors on {host} has no {', '.join(missing)}; {_REMEDY}")
        other = [name for name in NEEDED if _major(has[name]) != _major(own.get(name, has[name]))]
        if other:
            name = other[0]
            raise TrellisError(
                f"the Python of the executors on {host} has {name} {has[name]}, and the driver {own[name]}; {_REMEDY}"
            )
        versions |= has
    return versions


def why(said: str) -> str | None:
    """Return the reason why Python did not run on an executor, or None if the text does not tell it."""
    missing = re.search(r'Cannot run program "([^"]+)"', said)
    if missing:
        return f"the executors have no {missing.group(1)}"
    if "PYTHON_VERSION_MISMATCH" in said:
        versions = re.findall(r"\d+\.\d+", said.partition("PYTHON_VERSION_MISMATCH")[2])[:2]
        return f"the executors have another version of Python than the driver ({' and '.join(versions)})"
    module = re.search(r"No module named '?([\w.]+)", said)
    if module:
        return f"the Python of the executors has no {module.group(1)}"
    return None


def set_of(answers: Iterable[Answer]) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {(host, tuple(sorted(versions.items()))) for host, versions in answers}


def _ask(_: Iterable[int]) -> Iterator[Answer]:
    import socket

    yield socket.gethostname(), _versions()


def _versions() -> dict[str, str]:
    """Return the versions of the packages that can be imported here."""
    versions = {}
    for name in NEEDED:
        try:
            __import__(name)
            versions[name] = metadata.version(name)
        except Exception:  # whatever keeps it from being imported
            continue
    return versions


def _major(version: str) -> str:
    """Return the part of a version that must agree: the first number, and for 0.x the second as well."""
    first, _, rest = version.partition(".")
    return f"{first}.{rest.partition('.')[0]}" if first == "0" else first
