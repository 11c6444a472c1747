"""Run kernels that release the GIL in several threads, and report progress from the calling thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
import numpy.typing as npt

Progress = Callable[[int, int], None]  # (done, total), in units of work


def in_threads(
    task: Callable[[int, int, int], object],
    bounds: Sequence[int],
    costs: Sequence[int],
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Run `task(part, bounds[part], bounds[part + 1])` for each part. The first error cancels the rest."""
    total, done = sum(costs), 0
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        try:
            cost_of = {
                pool.submit(task, part, bounds[part], bounds[part + 1]): costs[part] for part in range(len(costs))
            }
            for future in as_completed(cost_of):
                future.result()
                done += cost_of[future]
                if progress is not None:
                    progress(done, total)
        except BaseException:  # Also after an interrupt, parts that have not started must not start.
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def split_evenly(costs: npt.NDArray[np.int64], part_cost: int, parts_max: int) -> tuple[list[int], list[int]]:
    """Split a sequence of items into parts of about equal cost. Return the bounds of the parts, and the cost of each.

    The result depends only on the costs, not on the machine. So sums over parts are the same everywhere.
    """
    reached = np.concatenate([[0], np.cumsum(costs)])
    total = int(reached[-1])
    parts = min(max(total // max(part_cost, 1), 1), parts_max)
    wanted = np.arange(1, parts) * (total / parts)
    inner = np.searchsorted(reached, wanted, side="left")
    bounds = np.unique(np.concatenate([[0], inner, [len(costs)]]))
    return bounds.tolist(), np.diff(reached[bounds]).tolist()
