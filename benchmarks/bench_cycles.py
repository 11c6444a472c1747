"""The cycle engine: Newscast exchanges per second, and the papers' systems at their size: time, memory, growth.

    python benchmarks/bench_cycles.py                                   10,000 nodes: the speed lines of docs/cycles.md
    python benchmarks/bench_cycles.py --nodes 10000 30000 100000        growth; the exponent is printed
    python benchmarks/bench_cycles.py --beside 300                      one run of 300 nodes on both engines
    python benchmarks/bench_cycles.py --systems omen-views --nodes 10000 100000
    python benchmarks/bench_cycles.py --systems omen --nodes 10000 --events 200
    python benchmarks/bench_cycles.py --systems omen --interests facebook.parquet --churn google.parquet

Vitis and RVR: interests as in VI §IV-A, 50 of 5,000 topics a node, unless --topics says otherwise; routing tables of 15
entries, 50 cycles, then one event on every topic. SpiderCast and its baselines: interests sc(RSS, n, 100, 10), full
views, until no link has changed for 13 s. OMen: interests of a generated friendship graph and generated machine events,
or those of files; L = 1, lambda = 5, from LowODA's overlay, 30 rounds of warm-up, then one event a round, and 60 rounds
after them. OMen's views: 30 rounds, ten random links a node in place of LowODA's. Magnet and the strawman (scribe):
MULTI-MODAL 1/10, 50 of 1,000 topics, 19 links, nodes 20 ms apart (the first ones further), until all have joined the
trees of their topics. Times are processor times on one core, after the kernels were compiled; the peak is that of the
whole process.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from math import log
from typing import Any, cast

import numpy as np
from msgspec.structs import replace

import trellis
from trellis.cycles.chance import stream
from trellis.cycles.instance import make_instance
from trellis.cycles.magnet_network import MagnetNetwork
from trellis.cycles.memory import magnet_memory_needed, memory_needed, neighbors_memory_needed, omen_memory_needed
from trellis.cycles.network import LONELY_ROUNDS, contacts_of, make_network
from trellis.cycles.newscast import make_views, newscast_cycle
from trellis.cycles.omen_run.network import OMenNetwork
from trellis.lab.substitutes import friend_interests, machine_churn
from trellis.model import Interests
from trellis.protocols.omen import OMenConfig
from trellis.simulate.by_cycles import measured
from trellis.simulate.churn import schedule_of
from trellis.simulate.dissemination_system import TableSystem
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.omen_by_cycles import start_omen
from trellis.simulate.publications import one_per_topic, together
from trellis.simulate.run import link_names, topics_by_node
from trellis.simulate.schedule import Schedule
from trellis.simulate.systems import maker_of
from trellis.workloads.configs import Correlated, Multimodal
from trellis.workloads.generate import generate
from trellis.workloads.presets import PRESETS
from trellis.workloads.sizes import Sizes

TABLES, NEIGHBORS, OMENS = ("vitis", "rvr"), ("spidercast", "similarity", "random"), ("omen", "omen-views")
MAGNETS = ("magnet", "scribe")
WARMUP, AFTER = 30, 60


def newscast(nodes: int, cycles: int) -> float:
    """Return exchanges per second."""
    views, chance = make_views(contacts_of(nodes, 1), 20), stream(1, "newscast")
    order, mark, alive = np.arange(nodes, dtype=np.int32), np.zeros(nodes, np.int32), np.ones(nodes, np.bool_)
    begun, exchanges = time.process_time(), 0
    for _ in range(cycles):
        exchanges += newscast_cycle(views, alive, order, chance, mark, 30, LONELY_ROUNDS)
    return exchanges / (time.process_time() - begun)


def interests(nodes: int, topics: int, subs: int, level: str) -> dict[str, tuple[str, ...]]:
    return topics_by_node(generate(Correlated(nodes, topics, subs, max(5, topics // 50), level), 1))


def system_of(name: str) -> TableSystem:
    made: Any = maker_of(name)(publications=0, linger_rounds=0)
    return made


def run(name: str, wanted: dict[str, tuple[str, ...]], cycles: int) -> tuple[float, str]:
    begun = time.process_time()
    instance = make_instance(wanted)
    network = make_network(instance, system_of(name).config)
    for _ in range(cycles):
        network.cycle()
    built = time.process_time()
    wants, random = instance.wants, np.random.default_rng(1)
    drawn = random.integers(wants.topic_offsets[:-1], wants.topic_offsets[1:])
    network.publish(np.arange(len(instance.topics)), wants.subscribers[drawn])
    done = time.process_time()
    found = measured(network)
    peak = peak_mib()
    told = memory_needed(len(instance.nodes), len(instance.topics), instance.subscriptions, network.config) >> 20
    return done - begun, (
        f"{name:>6} {len(instance.nodes):8,} {len(instance.topics):7,} {built - begun:9.1f} {done - built:9.2f} "
        f"{done - begun:9.1f} {peak:9.0f} {told:9.0f} {found.hit_ratio:10.6f} {found.overhead:9.4f} {found.delay:7.2f}"
    )


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def build_tables(name: str, chosen: argparse.Namespace, nodes: int) -> tuple[float, str]:
    return run(name, interests(nodes, chosen.topics, chosen.subs, chosen.level), chosen.cycles)


def build(name: str, nodes: int) -> tuple[float, str]:
    """Let SpiderCast or a baseline build its overlay, with the series of a run."""
    wanted = generate(replace(cast(Any, PRESETS["spidercast-rss"].config), nodes=nodes), 1)
    begun = time.process_time()
    run: Any = trellis.simulate(name, wanted, engine="cycles")
    done = time.process_time() - begun
    found, size = run.summary(), (nodes, len(wanted.topics), wanted.subscriptions)
    peak = peak_mib()
    told = neighbors_memory_needed(*size, run.system.config) >> 20
    return done, (
        f"{name:>10} {nodes:8,} {done:9.1f} {peak:9.0f} {told:9.0f} {found['degree']['mean']:7.2f} "
        f"{found['degree']['max']:6.0f} {found['split_topics']:6} {found['changed_last_s']:8.2f}"
    )


def omen_views(nodes: int) -> tuple[float, str]:
    """Let OMen's nodes gossip until their views have settled."""
    wanted = friend_interests(nodes, 1)
    instance, random = make_instance(topics_by_node(wanted)), np.random.default_rng(1)
    ends = np.unique(np.sort(random.integers(0, nodes, (5 * nodes, 2)), axis=1), axis=0)
    ends = ends[ends[:, 0] < ends[:, 1]]
    begun = time.process_time()
    network = OMenNetwork(instance, OMenConfig(resilience=1), 1, links=(ends[:, 0], ends[:, 1]))
    for _ in range(WARMUP):
        network.cycle()
    return _told(network, time.process_time() - begun, "omen-views", nodes, wanted)


