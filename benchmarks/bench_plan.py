"""What `trellis plan` costs in its kernels: GM, MinMaxODA and LowODA, and how that grows.

    python benchmarks/bench_plan.py [largest number of nodes, 8000]

1. Sizes 10:90 by a power law of exponent 3, 200 topics; uniform, zipf 2.0 and exponential popularity. Beside each
   time stand the target, and the factor to half as many nodes: candidate pairs grow fourfold.
2. A social workload: 10,000 users, each a topic of its own; whom a user follows is drawn by a power law of fame, how
   many by a power law of its own, 30 on average.
3. The other base workloads of the papers, each once.
4. What the forms of the kernel cost on some of these, to check the figures that choose among them.
5. The first call in a fresh environment, which compiles.

Each time is the median of five, in seconds of the algorithm itself (`Construction.seconds`), compiled; where the
machine is shared, processor time beside it tells how much of that was waiting.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from trellis import plan
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.plan import tables
from trellis.plan.state import BITS, LISTS, TRIANGLE
from trellis.workloads.configs import Exponential, Uniform, Zipf
from trellis.workloads.generate import generate
from trellis.workloads.presets import PRESETS

RULES = ("gm", "minmax", "lowoda")
TARGETS = {2000: 0.1, 4000: 0.4, 8000: 1.6}
FORMS = {"bits": BITS, "triangle": TRIANGLE, "lists": LISTS}
COLD = """
import time
from trellis import plan
from trellis.model.interests import Interests
over = Interests.from_pairs({node: "xy" for node in "abc"})
start, cpu = time.perf_counter(), time.process_time()
plan.construct(over)
print(f"{time.perf_counter() - start:.1f} s ({time.process_time() - cpu:.1f} s of processor time)")
"""


def main() -> None:
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    growth(largest)
    social()
    presets()
    forms()
    cold()


def growth(largest: int) -> None:
    sizes = [nodes for nodes in (2000, 4000, 8000, 16000, 32000) if nodes <= largest]
    print(f"{'':8} {'rule':7} {'nodes':>6} {'links':>7} {'D':>5} {'time':>8} {'cpu':>8} {'x':>5} {'target':>7}")
    for label, config in (("uniform", Uniform), ("zipf 2.0", Zipf), ("expo", Exponential)):
        for rule in RULES:
            before = None
            for nodes in sizes:
                over = generate(config(nodes=nodes), seed=1)
                built, seconds, cpu = timed(lambda over=over, rule=rule: plan.construct(over, rule))
                target = TARGETS.get(nodes)
                print(
                    f"{label:8} {rule:7} {nodes:6,} {len(built.overlay):7,} {built.overlay.degrees.max():5,}"
                    f" {seconds:6.3f} s {cpu:6.3f} s {seconds / before if before else 0:5.2f}"
                    + (f" {target:5.1f} s" if target else ""),
                    flush=True,
                )
                before = seconds
    print(f"memory at the peak: {peak_mib():,.0f} MiB, with the interpreter and all instances\n")


def social() -> None:
    over = followers(10_000, 30)
    print(f"social: {over}, told to need {plan.memory_needed(over) / 2**20:,.0f} MiB; target 5 s and 2,048 MiB")
    for rule in RULES:
        built, seconds, cpu = timed(lambda rule=rule: plan.construct(over, rule), times=3)
        print(
            f"{'':8} {rule:7} {len(over.nodes):6,} {len(built.overlay):7,} {built.overlay.degrees.max():5,}"
            f" {seconds:6.3f} s {cpu:6.3f} s",
            flush=True,
        )
    print(f"memory at the peak: {peak_mib():,.0f} MiB\n")


def presets() -> None:
    print("the papers' base workloads, lowoda")
    for name, preset in PRESETS.items():
        over = generate(preset.config, seed=1)
        shape = tables.Shape.of(over.node_offsets, over.node_topics, len(over.topics))
        form = next(form for form, number in FORMS.items() if number == shape.best_form())
        built, seconds, _ = timed(lambda over=over: plan.construct(over), times=1)
        print(
            f"{name:20} {len(over.nodes):7,} nodes {len(over.topics):6,} topics {over.subscriptions:8,} subscriptions"
            f" {form:8} {len(built.overlay):7,} links {seconds:6.3f} s",
            flush=True,
        )
    print()


def forms() -> None:
    print("seconds by form of the kernel, lowoda; * is the one chosen")
    instances = {
        "zipf 2.0, 4,000 x 200": generate(Zipf(nodes=4000), seed=1),
        "uniform, 4,000 x 200": generate(Uniform(nodes=4000), seed=1),
        "uniform, 4,000 x 1,000": generate(Uniform(nodes=4000, topics=1000), seed=1),
        "uniform, 4,000 x 4,000": generate(Uniform(nodes=4000, topics=4000), seed=1),
        "social, 4,000 x 4,000": followers(4000, 30),
    }
    for label, over in instances.items():
        chosen = tables.Shape.of(over.node_offsets, over.node_topics, len(over.topics)).best_form()
        best_form = tables.Shape.best_form
        row = []
        for form, number in FORMS.items():
            tables.Shape.best_form = lambda self, number=number: number  # type: ignore[method-assign]
            _, _, cpu = timed(lambda over=over: plan.construct(over), times=1)
            row.append(f"{form}{'*' if number == chosen else ' '} {cpu:7.3f}")
        tables.Shape.best_form = best_form  # type: ignore[method-assign]
        print(f"{label:24} {'   '.join(row)}", flush=True)
    print()


def cold() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for label in ("cold", "from the cache on disk"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            first = subprocess.run(
                [sys.executable, "-c", COLD], env=environment, capture_output=True, text=True, check=True
            )
            print(f"first call, {label}: {first.stdout.strip()}" + ("; target 20 s" if label == "cold" else ""))


def timed(build: Callable[[], plan.Construction], times: int = 5) -> tuple[plan.Construction, float, float]:
    """What was built, the median of its seconds, and the median processor time of the whole call."""
    build()
    seconds, cpu = [], []
    for _ in range(times):
        start = time.process_time()
        built = build()
        cpu.append(time.process_time() - start)
        seconds.append(built.seconds)
    return built, median(seconds), median(cpu)


def followers(users: int, mean: float, seed: int = 1) -> Interests:
    """User v subscribes to those it follows: the i-th most famous with weight i^-0.8, and Pareto 1.5 of them."""
    chance = np.random.default_rng(seed)
    fame = chance.permutation(np.arange(1, users + 1) ** -0.8)
    wanted = np.minimum(chance.pareto(1.5, users) + 1, 200)
    rows = [
        np.unique(chance.choice(users, max(1, round(size)), p=fame / fame.sum()))
        for size in wanted * mean * 1.12 / wanted.mean()  # repeated draws are lost
    ]
    names = Names.in_order([f"u{user}" for user in range(users)])[0]
    return Interests.from_ids(
        names, names, np.repeat(np.arange(users), [len(row) for row in rows]), np.concatenate(rows)
    )


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    main()
