"""Run many trials in one process or in several. The results are the same.

Processes are spawned, not forked, because Arrow and numba hold threads that do not survive a fork.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context
from typing import Any, Protocol, TypeVar

SHRUNK_MAX = 3  # failing trials whose schedules are shrunk, because each costs many more runs
Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int, int], None]  # (seeds done, seeds in all, failures so far)


class Summary(Protocol):
    """The counts that a check keeps while it goes on."""

    seeds: int
    failures: list[Any]


def until_enough(
    results: Iterable[Result], summary: Summary, seeds: int, failures_max: int | None, progress: Progress | None
) -> Iterator[Result]:
    """Yield the results until `failures_max` of them have failed. Call `progress` after the caller has added each."""
    for result in results:
        yield result
        if progress is not None:
            progress(summary.seeds, seeds, len(summary.failures))
        if failures_max is not None and len(summary.failures) >= failures_max:
            return


def in_order(run: Callable[[Item], Result], items: Sequence[Item], jobs: int) -> Iterator[Result]:
    """Yield `run(item)` in the order of the items, in whichever order they finish.

    `run` and the items must be picklable by reference if `jobs` is more than 1.
    """
    if jobs <= 1 or len(items) <= 1:
        yield from map(run, items)
        return
    others = set(active_children())
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(run, item))
                if len(waiting) > 2 * jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except (KeyboardInterrupt, SystemExit):  # The trials under way are not needed any more.
            for process in set(active_children()) - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
