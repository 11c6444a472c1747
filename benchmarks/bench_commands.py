"""Whole commands, as a user waits for them: wall time and peak memory of each, in a process of its own.

python benchmarks/bench_commands.py            the quick ones
python benchmarks/bench_commands.py --large    a million nodes too
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from trellis.model import Overlay, read_interests, write_table

TRELLIS = Path(sys.executable).parent / "trellis"


def timed(arguments: list[str]) -> tuple[float, float]:
    """Seconds and MiB of one run; its output goes nowhere."""
    begun = time.perf_counter()
    child = os.posix_spawn(
        TRELLIS,
        ["trellis", *arguments],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"trellis {' '.join(arguments)} failed")
    return time.perf_counter() - begun, used.ru_maxrss / 1024


def report(title: str, arguments: list[str], times: int = 3) -> float:
    timed(arguments)  # the first run compiles the kernels into the cache on disk
    runs = [timed(arguments) for _ in range(times)]
    seconds = sorted(run[0] for run in runs)[times // 2]
    print(f"{title:<64} {seconds:8.2f} s {max(run[1] for run in runs):8.0f} MiB")
    return seconds


def random_links(folder: Path, source: Path, mean_degree: int) -> Path:
    """Random links, `mean_degree` a node on average."""
    interests = read_interests(source)
    count = len(interests.nodes)
    chance = np.random.default_rng(1)
    pairs = np.unique(np.sort(chance.integers(0, count, (count * mean_degree, 2)), axis=1), axis=0)
    pairs = chance.permutation(pairs[pairs[:, 0] < pairs[:, 1]])[: count * mean_degree // 2]
    target = folder / f"links-{count}.parquet"
    write_table(Overlay.from_ids(interests.nodes, pairs[:, 0], pairs[:, 1]).to_table(), target)
    return target


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report("trellis --help", ["--help"], times=5)
        out = str(folder / "w.parquet")
        made = ["workload", "uniform", "--subs", "20", "-o", out]
        report("workload: 10,000 nodes x 1,000 topics x 20", [*made, "--nodes", "10000", "--topics", "1000"])
        for nodes in (5_000, 10_000, 20_000):
            source = folder / f"i-{nodes}.parquet"
            timed(
                [
                    "workload",
                    "zipf",
                    "--alpha",
                    "0.5",
                    "--nodes",
                    str(nodes),
                    "--topics",
                    "100",
                    "--subs",
                    "10",
                    "-o",
                    str(source),
                ]
            )
            links = random_links(folder, source, 10)
            report(
                f"check: {nodes:,} nodes, 100 topics, 10 subs, degree 10, zipf 0.5", ["check", str(source), str(links)]
            )
        if "--large" in sys.argv:
            large = [*made, "--nodes", "1000000", "--topics", "10000"]
            report("workload: 1,000,000 nodes x 10,000 topics x 20", large, times=1)


if __name__ == "__main__":
    main()
