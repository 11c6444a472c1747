"""`trellis pipeline generate`, `plan` and `verify` at size: 100,000 nodes x 10,000 topics x 20 subscriptions.

    python benchmarks/bench_pipeline_plan.py                                  the size that has bounds
    python benchmarks/bench_pipeline_plan.py --nodes 10000 --topics 1000      a quick look
    python benchmarks/bench_pipeline_plan.py --nodes 1000000                  the large one, which has bounds too
    python benchmarks/bench_pipeline_plan.py --partitions 100 --nodes 1000000 the same in parts
    python benchmarks/bench_pipeline_plan.py --verify                         verify alone: 1,000,000 nodes, 6M links

On local[2], with 2 GiB of memory for Java and spark.driver.maxResultSize=64m. Memory is the highest sum, over all
processes of the run at one moment, of what each has to itself (its Pss). CPU seconds are those of all these processes.
It exits 1 when a bound is broken; bounds on time hold for a machine that has nothing else to do.
What parts cost, on equal instances: `bench_plan_candidates.py`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

SETTINGS = {"spark.driver.maxResultSize": "64m"}
# Bounds of a whole plan, by the number of nodes: seconds, GiB, mean degree, maximum degree.
BOUNDS = {100_000: (600, 8.0, 23.0, 32), 1_000_000: (600, 8.0, 24.0, 32)}
VERIFY_SECONDS_MAX = 600
STRIDES = (1, 5, 23, 101, 499, 2003)  # links of each node in the overlay that is only verified


class Memory:
    """Watches this process and all that came from it."""

    def __init__(self) -> None:
        self.peak_kib, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def take(self) -> float:
        """GiB at the peak since the last call."""
        peak, self.peak_kib = self.peak_kib, 0
        return peak / 2**20

    def cpu_seconds(self) -> float:
        """CPU seconds of all processes of the run so far, without those that ended and that nobody waited for."""
        return sum(map(cpu_ticks, descendants(os.getpid()))) / os.sysconf("SC_CLK_TCK")

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            self.peak_kib = max(self.peak_kib, sum(map(own_kib, descendants(os.getpid()))))


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:  # it has ended
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def cpu_ticks(process: int) -> int:
    """Ticks of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


def own_kib(process: int) -> int:
    try:
        return int(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text(), re.M).group(1))
    except (OSError, AttributeError):
        return 0


def write_lattice(spark, path: str, nodes: int) -> None:
    """Every node linked to those 1, 5, 23, ... places on: simple as long as there are 5,000 nodes or more."""
    from pyspark.sql import functions as F

    def name(place):
        return F.concat(F.lit("n"), F.pmod(place, F.lit(nodes)) + 1)

    ends = spark.range(0, nodes, 1, 8).select("id", F.explode(F.array(*map(F.lit, STRIDES))).alias("stride"))
    ends.select(name(F.col("id")).alias("u"), name(F.col("id") + F.col("stride")).alias("v")).write.parquet(path)


def verify_alone(nodes: int, topics: int, subs: int, conf: dict[str, str]) -> None:
    """Few topics, so that each link counts in several: the rows of all G(t) are about 4 times the links."""
    from trellis.pipeline.jobs.generate import generate
    from trellis.pipeline.jobs.verify import verify
    from trellis.pipeline.session import open_session

    folder = tempfile.mkdtemp(prefix="trellis-bench-")
    try:
        with open_session("local[2]", conf=conf, driver_memory="2g") as spark, Memory() as memory:
            generate(spark, f"uniform:nodes={nodes},topics={topics},subs={subs}", f"{folder}/interests", seed=1)
            write_lattice(spark, f"{folder}/overlay", nodes)
            memory.take()
            began = time.monotonic()
            found = verify(spark, f"{folder}/interests", f"{folder}/overlay", f"{folder}/verified").facts
            took = time.monotonic() - began
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"verify: {nodes:,} nodes, {found['links']:,} links, {found['components']:,} components of {topics:,} topics")
    print(f"{took:.1f} s, {memory.take():.2f} GiB (bound at 1,000,000 nodes: {VERIFY_SECONDS_MAX} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verify", action="store_true", help="verify alone, on an overlay that is no TCO")
    parser.add_argument("--nodes", type=int, default=None)
    parser.add_argument("--topics", type=int, default=None)
    parser.add_argument("--subs", type=int, default=20)
    parser.add_argument("--folder", help="keep the files there, and leave verifying to `trellis check`")
    parser.add_argument("--partitions", type=int, default=None)
    parser.add_argument("--representatives", type=int, default=2)
    parser.add_argument("--fan-in", type=int, default=8)
    parser.add_argument("--partitioner", default="random")
    parser.add_argument("--shuffle-partitions", type=int, default=16)
    options = parser.parse_args()
    conf = SETTINGS | {"spark.sql.shuffle.partitions": str(options.shuffle_partitions)}
    if options.verify:
        verify_alone(options.nodes or 1_000_000, options.topics or 100, options.subs, conf)
        return
    broken = plan_and_verify(options, conf)
    for bound in broken:
        print(f"broken: {bound}")
    sys.exit(1 if broken else 0)