def omen(chosen: argparse.Namespace, nodes: int) -> tuple[float, str]:
    """Let OMen repair one event a round."""
    wanted = trellis.read_interests(chosen.interests) if chosen.interests else friend_interests(nodes, 1)
    trace = trellis.read_churn(chosen.churn, wanted) if chosen.churn else machine_churn(wanted, 1)
    planned = schedule_of(trace, wanted, start_ms=1000 * WARMUP, every_ms=1000)
    schedule = Schedule(planned.faults[: chosen.events], planned.absent)
    there = {name: topics for name, topics in topics_by_node(wanted).items() if name not in planned.absent}
    start = trellis.plan(Interests.from_pairs(there), "lowoda", seed=1).overlay
    begun = time.process_time()
    system: Any = maker_of("omen")(resilience=1)
    network, plan = start_omen(system, topics_by_node(wanted), schedule, 1, links=link_names(start))
    for _ in range(WARMUP + len(schedule.faults) + AFTER):
        plan.happen(network)
        network.cycle()
    return _told(network, time.process_time() - begun, "omen", len(wanted.nodes), wanted)


def _told(network: OMenNetwork, seconds: float, name: str, nodes: int, wanted: Interests) -> tuple[float, str]:
    sizes, events = network.sizes()[0], network.events
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    told = omen_memory_needed(nodes, len(wanted.topics), wanted.subscriptions, network.config) >> 20
    degrees, repairs = network.links.count[network.alive], sum(events.repairs.values())
    return seconds, (
        f"{name:>10} {nodes:8,} {network.round:7,} {seconds:9.1f} {peak:9.0f} {told:9.0f} {sizes.mean():7.1f} "
        f"{repairs:8,} {degrees.mean():7.2f} {degrees.max():6.0f}"
    )


