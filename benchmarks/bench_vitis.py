"""Vitis, RVR or OPT: 50 gossip cycles from nothing, then one event on every topic: time, memory and growth.

    python benchmarks/bench_vitis.py                                    500, 1,000 (aim: 45 s) and 2,000 nodes
    python benchmarks/bench_vitis.py --nodes 10000                      (aim: 25 minutes and 8 GiB)
    python benchmarks/bench_vitis.py --nodes 1000 --table-size 15 25 35
    python benchmarks/bench_vitis.py --nodes 1000 --subs 25 50 100
    python benchmarks/bench_vitis.py --nodes 1000 --profile 25          where the time goes

Interests as in VI §IV-A, one topic for two nodes: 5,000 topics at 10,000 nodes, 50 subscriptions. Times are processor
times: of the cycles, and of the events with the ten cycles in which they travel. "wrong" are successors that are not
the true ones after the cycles, and lookups (of 2,000, of random topics by random nodes) that do not end at the true
rendezvous node; "hops" is their mean length.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import sys
import time
from bisect import bisect_left
from random import Random

from trellis.protocols.lookup import rendezvous
from trellis.protocols.ring import identifier
from trellis.simulate.dissemination import Dissemination
from trellis.simulate.dissemination_system import TableSystem, node_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.population import Population
from trellis.simulate.publications import one_per_topic, together
from trellis.simulate.run import topics_by_node
from trellis.simulate.systems import maker_of
from trellis.workloads.configs import Correlated
from trellis.workloads.generate import generate

PERIOD_MS = 1_000
EVENT_CYCLES = 10


def wrong_successors(world: Population) -> int:
    ring = sorted(world.living, key=identifier)
    return sum(node_of(world, name).beside[:1] != (ring[(place + 1) % len(ring)],) for place, name in enumerate(ring))


def lookups(world: Population, topics: list[str], count: int = 2_000) -> tuple[float, int]:
    """Mean hops of lookups of random topics by random nodes, and how many end elsewhere than at the rendezvous node."""
    random = Random(1)
    ring = sorted((identifier(name), name) for name in world.living)
    hops = astray = 0
    for _ in range(count):
        name, place = random.choice(world.living), identifier(random.choice(topics))
        while (hop := node_of(world, name).relays.compass.next_hop(place)) is not None:
            name, hops = hop, hops + 1
        after = bisect_left(ring, (place, ""))
        beside = [ring[after % len(ring)][1], ring[after - 1][1]]
        astray += name != rendezvous(place, beside)
    return hops / count, astray


def measure(chosen: argparse.Namespace, nodes: int, table_size: int, subs: int) -> str:
    topics = chosen.topics or nodes // 2
    config = Correlated(nodes=nodes, topics=topics, subs=subs, level=chosen.level, buckets=max(1, topics // 50))
    interests = topics_by_node(generate(config, chosen.seed))
    system: TableSystem = maker_of(chosen.system)(table_size=table_size, publications=0)
    begun = time.process_time()
    engine = Engine(system, interests, seed=chosen.seed)
    engine.watchers.clear()  # the events are watched from the end of the cycles on
    engine.run(chosen.cycles * PERIOD_MS)
    built = time.process_time()
    wrong, hops = "", ""
    if chosen.system != "opt":
        mean, astray = lookups(engine.world, sorted({topic for wanted in interests.values() for topic in wanted}))
        wrong, hops = f"{wrong_successors(engine.world)}, {astray}", f"{mean:.2f}"
    resumed = time.process_time()
    watched = Dissemination.attach(engine)
    Injector(engine, together(one_per_topic(interests, start_ms=engine.world.now_ms, span_ms=5_000, seed=chosen.seed)))
    engine.run((chosen.cycles + EVENT_CYCLES) * PERIOD_MS)
    spread = time.process_time()
    found = watched.measure()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return (
        f"{nodes:7} {table_size:5} {subs:5} {built - begun:9.1f} {spread - resumed:9.1f} {engine.events:12,} "
        f"{peak:9.0f} {wrong:>6} {hops:>6} {found.hit_ratio:10.6f} {found.overhead:9.4f} {found.delay:7.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", choices=("vitis", "rvr", "opt"), default="vitis")
    parser.add_argument("--nodes", type=int, nargs="+", default=[500, 1000, 2000])
    parser.add_argument("--table-size", type=int, nargs="+", default=[15])
    parser.add_argument("--subs", type=int, nargs="+", default=[50])
    parser.add_argument("--topics", type=int, default=0, help="0: half as many as nodes")
    parser.add_argument("--level", choices=("random", "low", "high"), default="random")
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", type=int, default=0, metavar="LINES", help="print the functions that take longest")
    chosen = parser.parse_args()
    print("  nodes table  subs  cycles s  events s       events  peak MiB  wrong   hops  hit ratio  overhead   delay")
    profile = cProfile.Profile() if chosen.profile else None
    for nodes in chosen.nodes:
        for table_size in chosen.table_size:
            for subs in chosen.subs:
                if profile is not None:
                    profile.enable()
                print(measure(chosen, nodes, table_size, subs), flush=True)
                if profile is not None:
                    profile.disable()
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(chosen.profile)


if __name__ == "__main__":
    main()
