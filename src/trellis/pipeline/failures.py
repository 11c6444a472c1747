"""What goes wrong around Spark, as one line that a user can act on; and a Java process that never stays behind."""

from __future__ import annotations

import logging
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import killpg
from pathlib import Path
from subprocess import Popen
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trellis.errors import TrellisError

SLOW_PYTHON = "the machine is so busy that Spark's Python did not start within ten seconds; try again later"
# Messages of Spark and Java, and what they mean to a user.
_REASONS = (
    (
        r"No space left on device|Disk quota exceeded",
        "the disk is full; free some space, choose another --output, or let Spark keep its own files on another "
        "disk: TMPDIR",
    ),
    (r"OutOfMemoryError", "Java has too little memory; give it more, for instance --driver-memory 4g"),
    (
        r"No FileSystem for scheme \"([^\"]+)\"|Class org\.apache\.hadoop\.fs\.(\w+)\.\w+ not found",
        r"Spark has no file system for \1\2://; add its package, for instance for s3a:// "
        "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.4.2",
    ),
    (
        r"(a log was deleted before all of it was read, [^\n\"]{0,80}"
        r"|the log [^\n\"]{1,400} was truncated: it has \d+ bytes, and \d+ [\w ]+)",
        r"\1; start again with another --output",
    ),
    (r"(the log [^\n\"]{1,400} cannot be read: [^\n\"]{1,120})", r"\1; move it elsewhere, or make it readable"),
    (
        r"Failed to find (?:the )?data source: kafka",
        "Spark's connector for Kafka is not there; add it: --conf "
        "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 (the version of your Spark)",
    ),
    (
        r"(?:AccessControlException|AccessDeniedException|Permission denied)[: ]*([^\n]{0,120})",
        r"no right to read or write there (\1); choose another place, or change its rights",
    ),
    (r"UnknownHostException: (\S+)", r"the host \1 is not known; check the address"),
    (
        r"All masters are unresponsive|Application has been killed",
        "the cluster does not answer, or has ended the job; check --master, and the log of the master",
    ),
    (r"Python worker failed to connect back", SLOW_PYTHON),
    (
        r"ExecutorLostFailure|FetchFailed[^\n]*failed the maximum allowable number",
        "executors were lost again and again; give them more memory (--conf spark.executor.memory=4g), or look with "
        "--log-level warn",
    ),
)
T = TypeVar("T")
_GONE = (ConnectionRefusedError, ConnectionResetError)  # nobody answers where Java was
_CANCEL_S = 5.0
_STOP_S = 3.0  # what Spark gets to end by itself after Ctrl-C or SIGTERM, before its process is killed


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of the machine (a full disk, too little memory) into a TrellisError. Pass on all others."""
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
    for pattern, reason in _REASONS:
        match = re.search(pattern, whole)
        if match:
            return match.expand(reason)
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
            # A process group of its own: Ctrl-C does not reach it, and the whole group can be ended at once.
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
def ending_at_once(spark: SparkSession) -> Iterator[None]:
    """After Ctrl-C or SIGTERM, end Spark, its Java process and its Python workers within a few seconds.

    `SparkSession.stop` alone waits for its answer, and a task that computes may let it wait for hours. The next session
    of this program starts a Java process of its own.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        java = getattr(SparkContext._gateway, "proc", None)  # None where spark-submit has started Java
        if java is not None:
            _stop_or_kill(spark, java)
        raise


def _stop_or_kill(spark: SparkSession, java: Popen[Any]) -> None:
    workers = _children(java.pid)

    def stop() -> None:
        with suppress(Exception):
            spark.stop()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark warns that Java has been killed
        stopping = threading.Thread(target=stop, name="trellis-stop-spark", daemon=True)
        stopping.start()
        stopping.join(_STOP_S)
        for group in (java.pid, *workers):  # each is the head of a group of its own, the workers' daemons too
            with suppress(OSError):
                killpg(group, signal.SIGKILL)
        java.wait()
        stopping.join(1.0)
    with suppress(Exception):
        spark.stop()  # what a stop that Java did not answer has left undone
    if SparkContext._gateway is not None:
        with suppress(Exception):
            SparkContext._gateway.close()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _children(process: int) -> list[int]:
    """Return the children of a process; none where the system does not tell. They end then when Java does."""
    children: list[int] = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError, ValueError):
            children += map(int, path.read_text().split())
    return children


def interruptible(work: Callable[[], T]) -> T:
    """Return what `work` returns. It runs in a thread, so that Ctrl-C and SIGTERM reach the caller at once.

    In the main thread a signal interrupts a call to Java, and PySpark then calls Java again on the same connection.
    That call waits until the first one is answered, which is when all tasks have ended.
    """
    results: list[T] = []
    problem: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            problem.append(error)

    thread = threading.Thread(target=run, name="trellis-spark-work", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.5)  # a join without a limit lets no handler run on some systems
    if problem:
        raise problem[0]
    return results[0]


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


class Terminated(SystemExit):
    """SIGTERM, as an exception: so that what cleans up after Ctrl-C cleans up after it."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM raise Terminated, once. A program with a handler of its own keeps it."""
    usable = threading.current_thread() is threading.main_thread()
    if not usable or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not stop the cleaning up
        raise Terminated(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
