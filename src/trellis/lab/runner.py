"""Runs rows on Spark: a grid of (experiments, system, parameters, seed) as a DataFrame, each row a task of an executor.

An executor writes what it found straight into the store, whole or not at all; the driver sees only keys and states.
So a run that is killed loses the rows under way and nothing else, and the next run does what is missing. A row that
fails leaves its error in its place. On a cluster the store must be a folder that all machines see.

A task uses one core: kernels and searches are told to use one thread.
"""

from __future__ import annotations

import gc
import json
import platform
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trellis import __version__
from trellis.errors import TrellisError
from trellis.lab.experiment import Case, Row, engine_of
from trellis.lab.inputs import Inputs
from trellis.lab.store import Store
from trellis.lab.table import Found
from trellis.lab.times import Times

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

GRID = "place bigint, key string, experiments string, measure string, system string, parameters string, seed bigint"
STATES = "key string, state string, seconds double"
LIBRARIES = ("numpy", "numba")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


class Progress(NamedTuple):
    done: int
    running: int
    failed: int
    total: int
    seconds_left: float | None
    entries: tuple[str, ...] = ()  # whose rows are running


class Summary(NamedTuple):
    total: int
    found: int  # done before
    done: int  # now
    failed: list[tuple[Row, str]]
    seconds: float


def one_thread() -> dict[str, str]:
    """Spark settings that give a task one core, on executors of their own; in `local` mode the driver's environment
    counts."""
    return {f"spark.executorEnv.{name}": value for name, value in ONE_THREAD.items()}


