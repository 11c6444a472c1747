"""What goes wrong around Spark, as one line that a user can act on; and a Java process that never stays behind."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import killpg
from subprocess import Popen
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trellis.errors import TrellisError

_FULL = ("No space left on device", "Disk quota exceeded")
_GONE = (ConnectionRefusedError, ConnectionResetError)  # nobody answers where Java was
_CANCEL_S = 5.0


@contextmanager
def explained() -> Iterator[None]:
    """Turn what a machine cannot do (a full disk, too little memory) into a TrellisError; pass on everything else."""
    try:
        yield
    except (PySparkException, Py4JError, *_GONE) as error:
        reason = _reason(error)
        if reason is None:
            raise
        raise TrellisError(reason) from error


def _reason(error: Exception) -> str | None:
    said = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    whole = f"{said}\n{error}"
    if any(text in whole for text in _FULL):
        return (
            "the disk is full; free some space, choose another --output, or let Spark keep its own files on another "
            "disk: TMPDIR"
        )
    if "OutOfMemoryError" in whole:
        return "Java has too little memory; give it more, for instance --driver-memory 4g"
    if isinstance(error, (Py4JNetworkError, *_GONE)):
        return (
            "Java has ended in the middle of the work; if the machine ran out of memory, give it less at once "
            "(--master local[1]), else look with --log-level warn"
        )
    return None


def cancel_jobs(spark: SparkSession) -> None:
    """End what Spark is doing, so that no task writes any more; wait a few seconds for it."""
    with suppress(Exception):
        context = spark.sparkContext
        context.cancelAllJobs()
        over = threading.Event()
        for _ in range(int(_CANCEL_S / 0.1)):
            if not context.statusTracker().getActiveJobsIds():
                return
            over.wait(0.1)


@contextmanager
def ending_java() -> Iterator[None]:
    """Around the start of a session: where it fails, or is interrupted, the Java process that it started is ended.

    PySpark forgets the process then, and Java waits for ever for a connection that never comes.
    """
    started: list[Popen[Any]] = []

    class Recorded(Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            # A group of its own: Ctrl-C is for us alone, and all of it can be ended at once.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                super().__init__(*arguments, **{"process_group": 0, **options})
                started.append(self)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    module: Any = java_gateway
    usual = module.Popen
    module.Popen = Recorded
    try:
        yield
    except BaseException:
        for process in started:
            with suppress(OSError):
                killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        module.Popen = usual


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep the handler of SIGINT: PySpark's talks to Java on a connection that is in use, and breaks it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def quiet_py4j() -> Iterator[None]:
    """Py4J logs each exception with its traceback before it raises it; the exception alone is enough."""
    root, own = logging.getLogger(), logging.getLogger("py4j")
    level = own.level

    def is_ours(record: logging.LogRecord) -> bool:
        return "while sending command" not in str(record.msg)

    root.addFilter(is_ours)
    own.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.removeFilter(is_ours)
        own.setLevel(level)
