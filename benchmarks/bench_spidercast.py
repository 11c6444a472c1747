"""SpiderCast (3,0), RSS interests, 10 of 100 topics, full membership, to a stable overlay: time, memory and growth.

    python benchmarks/bench_spidercast.py                 1,000 nodes (aim: 15 s) and 2,000
    python benchmarks/bench_spidercast.py --nodes 10000   (aim: 240 s and 4 GiB)

"Stable" means that no link has changed for 5 s of virtual time. Times are processor times. The last column is the cost
of a simulated second per node in the steady state at the end: heartbeats and idle iterations only.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from msgspec.structs import replace

from trellis.simulate.engine import Engine
from trellis.simulate.run import topics_by_node
from trellis.simulate.systems.spidercast import SpiderCast
from trellis.workloads.generate import generate
from trellis.workloads.presets import PRESETS


def measure(nodes: int, seed: int, encode: bool) -> tuple[float, float, float, int, float]:
    interests = generate(replace(PRESETS["spidercast-rss"].config, nodes=nodes), seed)
    begun = time.process_time()
    engine = Engine(SpiderCast(), topics_by_node(interests), seed=seed, encode=encode)
    now = 0
    while now - engine.quiet_from_ms < 5_000:
        now += 1_000
        engine.run(now)
    stable = time.process_time()
    engine.run(now + 3_000)
    idle = (time.process_time() - stable) / 3
    return stable - begun, now / 1000, idle, engine.events, 2 * len(engine.world.links()) / nodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 2000])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--encode", action="store_true", help="send every message through its wire form")
    chosen = parser.parse_args()
    print("  nodes   cpu s   virtual s     events   events/s   degree   peak MiB   us per virtual s and node")
    for nodes in chosen.nodes:
        cpu, virtual, idle, events, degree = measure(nodes, chosen.seed, chosen.encode)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
        print(
            f"{nodes:7} {cpu:8.1f} {virtual:11.1f} {events:10,} {events / cpu:10,.0f} {degree:8.2f} {peak:10.0f} "
            f"{1e6 * idle / nodes:12.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