def plan_and_verify(options: argparse.Namespace, conf: dict[str, str]) -> list[str]:
    from trellis.pipeline.jobs.generate import generate
    from trellis.pipeline.jobs.plan import plan
    from trellis.pipeline.jobs.verify import verify
    from trellis.pipeline.session import open_session

    folder = options.folder or tempfile.mkdtemp(prefix="trellis-bench-")
    spec = f"uniform:nodes={options.nodes or 100_000},topics={options.topics or 10_000},subs={options.subs}"
    print(f"{spec}; load average {os.getloadavg()[0]:.1f} before the run")
    try:
        with open_session("local[2]", conf=conf, driver_memory="2g") as spark, Memory() as memory:
            took = {}

            def timed(name, job, *arguments, **keywords):
                began, before = time.monotonic(), memory.cpu_seconds()
                report = job(spark, *arguments, **keywords)
                took[name] = time.monotonic() - began, memory.take()
                cpu = memory.cpu_seconds() - before
                print(f"{name:<10} {took[name][0]:>8.1f} s {cpu:>8.1f} CPU s {took[name][1]:>7.2f} GiB", flush=True)
                return report

            timed("generate", generate, spec, f"{folder}/interests", seed=1)
            planned = timed(
                "plan",
                plan,
                f"{folder}/interests",
                f"{folder}/overlay",
                seed=1,
                partitions=options.partitions,
                representatives=options.representatives,
                fan_in=options.fan_in,
                partitioner=options.partitioner,
            ).facts
            found = None
            if not options.folder:
                found = timed("verify", verify, f"{folder}/interests", f"{folder}/overlay", f"{folder}/verified").facts
    finally:
        if not options.folder:
            shutil.rmtree(folder, ignore_errors=True)

    print(
        f"\n{'step of plan':<32} {'seconds':>8} {'share':>6} {'links':>12} {'degree max':>11} {'representatives':>16}"
    )
    for step in planned["steps"]:
        cells = [step.get(name, "") for name in ("links", "degree_max", "representatives")]
        shown = [f"{cell:,}" if cell != "" else "" for cell in cells]
        share = step["seconds"] / took["plan"][0]
        print(f"{step['step']:<32} {step['seconds']:>8.1f} {share:>6.0%} {shown[0]:>12} {shown[1]:>11} {shown[2]:>16}")
    mean, top = planned["degree"]["mean"], planned["degree"]["max"]
    how = f"{planned['parts']:,} parts" if "parts" in planned else "whole"
    print(f"\n{how}: {planned['nodes']:,} nodes, {planned['links']:,} links, mean degree {mean:.2f}, maximum {top}")
    if found:
        print(f"a TCO: {found['tco']} ({found['split_topics']:,} of {found['topics']:,} topics split)")
    broken = [] if found is None or found["tco"] else ["a topic is split"]
    bounds = BOUNDS.get(planned["nodes"])
    if bounds and "parts" not in planned and (options.topics or 10_000, options.subs) == (10_000, 20):
        figures = zip(
            ("seconds", "GiB", "mean degree", "maximum degree"), (*took["plan"], mean, top), bounds, strict=True
        )
        broken += [f"{value:.2f} {name}, at most {bound} allowed" for name, value, bound in figures if value > bound]
    return broken


if __name__ == "__main__":
    main()
