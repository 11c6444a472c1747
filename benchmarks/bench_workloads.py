"""How fast workloads and churn traces are made, and how the time grows. Kernels are compiled before the clock starts.

python benchmarks/bench_workloads.py [--large]      --large adds a million nodes
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import CrashGroups, FlashCrowd, OnOff, RandomChurn
from trellis.workloads.generate import generate
from trellis.workloads.options import parse_spec
from trellis.workloads.presets import PRESETS

SIZES = [(10_000, 1_000), (100_000, 10_000)]
SPECS = {
    "uniform": "uniform:nodes={nodes},topics={topics},subs=20",
    "zipf 0.5": "zipf:nodes={nodes},topics={topics},subs=20,alpha=0.5",
    "zipf 2": "zipf:nodes={nodes},topics={topics},subs=20,alpha=2",
    "exponential": "exponential:nodes={nodes},topics={topics},subs=20",
    "correlated": "high:nodes={nodes},topics={topics},subs=20,buckets=10",
    "multimodal": "multimodal:nodes={nodes},topics={topics},subs=20",
    "spatial": "spatial:nodes={nodes},mean=20",
}


def seconds(make: Callable[[], object]) -> float:
    """Processor time: the best of three, or of one where one takes long."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        make()
        best = min(best, time.process_time() - start)
        if best > 2:
            break
    return best


def peak_gib() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def main() -> None:
    sizes = [*SIZES, (1_000_000, 10_000)] if "--large" in sys.argv else SIZES
    for preset in PRESETS.values():
        generate(preset.config, 0)  # compiles
    print(f"{'workload, 20 subscriptions':28} {'nodes':>9} {'topics':>9} {'cpu s':>8} {'us/node':>8} {'growth':>7}")
    for name, spec in SPECS.items():
        before = None
        for nodes, topics in sizes:
            config = parse_spec(spec.format(nodes=nodes, topics=topics))
            took = seconds(lambda config=config: generate(config, 1))  # type: ignore[misc]
            growth = f"x{took / before:.1f}" if before else ""
            print(f"{name:28} {nodes:9,} {config.topics:9,} {took:8.3f} {took / nodes * 1e6:8.2f} {growth:>7}")
            before = took
    print(f"peak memory so far: {peak_gib():.2f} GiB\n")

    print(f"{'preset':28} {'subscriptions':>17} {'cpu s':>8}")
    for name, preset in PRESETS.items():
        config = preset.config
        took = seconds(lambda config=config: generate(config, 1))  # type: ignore[misc]
        print(f"{name:28} {generate(config, 1).subscriptions:17,} {took:8.3f}")

    base = generate(PRESETS["spidercast-rss"].config, 1)
    print(f"\n{'churn over spidercast-rss':28} {'rows':>17} {'cpu s':>8}")
    for model in (RandomChurn(), OnOff(), FlashCrowd(), CrashGroups(size=100, groups=10)):
        took = seconds(lambda model=model: churn(model, base, 1))  # type: ignore[misc]
        print(f"{type(model).__name__:28} {len(churn(model, base, 1)):17,} {took:8.3f}")


if __name__ == "__main__":
    main()
