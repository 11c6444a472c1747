"""The progress of a running job, from Spark's own stage counters.

    with following(spark, show):          show(done_tasks, total_tasks, step)
        jobs.social(spark, ...)

Tasks are counted over all stages seen so far, so `done` never falls; `total` grows as Spark plans further stages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

Callback = Callable[[int, int, str], None]

_steps: dict[str, str] = {}  # application id -> what its job says it is doing


def step(spark: SparkSession, text: str) -> None:
    """Name the next step of a job. `following` shows it, and Spark's own UI as the description."""
    spark.sparkContext.setJobDescription(text)
    _steps[spark.sparkContext.applicationId] = text


@contextmanager
def following(spark: SparkSession, callback: Callback, *, every_s: float = 0.2) -> Iterator[None]:
    """Call `callback` from a thread whenever the counters have changed, and once more at the end."""
    watcher = _Watcher(spark, callback)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every_s):
            watcher.look()

    thread = threading.Thread(target=watch, name="trellis-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        watcher.look()
        _steps.pop(spark.sparkContext.applicationId, None)


class _Watcher:
    def __init__(self, spark: SparkSession, callback: Callback) -> None:
        self._tracker, self._callback = spark.sparkContext.statusTracker(), callback
        self._application = spark.sparkContext.applicationId
        self._tasks: dict[int, tuple[int, int]] = {}  # stage -> done, total
        self._told: tuple[int, int, str] | None = None

    def look(self) -> None:
        try:
            active = set(self._tracker.getActiveStageIds())
            for stage in active | {stage for stage, (done, total) in self._tasks.items() if done < total}:
                info = self._tracker.getStageInfo(stage)
                if info is not None:
                    done = max(info.numCompletedTasks, self._tasks.get(stage, (0, 0))[0])
                    self._tasks[stage] = min(done, info.numTasks), info.numTasks
        except Exception:
            # The session is going down: there is nothing left to follow. Ctrl-C and SIGTERM can leave the answer to an
            # interrupted call on the connection; then the answer that is read here is of any type.
            return
        done = sum(done for done, _ in self._tasks.values())
        total = sum(total for _, total in self._tasks.values())
        now = done, total, _steps.get(self._application, "")
        if total and now != self._told:
            self._told = now
            self._callback(*now)
