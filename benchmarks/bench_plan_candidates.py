"""How many links sampled candidates cost, beside all pairs and beside planning in parts: the same instances for each.

    python benchmarks/bench_plan_candidates.py                         10,000, 20,000 and 40,000 nodes, and real data
    python benchmarks/bench_plan_candidates.py --largest 10000         a quick look
    python benchmarks/bench_plan_candidates.py --only zipf             the instances whose name contains this
    python benchmarks/bench_plan_candidates.py --size 100000           candidates alone, with bounds on time and memory
    python benchmarks/bench_plan_candidates.py --samples 40000         what sample and keep cost and bring

uniform has 20 of 10,000 topics a node, zipf 20 of 1,000 by i^-1. In parts means: four random parts by themselves, then
a merge through two representatives for each topic, as `trellis pipeline plan --partitions 4` does it, without Spark.
Real data are read where TRELLIS_DATA names their folder. Every overlay is checked. Seconds are of computing.

It exits 1 when a bound is broken: candidates may have so many times the degrees of all pairs, and no more than parts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from trellis import plan
from trellis.measure.connectivity import connectivity
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.plan.candidates import Sampling
from trellis.workloads.configs import Uniform, Zipf
from trellis.workloads.generate import generate
from trellis.workloads.sizes import parse_subs

SIZES, PARTS = (10_000, 20_000, 40_000), 4
MEAN_MAX = {"uniform": 1.02, "zipf": 1.02, "real": 1.05}  # of candidates, times all pairs
TOP_MAX = 1.2
SECONDS_MAX, GIB_MAX, DEGREE_MAX = 60, 2.0, 23.0  # of --size 100000
SAMPLES = ((16, 48), (64, 16), (64, 32), (64, 48), (64, 96), (256, 48))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--only", default="")
    parser.add_argument("--size", type=int)
    parser.add_argument("--samples", type=int)
    options = parser.parse_args()
    plan.construct(uniform(100), sampling=Sampling())  # compiles, or loads what was compiled
    if options.size:
        broken = alone(options.size)
    elif options.samples:
        samples(options.samples)
        broken = []
    else:
        broken = list(compared(options.largest, options.only))
    for bound in broken:
        print(f"broken: {bound}")
    sys.exit(1 if broken else 0)


def compared(largest: int, only: str = "") -> Iterator[str]:
    """Prints a line for each instance; yields the bounds that are broken."""
    print(f"{'':34} {'all pairs':>22}   {'candidates':>32}   {'in parts':>32}")
    for kind, label, make in instances(largest):
        if only not in label:
            continue
        over = make()
        whole, whole_cpu = timed(over, lambda over=over: plan.construct(over).overlay)
        drawn, drawn_cpu = timed(over, lambda over=over: plan.construct(over, sampling=Sampling()).overlay)
        parts, _ = timed(over, lambda over=over: in_parts(over))
        means, tops = zip(*((one.degrees.mean(), one.degrees.max()) for one in (whole, drawn, parts)), strict=True)
        print(
            f"{label:34} {means[0]:6.2f} {tops[0]:5,} {whole_cpu:7.1f} s"
            f"   {means[1]:6.2f} ({means[1] / means[0]:.2f}) {tops[1]:5,} ({tops[1] / tops[0]:.2f}) {drawn_cpu:5.1f} s"
            f"   {means[2]:6.2f} ({means[2] / means[0]:.2f}) {tops[2]:5,} ({tops[2] / tops[0]:.2f})",
            flush=True,
        )
        if means[1] > MEAN_MAX[kind] * means[0]:
            yield f"{label}: mean degree {means[1]:.2f} is above {MEAN_MAX[kind]} x {means[0]:.2f}"
        if tops[1] > max(TOP_MAX * tops[0], tops[0] + 2):
            yield f"{label}: maximum degree {tops[1]} is above {TOP_MAX} x {tops[0]}"
        if means[1] > means[2]:
            yield f"{label}: planning in parts needs fewer links"


def instances(largest: int) -> Iterator[tuple[str, str, Callable[[], Interests]]]:
    for nodes in SIZES:
        if nodes <= largest:
            yield "uniform", f"uniform, {nodes:,}", lambda nodes=nodes: uniform(nodes)
            yield "zipf", f"zipf, {nodes:,}", lambda nodes=nodes: zipf(nodes)
    folder = os.environ.get("TRELLIS_DATA")
    for name, read in (("Wikipedia: users x pages", wikipedia), ("Last.fm: users x artists", lastfm)):
        if folder:
            yield "real", name, lambda read=read: read(Path(folder))


def uniform(nodes: int) -> Interests:
    return generate(Uniform(nodes=nodes, topics=10_000, subs=parse_subs("20")), seed=1)


def zipf(nodes: int) -> Interests:
    return generate(Zipf(nodes=nodes, topics=1000, subs=parse_subs("20"), alpha=1.0), seed=1)


def wikipedia(folder: Path) -> Interests:
    with gzip.open(
        folder / "wikipedia-ticker-2015/wikiticker-2015-09-12-sampled.json.gz", "rt", encoding="utf-8"
    ) as lines:
        rows = (json.loads(line) for line in lines)
        return Interests.from_pairs({(row["user"], row["channel"] + row["page"]) for row in rows})


def lastfm(folder: Path) -> Interests:
    with gzip.open(folder / "lastfm-hetrec2011/user_artists.dat.gz", "rt", encoding="utf-8") as lines:
        next(lines)
        return Interests.from_pairs({tuple(line.split("\t")[:2]) for line in lines})


def in_parts(over: Interests) -> Overlay:
    """Two levels of `trellis.pipeline.stages.merge`: PARTS parts, then one merge."""
    from trellis.pipeline.stages.merge import Rules, connect_group

    part = np.random.default_rng(1).integers(PARTS, size=len(over.nodes))
    spread = np.zeros((len(over.topics), PARTS), bool)
    spread[over.node_topics, part[over.subscription_nodes]] = True
    closes = (spread.sum(axis=1) > 1).astype(np.int32)[over.node_topics]
    rules = Rules("lowoda", 3.0, representatives=2, seed=1)
    offsets = pa.array(over.node_offsets.astype(np.int32))
    members = pa.table(
        {
            "group": pa.array(part),
            "part": pa.array(part),
            "node": over.nodes.array,
            "topics": pa.ListArray.from_arrays(offsets, over.topics.take(over.node_topics)),
            "closes": pa.ListArray.from_arrays(offsets, pa.array(closes)),
            "degree": pa.array(np.zeros(len(over.nodes), np.int64)),
            "degree_max": pa.array(np.zeros(len(over.nodes), np.int64)),
        }
    )
    done = [connect_group(members.filter(pa.array(part == one)), 0, PARTS, rules) for one in range(PARTS)]
    joined = pa.concat_tables(done)
    speakers = joined.filter(joined["topics"].is_valid()).drop_columns(["links"])
    zero = pa.array(np.zeros(len(speakers), np.int64))
    done.append(connect_group(speakers.append_column("group", zero), 1, PARTS, rules))
    pairs = [
        (node, other)
        for table in done
        for node, others in zip(table["node"].to_pylist(), table["links"].to_pylist(), strict=True)
        for other in others or ()
    ]
    return Overlay.from_pairs(over.nodes, pairs)


def alone(nodes: int) -> list[str]:
    over = uniform(nodes)
    built, seconds = timed(over, lambda: plan.construct(over, sampling=Sampling()).overlay)
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)
    mean, top = built.degrees.mean(), built.degrees.max()
    print(f"uniform, {nodes:,}: degree mean {mean:.2f}, max {top}; {seconds:.1f} s, {gib:.2f} GiB at the peak")
    if nodes != 100_000:
        return []
    bounds = {"seconds": (seconds, SECONDS_MAX), "GiB": (gib, GIB_MAX), "mean degree": (mean, DEGREE_MAX)}
    return [f"{value:.2f} {name}, at most {bound} allowed" for name, (value, bound) in bounds.items() if value > bound]


def samples(nodes: int) -> None:
    print(f"{'':16} {'sample':>6} {'keep':>5} {'candidates':>11} {'mean':>6} {'max':>4} {'seconds':>8}")
    for label, over in (("uniform", uniform(nodes)), ("zipf", zipf(nodes))):
        for sample, keep in SAMPLES:
            started = time.process_time()
            built = plan.construct(over, sampling=Sampling(sample, keep))
            seconds, degrees = time.process_time() - started, built.overlay.degrees
            print(
                f"{label:8} {nodes:7,} {sample:6} {keep:5} {built.candidates:11,} {degrees.mean():6.2f}"
                f" {degrees.max():4} {seconds:8.1f}",
                flush=True,
            )


def timed(over: Interests, build: Callable[[], Overlay]) -> tuple[Overlay, float]:
    """What was built, checked, and its processor time."""
    started = time.process_time()
    built = build()
    seconds = time.process_time() - started
    assert connectivity(over, built).is_tco, "a topic is split"
    return built, seconds


if __name__ == "__main__":
    main()
