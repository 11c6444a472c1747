"""How `trellis pipeline social` grows: a power-law graph of 20 and 40 million edges to a sample of 10,000 users.

    python benchmarks/bench_pipeline.py                 the full sizes
    python benchmarks/bench_pipeline.py --edges 200000  a quick look

Each size runs in a process of its own on local[2], with 2 GiB of driver memory and spark.driver.maxResultSize=64m: a
graph that passed through the driver would not fit. Memory is the sum of the peaks of Spark's Java and our Python.
Spark itself makes the graph, before the clock starts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTINGS = {"spark.driver.maxResultSize": "64m", "spark.sql.shuffle.partitions": "16"}
EDGES_PER_USER = 20
SECONDS_MAX, GIB_MAX, GROWTH_MAX = 240, 6.0, 2.4


def write_graph(spark, path: Path, edges: int) -> None:
    """Both ends by rank with probability ~ rank^-0.6, by hash of the edge's number: degrees follow a power law."""
    from pyspark.sql import functions as F

    users = edges // EDGES_PER_USER

    def end(name: str):
        draw = (F.xxhash64(F.lit(name), F.col("id")).bitwiseAND(F.lit((1 << 52) - 1)) + 0.5) / float(1 << 52)
        rank = F.floor(F.lit(users) * F.pow(draw, F.lit(2.5)))
        # Names in no order of rank, so that popular users are spread over the files.
        return F.pmod(F.xxhash64(rank), F.lit(10 * users)).cast("string")

    line = F.concat_ws(" ", end("source"), end("target"))
    spark.range(0, edges, 1, max(2, edges // 2_500_000)).select(line.alias("value")).write.text(str(path))


def run_one(edges: int, sample: int) -> None:
    """In a process of its own: makes the graph, samples it, prints what it took as JSON."""
    from trellis.pipeline import jobs
    from trellis.pipeline.session import open_session

    folder = Path(tempfile.mkdtemp(prefix="trellis-bench-"))
    try:
        with open_session("local[2]", conf=SETTINGS, driver_memory="2g") as spark:
            write_graph(spark, folder / "graph", edges)
            java = spark._jvm.java.lang.ProcessHandle.current().pid()
            before, began = cpu_seconds(java), time.monotonic()
            report = jobs.social(
                spark, folder / "graph", str(folder / "out"), format="edges", sample_nodes=sample, seed=1
            )
            took = {
                "edges": edges,
                "seconds": time.monotonic() - began,
                "cpu_seconds": cpu_seconds(java) - before,
                "gib": (peak_kib(java) + peak_kib(os.getpid())) / 2**20,
                "read_gib": sum(path.stat().st_size for path in (folder / "graph").iterdir()) / 2**30,
                "users": report.facts["users"],
                "rows": report.rows["table"],
                "rounds": report.facts["rounds"],
                "ks": report.facts["sample"]["followers"]["ks"],
            }
        print(json.dumps(took))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_kib(process: int) -> int:
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text()).group(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=int, default=20_000_000)
    parser.add_argument("--sample", type=int, default=10_000)
    parser.add_argument("--one", action="store_true", help="only this size, in this process; prints JSON")
    options = parser.parse_args()
    if options.one:
        run_one(options.edges, options.sample)
        return
    print(
        f"{'edges':>12} {'users':>10} {'seconds':>8} {'cpu s':>7} {'peak GiB':>9} {'rounds':>6} {'rows':>9} {'ks':>6}"
    )
    results = []
    for edges in (options.edges, 2 * options.edges):
        command = [sys.executable, __file__, "--one", "--edges", str(edges), "--sample", str(options.sample)]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        took = json.loads(said.stdout.splitlines()[-1])
        results.append(took)
        print(
            f"{took['edges']:>12,} {took['users']:>10,} {took['seconds']:>8.1f} {took['cpu_seconds']:>7.1f}"
            f" {took['gib']:>9.2f} {took['rounds']:>6} {took['rows']:>9,} {took['ks']:>6.3f}",
            flush=True,
        )
    small, large = results
    growth, cpu_growth = large["seconds"] / small["seconds"], large["cpu_seconds"] / small["cpu_seconds"]
    print(
        f"growth for twice the edges: {growth:.2f} x in time, {cpu_growth:.2f} x in processor time (bound {GROWTH_MAX})"
    )
    if options.edges >= 20_000_000:
        print(f"bounds at the smaller size: {SECONDS_MAX} s and {GIB_MAX} GiB")


if __name__ == "__main__":
    main()