def build_trees(name: str, topics: int, subs: int, nodes: int) -> tuple[float, str]:
    """Let all nodes of Magnet or the strawman join, and then join their trees."""
    wanted = topics_by_node(generate(Multimodal(nodes, topics, Sizes(subs, subs), 1, 10), 1))
    system: Any = maker_of(name)(join_gap_ms=20, first_gap_ms=500, period_ms=10_000, sample_ms=20_000)
    begins = system.begins_ms(nodes)
    begun = time.process_time()
    instance = make_instance(wanted)
    network = MagnetNetwork(instance, system.config, begins, begins[-1] + 10_000)
    network.run(network.trees_ms - 1)
    joined = time.process_time()
    network.run(network.trees_end_ms)
    done, found = time.process_time(), network.reached()
    told = magnet_memory_needed(nodes, len(instance.topics), instance.subscriptions, system.config) >> 20
    return done - begun, (
        f"{name:>10} {nodes:8,} {joined - begun:9.1f} {done - joined:9.1f} {done - begun:9.1f} {peak_mib():9.0f} "
        f"{told:9.0f} {2 * len(network.links()[0]) / nodes:7.2f} {found.relays.mean():8.1f} "
        f"{found.reached.sum() / instance.subscriptions:8.4f} {found.hops.sum() / found.reached.sum():6.2f}"
    )


def beside(nodes: int, cycles: int) -> None:
    """Print what the same run costs on both engines."""
    wanted = interests(nodes, nodes // 2, 20, "random")
    system = system_of("vitis")
    begun = time.process_time()
    engine = Engine(system, wanted, seed=1)
    Injector(engine, together(one_per_topic(wanted, start_ms=1000 * cycles, span_ms=0, seed=1)))
    engine.run(1000 * (cycles + 1))
    events = time.process_time() - begun
    arrays, _ = run("vitis", wanted, cycles)
    print(f"{nodes:,} nodes: events {events:.2f} s, cycles {arrays:.3f} s: {events / arrays:,.0f} times as fast")


def grow(name: str, sizes: list[int], measure: Callable[[int], tuple[float, str]]) -> None:
    """Print a line for each size, and the exponent of growth."""
    spent = []
    for nodes in sizes:
        seconds, line = measure(nodes)
        spent.append(seconds)
        print(line, flush=True)
    if len(spent) > 1:
        print(
            f"{name}: time grows with nodes to the power of {log(spent[-1] / spent[0]) / log(sizes[-1] / sizes[0]):.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    systems = (*TABLES, *NEIGHBORS, *OMENS, *MAGNETS)
    parser.add_argument("--systems", nargs="+", choices=systems, default=["vitis", "rvr", "spidercast", "magnet"])
    parser.add_argument("--nodes", type=int, nargs="+", default=[10_000])
    parser.add_argument("--topics", type=int, default=5_000)
    parser.add_argument("--subs", type=int, default=50)
    parser.add_argument("--level", choices=("random", "low", "high"), default="random")
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--events", type=int, default=200, help="of OMen's churn")
    parser.add_argument("--interests", default="", help="a table of node, topic for OMen")
    parser.add_argument("--churn", default="", help="a churn trace for OMen")
    parser.add_argument("--beside", type=int, default=0, metavar="NODES", help="compare with the event engine")
    chosen = parser.parse_args()
    newscast(100, 2)
    for nodes in chosen.nodes:
        rate = newscast(nodes, 100 if nodes <= 20_000 else 20)
        print(f"Newscast, {nodes:,} nodes: {rate:,.0f} exchanges/s (aim at 10,000 nodes: 1,500,000)")
    tables = [name for name in chosen.systems if name in TABLES]
    for name in tables:
        run(name, interests(100, 50, 5, "random"), 2)  # compiles
    if tables:
        print("system    nodes  topics  cycles s  events s     all s  peak MiB  told MiB  hit ratio  overhead   delay")
    for name in tables:
        grow(name, chosen.nodes, partial(build_tables, name, chosen))
    neighbors = [name for name in chosen.systems if name in NEIGHBORS]
    for name in neighbors:
        build(name, 100)  # compiles
    if neighbors:
        print("    system    nodes       all s  peak MiB  told MiB  degree    max  split  quiet s")
    for name in neighbors:
        grow(name, chosen.nodes, partial(build, name))
    omens = [name for name in chosen.systems if name in OMENS]
    if omens:
        omen_views(100)  # compiles
        print("    system    nodes  rounds     all s  peak MiB  told MiB    view  repairs  degree    max")
    for name in omens:
        grow(name, chosen.nodes, partial(omen, chosen) if name == "omen" else omen_views)
    magnets = [name for name in chosen.systems if name in MAGNETS]
    for name in magnets:
        build_trees(name, 20, 5, 100)  # compiles
    if magnets:
        print("    system    nodes    join s   trees s     all s  peak MiB  told MiB  degree   relays  reached   hops")
    for name in magnets:
        grow(name, chosen.nodes, partial(build_trees, name, 1_000, chosen.subs))
    if chosen.beside:
        beside(chosen.beside, chosen.cycles)


if __name__ == "__main__":
    main()
