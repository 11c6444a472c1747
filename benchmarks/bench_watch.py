"""How far `trellis pipeline watch` lies behind a log that grows by 10,000 events a second.

    python benchmarks/bench_watch.py                              two minutes on local[2], a batch every 10 s
    python benchmarks/bench_watch.py --seconds 30 --rate 1000     a quick look

A process of its own writes the log: 40 % subscriptions, 10 % unsubscriptions, 50 % publications, of 5,000 nodes and
2,000 topics. The lag is the age of the oldest event that a new table of interests has and the one before had not. At
the end all that was written must be in the tables, once. Otherwise, or when the lag grows from the first half of the
run to the second by more than half, it exits 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

SLICE_S = 0.1
NODES, TOPICS = 5_000, 2_000
GROWTH_MAX = 1.5


def write(path: str, rate: int, seconds: float) -> None:
    """Append events at the given rate, each with the time of its writing."""
    chance = random.Random(1)
    per_slice, began = int(rate * SLICE_S), time.time()
    with Path(path).open("w") as log:
        for number in range(int(seconds / SLICE_S)):
            time.sleep(max(0.0, began + number * SLICE_S - time.time()))
            log.writelines(event(chance, time.time()) for _ in range(per_slice))
            log.flush()


def event(chance: random.Random, now: float) -> str:
    head = f'{{"time": {now:.3f}, "node": "n{chance.randrange(NODES)}", "topic": "t{chance.randrange(TOPICS)}", '
    kind = chance.random()
    if kind < 0.5:
        return head + '"event": "publish", "count": 1, "seconds": 1}\n'
    return head + f'"event": "{"subscribe" if kind < 0.9 else "unsubscribe"}"}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every", type=float, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trellis-bench-") as folder:
        broken = followed(options, Path(folder))
    for bound in broken:
        print(f"broken: {bound}")
    sys.exit(1 if broken else 0)


def followed(options: argparse.Namespace, folder: Path) -> list[str]:
    from trellis.pipeline.jobs.watch import watching
    from trellis.pipeline.session import open_session

    log, lags = folder / "log.jsonl", list[tuple[float, float]]()
    print(f"{options.rate:,} events a second for {options.seconds:g} s; load average {os.getloadavg()[0]:.1f} before")
    with open_session("local[2]", conf={"spark.sql.shuffle.partitions": "4"}, driver_memory="2g") as spark:
        log.touch()
        writer = multiprocessing.get_context("spawn").Process(
            target=write, args=(str(log), options.rate, options.seconds)
        )
        with watching(spark, log, str(folder / "out"), format="events", every_s=options.every) as (query, _):
            writer.start()
            last, idle_since = None, None
            while query.isActive:
                time.sleep(0.2)
                facts = told(folder / "out" / "interests" / "manifest.json")
                if facts and facts["last"] != last:
                    now = time.time()
                    lags.append((now, now - (last or facts.get("published_from", facts["last"]))))
                    last = facts["last"]
                    print(
                        f"batch {facts['batch']:>3}: {facts['events']:>9,} events, lag {lags[-1][1]:6.1f} s", flush=True
                    )
                expected = int(options.rate * SLICE_S) * int(options.seconds / SLICE_S)
                if facts and facts["events"] >= expected:
                    break
                if not writer.is_alive():
                    idle_since = idle_since or time.time()
                    if time.time() - idle_since > 600:
                        break
        writer.join()
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in usage)
    values = [lag for _, lag in lags[1:]]  # the first batch has waited for Spark to start
    if len(values) < 2:
        return ["fewer than three batches; run it for longer"]
    half = len(values) // 2
    first, second = statistics.mean(values[:half]), statistics.mean(values[half:])
    print(f"lag: median {statistics.median(values):.1f} s, highest {max(values):.1f} s; {cpu:.0f} CPU s in all")
    broken = [] if facts and facts["events"] == expected else [f"{facts and facts['events']} of {expected} events"]
    if second > GROWTH_MAX * first:
        broken.append(f"the lag grows: {first:.1f} s, then {second:.1f} s")
    return broken


def told(manifest: Path) -> dict[str, float] | None:
    try:
        return json.loads(manifest.read_text())["facts"]
    except (OSError, ValueError):  # not there yet, or replaced at this moment
        return None


if __name__ == "__main__":
    main()
