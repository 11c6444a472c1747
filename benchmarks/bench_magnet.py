"""Magnet on MULTI-MODAL interests, 50 of 1,000 topics, 19 links: all join, build trees, publish on every topic.

    python benchmarks/bench_magnet.py                            1,000 nodes (aim: 45 s)
    python benchmarks/bench_magnet.py --nodes 500 1000 2000      growth
    python benchmarks/bench_magnet.py --nodes 10000              (aim: 25 minutes and 8 GiB)
    python benchmarks/bench_magnet.py --system scribe --tree greedy-path

Nodes join one by one, then all trees are joined, and once every subscriber is reached each topic is published on
once by one of its subscribers. Times are processor times of the phases. `hit` must be 1 and `twice` 0: every
subscriber gets every publication once. Heartbeats every 10 s: nobody fails here. What an event costs grows with the
memory that all nodes take, as it is touched at random; with huge pages (PYTHONMALLOC=malloc
GLIBC_TUNABLES=glibc.malloc.hugetlb=1) it grows less.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from itertools import pairwise

from msgspec.structs import replace

from trellis.simulate.dissemination import Dissemination
from trellis.simulate.engine import Engine
from trellis.simulate.run import topics_by_node
from trellis.simulate.systems.magnet import Magnet
from trellis.simulate.systems.scribe import Scribe
from trellis.workloads.generate import generate
from trellis.workloads.presets import PRESETS

SYSTEMS = {"magnet": Magnet, "scribe": Scribe}


def made(system: str, nodes: int, gap_ms: int, tree: str) -> Magnet:
    """Everyone has joined, and has estimated its medians once more, before trees are built.

    Joining takes time in proportion to the nodes. So do sampling rounds here: a node sees as many of them, whatever the
    size, or they would make the whole quadratic.
    """
    chosen = SYSTEMS[system](
        tree=tree,
        join_gap_ms=gap_ms,
        first_gap_ms=500,
        period_ms=10_000,
        sample_ms=max(20_000, nodes * gap_ms // 4),
    )
    chosen.trees_ms = chosen.begins_ms(nodes)[-1] + 10_000
    return chosen


def measure(system: str, nodes: int, seed: int, tree: str, gap_ms: int, encode: bool) -> None:
    interests = topics_by_node(generate(replace(PRESETS["magnet-multimodal"].config, nodes=nodes), seed))
    chosen = made(system, nodes, gap_ms, tree)
    times = [time.process_time()]
    engine = Engine(chosen, interests, seed=seed, encode=encode)
    world = engine.world
    engine.run(chosen.trees_ms)
    times.append(time.process_time())
    now, watching = chosen.trees_ms + chosen.begins_ms(nodes)[-1] // 4 + 2_000, 0.0
    while True:
        engine.run(now)
        looking = time.process_time()
        found = chosen.metrics(world)
        watching += time.process_time() - looking
        if found["reached"] == 1.0:
            break
        now += 2_000
        if now > chosen.trees_ms + 600_000:
            sys.exit("the trees do not come about")
    times.append(time.process_time())
    degree = sum(len(world.claims(name)) for name in world.living) / nodes
    dissemination = Dissemination.attach(engine)
    wanted = {}
    for name in sorted(interests):
        for topic in interests[name]:
            wanted.setdefault(topic, name)
    for topic in sorted(wanted):
        engine.publish(wanted[topic], topic)
    engine.run(now + 5_000)
    times.append(time.process_time())
    measured = dissemination.measure()
    phases = [later - before for before, later in pairwise(times)]
    phases[1] -= watching
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    numbers = [*phases, sum(phases), now / 1000, engine.events, 1e6 * sum(phases) / engine.events, peak]
    numbers += [degree, found["relays"], measured.hit_ratio, measured.repeated, measured.delay]
    print(
        f"{nodes:7} " + " ".join(f"{number:8.4g}" if number < 1e4 else f"{number:8.0f}" for number in numbers),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000])
    parser.add_argument("--system", choices=sorted(SYSTEMS), default="magnet")
    parser.add_argument("--tree", choices=["graft", "greedy-path"], default="graft")
    parser.add_argument("--gap-ms", type=int, default=20, help="time between two joins")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--encode", action="store_true", help="send every message through its wire form")
    chosen = parser.parse_args()
    print(f"{chosen.system}, {chosen.tree}, seed {chosen.seed}; times in CPU seconds")
    columns = "join trees publish total virtual events us/event MiB degree relays hit twice hops"
    print("  nodes " + " ".join(f"{name:>8}" for name in columns.split()))
    for nodes in chosen.nodes:
        measure(chosen.system, nodes, chosen.seed, chosen.tree, chosen.gap_ms, chosen.encode)


if __name__ == "__main__":
    main()