def grid(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    """One row a partition, in the order given."""
    from pyspark.sql import functions as F

    listed = [
        (place, row.key, ",".join(row.experiments), row.case.measure, row.case.system,
         json.dumps(dict(row.case.parameters)), row.seed)
        for place, row in enumerate(rows)
    ]  # fmt: skip
    table = spark.createDataFrame(listed, GRID)
    # A range of n numbers in n partitions keeps its partitioning through a broadcast join.
    places = spark.range(0, len(listed), 1, max(1, len(listed))).withColumnRenamed("id", "place")
    return places.join(F.broadcast(table), "place")


def run_rows(
    spark: SparkSession,
    rows: list[Row],
    store: Store,
    *,
    commit: str = "",
    progress: Callable[[Progress], None] | None = None,
    cost: Callable[[Row], float] | None = None,
) -> Summary:
    """Runs what is missing of `rows`. Inputs from raw traces must be there (`inputs.prepare`).

    `cost` tells how many processor seconds a row is expected to take: the time left is estimated by it.
    """
    store.open()
    begun = time.monotonic()
    missing = [row for row in rows if not store.is_done(row)]
    found = len(rows) - len(missing)
    states: dict[str, str] = {}
    if missing:
        watch = _Watch(store, missing, progress, cost or Times().of)
        folder = str(store.folder.resolve())
        states = watch.over(lambda: _collect(spark, missing, folder, commit))
    failed = [(row, _error(store, row)) for row in missing if states.get(row.key) != "done"]
    return Summary(len(rows), found, len(missing) - len(failed), failed, time.monotonic() - begun)


def _collect(spark: SparkSession, rows: list[Row], folder: str, commit: str) -> dict[str, str]:
    def run_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from run_in_executor(batches, folder, commit)

    found = grid(spark, rows).mapInArrow(run_batches, STATES).collect()
    return {row["key"]: row["state"] for row in found}


def run_in_executor(batches: Iterator[pa.RecordBatch], folder: str, commit: str) -> Iterator[pa.RecordBatch]:
    import os

    import pyarrow as pa

    os.environ.update(ONE_THREAD)  # before numba and numpy are imported, where this worker is new
    store = Store(folder)
    for batch in batches:
        for told in batch.to_pylist():
            case = Case(told["measure"], told["system"], json.loads(told["parameters"]))
            row = Row(case, told["seed"], tuple(told["experiments"].split(",")))
            error, seconds = run_row(row, store, commit)
            state = "done" if error is None else "failed"
            yield pa.RecordBatch.from_pydict({"key": [row.key], "state": [state], "seconds": [seconds]})


def run_row(row: Row, store: Store, commit: str = "") -> tuple[str | None, float]:
    """Measures and writes; gives the error in a line, and the seconds it took."""
    store.begin(row.key)
    begun, cpu = time.perf_counter(), time.process_time()
    found: Found = {}
    error: str | None = None
    details = ""
    try:
        found = measure_of(row.case)(row.case.system, row.case.parameters, row.seed, Inputs(store.inputs))
    except Exception as problem:  # whatever it is, it belongs to this row and to no other
        error, details = f"{type(problem).__name__}: {' '.join(str(problem).split())}"[:500], traceback.format_exc()
    seconds = time.perf_counter() - begun
    about: dict[str, Any] = {
        "seconds": round(seconds, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "error": error,
        "details": details,
        "commit": commit,
        "engine": engine_of(row.case),
        "versions": versions(),
        "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    store.write(row, {} if error else found, about)
    gc.collect()  # a simulation is a large knot of objects: the next row must not pay for it
    return error, seconds


def versions() -> dict[str, str]:
    """Return the versions that a number may depend on."""
    from importlib.metadata import version

    return {"trellis": __version__, "python": platform.python_version()} | {name: version(name) for name in LIBRARIES}


def measure_of(case: Case) -> Callable[..., Found]:
    module, _, name = case.measure.partition(".")
    try:
        found: Callable[..., Found] = getattr(import_module(f"trellis.lab.measures.{module}"), name)
    except (ImportError, AttributeError) as error:
        raise TrellisError(f"there is no measure {case.measure}") from error
    return found


def commit_here() -> str:
    """The commit of the sources, with a + where they were changed since; empty outside a checkout."""
    import subprocess

    root = Path(__file__).parent
    try:
        words = ["git", "-C", str(root)]
        head = subprocess.run([*words, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, timeout=10)
        changed = subprocess.run(
            [*words, "status", "--porcelain", "--untracked-files=no", "."], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if head.returncode else head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def _error(store: Store, row: Row) -> str:
    ended = store.ended(row.key)
    return (ended[0] if ended else None) or "lost: its executor ended without a word"


class _Watch:
    """Reads from the store how far the rows are, while Spark works."""

    def __init__(
        self,
        store: Store,
        rows: list[Row],
        progress: Callable[[Progress], None] | None,
        cost: Callable[[Row], float],
    ) -> None:
        self.store, self.progress = store, progress
        self.costs = {row.key: cost(row) for row in rows}
        self.entries = {row.key: row.experiments for row in rows}
        self.failed: set[str] = set()
        self.done: set[str] = set()
        self.before = {row.key for row in rows if (store.rows / row.key).exists()}  # failed in an earlier run

    def over(self, work: Callable[[], dict[str, str]]) -> dict[str, str]:
        import threading

        if self.progress is None:
            return work()
        over, begun = threading.Event(), time.time()

        def watch() -> None:
            while not over.wait(0.5):
                with suppress(TrellisError):  # a damaged row: the run itself will say so
                    self.look(begun, time.time())

        thread = threading.Thread(target=watch, name="trellis-lab-progress", daemon=True)
        thread.start()
        try:
            return work()
        finally:
            over.set()
            thread.join()

    def look(self, begun: float, now: float) -> None:
        """Tell how far the rows are. Both times are seconds since 1970, as the store has them."""
        for key in self.costs:
            if key in self.done or key in self.failed:
                continue
            ended = self.store.ended(key)
            if ended is None or (key in self.before and ended[1] < begun):
                continue
            (self.failed if ended[0] else self.done).add(key)
        running = {key: now - since for key, since in self.store.running().items() if key in self.costs}
        longest_first = sorted(running, key=lambda key: (-running[key], key))
        entries = tuple(dict.fromkeys(name for key in longest_first for name in self.entries[key][:1]))
        assert self.progress is not None
        counts = len(self.done), len(running), len(self.failed), len(self.costs)
        self.progress(Progress(*counts, self._seconds_left(now - begun, running), entries))

    def _seconds_left(self, passed: float, running: Mapping[str, float]) -> float | None:
        """Expect the time that is left from the costs of rows; None before the first row has begun.

        A row under way counts as done in part, at most nine tenths, since it may take longer than expected.
        The rows that have ended say how much cost a second does. Before one has, each row under way does one.
        """
        ended = sum(self.costs[key] for key in self.done | self.failed)
        partly = {key: min(seconds, 0.9 * self.costs[key]) for key, seconds in running.items()}
        left = sum(self.costs.values()) - ended - sum(partly.values())
        if not running and not ended:
            return None
        speed = (ended + sum(partly.values())) / max(passed, 1e-9) if ended else float(len(running))
        longest = max((self.costs[key] - partly[key] for key in running), default=0.0)
        return max(left / max(speed, 1e-9), longest)
