"""Magnet's figures beside the paper's: relays on the trees of Magnet and of the strawman.  [MG §4]

    python benchmarks/magnet_figures.py fig3a --nodes 1000 --seeds 1
    python benchmarks/magnet_figures.py all --nodes 1000 --trees graft greedy-path
    python benchmarks/magnet_figures.py fig6 --nodes 1000 2000 10000 --seeds 1 2 3
    python benchmarks/magnet_figures.py all --converged --nodes 10000 --seeds 1 2 3
    python benchmarks/magnet_figures.py wiki --interests interests.parquet     made by `trellis pipeline edits`

Each point runs both protocols in the simulator: everybody joins, one by one; then all trees are joined; then the relays
are read off the trees. cost = relays per published message, topics weighted by rate (E-17); saving = 1 - Magnet /
strawman. `--nodes` scales the populations (the paper: 10,000; 5,000 in fig4; 2^14 in fig7 and fig8). `--converged`
takes the tables that the protocols come to instead of running them (trellis.lab.converged): the paper's sizes and many
seeds in minutes. This prints numbers; verdicts are given by `trellis lab` alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from math import log2
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np

from trellis.lab.converged import Converged, build, draw_fingers, relays
from trellis.model import Interests, read_interests
from trellis.protocols.oscar.labels import Label
from trellis.protocols.oscar.messages import Peer
from trellis.protocols.oscar.table import Table
from trellis.simulate.engine import Engine
from trellis.simulate.run import topics_by_node
from trellis.simulate.system import World
from trellis.simulate.systems.magnet import Magnet, node_of, reach_all
from trellis.simulate.systems.scribe import Scribe
from trellis.workloads.configs import Hierarchical, Multimodal, Spatial, Uniform, WorkloadConfig
from trellis.workloads.generate import generate
from trellis.workloads.rates import rates
from trellis.workloads.sizes import Sizes

GAP_MS, FIRST_GAP_MS = 20, 500


class Cost(NamedTuple):
    relays: dict[str, int]
    popularity: dict[str, int]
    rate: dict[str, float]
    missed: int
    degree: float
    world: World | None  # None: converged tables

    @property
    def per_message(self) -> float:
        return sum(self.rate[t] * n for t, n in self.relays.items()) / sum(self.rate[t] for t in self.relays)


def cost(system: str, interests: Interests, seed: int, tree: str, links: int, alpha: float, converged: bool) -> Cost:
    names = list(interests.topics)
    values = rates(interests, "powerlaw" if alpha else "uniform", alpha=alpha or 0.75, seed=seed)
    by_topic = dict(zip(names, map(float, values), strict=True))
    popularity = dict(zip(names, map(int, interests.popularity), strict=True))
    known = by_topic if alpha else None  # A-MAG-1: similarity is weighted wherever rates differ
    if not converged:
        relayed, missed, degree, world = run(system, interests, seed, tree, links, known)
        return Cost(relayed, popularity, by_topic, missed, degree, world)
    net = _net(system, interests, seed, links, alpha)
    degree = 2 * statistics.mean(map(len, net.down))
    return Cost(relays(net, seed, tree), popularity, by_topic, 0, degree, None)


@lru_cache(maxsize=2)
def _net(system: str, interests: Interests, seed: int, links: int, alpha: float) -> Converged:
    """The same for both tree forms."""
    known = dict(zip(interests.topics, map(float, rates(interests, alpha=alpha, seed=seed)), strict=True))
    return build(
        topics_by_node(interests), seed, similar=system == "magnet", links=links, rates=known if alpha else None
    )


def run(
    system: str, interests: Interests, seed: int, tree: str, links: int, known: dict[str, float] | None
) -> tuple[dict[str, int], int, float, World]:
    """The protocol, until every subscriber is reached: relays by topic, subscribers that are not, mean degree."""
    wanted = topics_by_node(interests)
    options: dict[str, Any] = {"links": links, "tree": tree, "join_gap_ms": GAP_MS, "first_gap_ms": FIRST_GAP_MS}
    chosen = {"magnet": Magnet, "scribe": Scribe}[system](**options, period_ms=10_000, sample_ms=20_000)
    joining_ms = chosen.begins_ms(len(wanted))[-1]
    chosen.trees_ms = trees_ms = joining_ms + 10_000
    chosen.topic_rates = known
    engine = Engine(chosen, wanted, seed=seed)
    engine.run(trees_ms + joining_ms // 4 + 5_000)
    world = engine.world
    for _ in range(60):  # until everybody hangs on its trees
        found = reach_all(world)
        missed = sum(len(one.subscribers) - one.reached for one in found)
        if not missed:
            break
        engine.run(world.now_ms + 2_000)
    degree = statistics.mean(len(world.claims(name)) for name in world.living)
    return {one.topic: len(one.relays) for one in found}, missed, degree, world


class Point(NamedTuple):
    magnet: float
    scribe: float
    missed: int

    @property
    def saving(self) -> float:
        return 1 - self.magnet / self.scribe if self.scribe else 0.0


class Bench:
    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.points: list[Point] = []

    def cost(
        self, system: str, interests: Interests, seed: int, tree: str, links: int = 19, alpha: float = 0.0
    ) -> Cost:
        return cost(system, interests, seed, tree, links, alpha, self.chosen.converged)

    def point(self, what: str, make: WorkloadConfig | Interests, *, links: int = 19, alpha: float = 0.0) -> list[Point]:
        """One point of a figure, per tree form: the mean over seeds."""
        found: dict[str, list[Point]] = {tree: [] for tree in self.chosen.trees}
        begun = time.process_time()
        for seed in self.chosen.seeds:
            interests = make if isinstance(make, Interests) else generate(make, seed)
            for tree in self.chosen.trees:
                both = [self.cost(name, interests, seed, tree, links, alpha) for name in ("magnet", "scribe")]
                found[tree].append(Point(both[0].per_message, both[1].per_message, both[0].missed + both[1].missed))
        results = []
        for tree, points in found.items():
            mean = Point(
                statistics.mean(one.magnet for one in points),
                statistics.mean(one.scribe for one in points),
                sum(one.missed for one in points),
            )
            seconds = time.process_time() - begun
            print(
                f"  {what:32} {tree:11} magnet {mean.magnet:7.1f} strawman {mean.scribe:7.1f} saving {mean.saving:6.1%}"
                f"  missed {mean.missed}" + (f"  ({seconds:.0f} CPU s)" if tree == self.chosen.trees[-1] else ""),
                flush=True,
            )
            results.append(mean)
        self.points += results
        return results


def multi(nodes: int, b_p: int, b_n: int, subs: int = 50, alpha: float = 1.0) -> Multimodal:
    return Multimodal(nodes=nodes, topics=1000, subs=Sizes(subs, subs), b_p=b_p, b_n=b_n, alpha=alpha)


def fig1(bench: Bench) -> None:
    """Halving partitions on uniform and on extremely skewed labels; and greedy routes over them (I-22)."""
    for nodes in bench.chosen.nodes:
        for name in ("magnet", "scribe"):
            few = Multimodal(nodes=nodes, topics=20, subs=Sizes(2, 2), b_p=1, b_n=10)  # rings matter here, not trees
            interests = generate(few, bench.chosen.seeds[0])
            world = run(name, interests, bench.chosen.seeds[0], "graft", 19, None)[3]
            ring = sorted(world.living, key=lambda node: node_of(world, node).skewed.me.label)
            rank = {node: place for place, node in enumerate(ring)}
            ratios = []
            for place in range(int(log2(nodes)) - 2):
                medians = [node_of(world, node).skewed.fingers.medians for node in ring]
                sizes = [
                    (rank[m[place].node] - rank[n]) % nodes
                    for n, m in zip(ring, medians, strict=True)
                    if len(m) > place
                ]
                ratios.append(statistics.mean(sizes) / (nodes / 2 ** (place + 1)))
            found = routes(world, ring, Random(1))
            bound = log2(nodes) ** 2 / 8.5
            print(
                f"  {nodes:6} nodes, {'skewed' if name == 'magnet' else 'uniform'} labels: n/2^j times "
                f"{' '.join(f'{ratio:.2f}' for ratio in ratios)}; hops mean {statistics.mean(found):.2f}, "
                f"max {max(found)}, log2(n)^2/k = {bound:.1f}",
                flush=True,
            )


def routes(world: Any, ring: list[str], random: Random) -> list[int]:
    hops = []
    for _ in range(3000):
        here, end = random.sample(ring, 2)
        target, count = node_of(world, end).skewed.me.label, 0
        while here != end:
            here = node_of(world, here).skewed.next_hop(target).node
            count += 1
        hops.append(count)
    return hops


def hops(bench: Bench) -> None:
    """Greedy routes over the protocol's own routing tables, filled with converged links (I-22): uniform labels, and
    labels in so steep a curve that the first half of the nodes shares an arc of 2^-32 of the ring. The links have the
    same ranks in both: routing compares labels and does nothing else with them, so the hops must be the same too."""
    for nodes in bench.chosen.nodes:
        curves = {"uniform": 1, "skewed": 32}
        for name, power in curves.items():
            labels = [_label((rank + 1) ** power * 2**512 // (nodes + 1) ** power) for rank in range(nodes)]
            found = table_routes(labels, Random(bench.chosen.seeds[0]))
            print(
                f"  {nodes:6} nodes, {name:7} labels: mean {statistics.mean(found):.2f} hops, max {max(found)}, "
                f"log2(n)^2/k = {log2(nodes) ** 2 / 8.5:.1f}; all {len(found):,} routes arrive",
                flush=True,
            )


def _label(place: int) -> Label:
    return place.to_bytes(64, "big").rstrip(b"\0")


def table_routes(labels: list[Label], random: Random) -> list[int]:
    count = len(labels)
    peers = [Peer(f"n{rank}", label) for rank, label in enumerate(labels)]
    rank_of = {peer.node: rank for rank, peer in enumerate(peers)}
    tables = []
    for rank, peer in enumerate(peers):
        table = Table(peer.node, 1)
        table.move(peer.label)
        down = [peers[(rank + distance) % count] for distance in draw_fingers(count, 19, random)]
        table.successors, table.fingers = down[:1], {one.node: one for one in down[1:]}
        tables.append(table)
    found = []
    for _ in range(3000):
        here, end = random.sample(range(count), 2)
        steps = 0
        while here != end:
            hop = tables[here].next_hop(labels[end])
            assert hop is not None, f"the route to {end} ends at {here}"
            here = rank_of[hop.node]
            steps += 1
        found.append(steps)
    return found


def fig2(bench: Bench) -> None:
    for nodes in bench.chosen.nodes:
        degree = bench.cost("magnet", generate(multi(nodes, 1, 10), 1), 1, "graft").degree
        print(f"  {nodes} nodes: mean degree {degree:.2f}")


def fig3(bench: Bench, alpha: float) -> None:
    nodes = bench.chosen.nodes[-1]
    for ratio in (10, 5):
        for b_p in bench.chosen.modes:
            bench.point(f"b_p/b_n {b_p}/{b_p * ratio}", multi(nodes, b_p, b_p * ratio), alpha=alpha)


def fig3a(bench: Bench) -> None:
    fig3(bench, 0.0)


def fig3b(bench: Bench) -> None:
    fig3(bench, 0.75)


def fig4a(bench: Bench) -> None:
    nodes = bench.chosen.nodes[-1]
    for alpha in (0.5, 1, 1.5, 2):
        bench.point(f"alpha {alpha:g}, 1/5, 18 topics", multi(nodes, 1, 5, 18, alpha))


def fig4b(bench: Bench) -> None:
    nodes = bench.chosen.nodes[-1]
    for subs in (10, 18, 30, 50):
        for alpha in (0.0, 0.75):
            bench.point(f"{subs} topics, rates {alpha or 'equal'}", multi(nodes, 1, 5, subs, 0.75), alpha=alpha)


def fig5(bench: Bench) -> None:
    """Share of messages to uninterested peers over all messages of the first x topics."""
    nodes = bench.chosen.nodes[-1]
    for name, b_p, b_n in (("magnet-fig5a", 1, 10), ("magnet-fig5b", 5, 25)):
        interests = generate(multi(nodes, b_p, b_n), 1)
        for tree in bench.chosen.trees:
            shares = [_shares(bench.cost(system, interests, 1, tree, 19, 0.75)) for system in ("magnet", "scribe")]
            spots = [x for x in (10, 50, 100, 200, 500, len(shares[0])) if x <= len(shares[0])]
            for system, share in zip(("magnet", "strawman"), shares, strict=True):
                print(f"  {name} {tree} {system:9}", " ".join(f"{x}: {share[x - 1]:.1%}" for x in spots), flush=True)


def _shares(found: Cost) -> Any:
    order = sorted(found.relays, key=lambda topic: (-found.popularity[topic], topic))
    relayed = np.cumsum([found.rate[topic] * found.relays[topic] for topic in order])
    wanted = np.cumsum([found.rate[topic] * found.popularity[topic] for topic in order])
    return relayed / (relayed + wanted)


def fig6(bench: Bench) -> None:
    for nodes in bench.chosen.nodes:
        for mean in (8, 16, 32):
            bench.point(f"spatial, {nodes} nodes, t = {mean}", Spatial(nodes=nodes, mean=mean))


def hier(bench: Bench, **fields: Any) -> Hierarchical:
    size = 2 ** int(log2(bench.chosen.nodes[-1]))
    return msgspec.structs.replace(Hierarchical(nodes=size, topics=size), **fields)


def fig7(bench: Bench) -> None:
    """A workload, no protocol, so always at 2^14; docs/papers.md has twenty seeds."""
    popularity = np.sort(generate(Hierarchical(), bench.chosen.seeds[0]).popularity)[::-1]
    values = np.unique(popularity[popularity > 0])
    above = np.array([(popularity >= value).mean() for value in values])
    x, y = np.log10(values), np.log10(above)
    slope, base = np.polyfit(x, y, 1)
    fit = 1 - np.var(y - slope * x - base) / np.var(y)
    print(
        f"  slope of the whole log-log CCDF {slope:.2f} (paper -1.68), R^2 {fit:.3f}, {x.max() - x.min():.1f} decades"
    )


def fig8a(bench: Bench) -> None:
    for value in (0.5, 1.0, 2.0, 3.0):
        bench.point(f"hier, lambda {value:g}", hier(bench, lambda_=value))
    for value in (0.3, 0.5):
        bench.point(f"hier, initFrac {value:.0%}", hier(bench, init_frac=value))


def fig8b(bench: Bench) -> None:
    for z in (8.0, 16.0, 32.0):
        bench.point(f"hier, Z = {z:g}", hier(bench, z=z))


def wiki(bench: Bench) -> None:
    if bench.chosen.interests is None:
        print("magnet-wiki: no data; give --interests, made by `trellis pipeline edits`")
        return
    interests = read_interests(bench.chosen.interests)
    popularity = interests.popularity
    print(
        f"  {len(interests.nodes)} users, {len(interests.topics)} articles, {interests.subscriptions} subscriptions, "
        f"popularity {popularity.min()}..{popularity.max()}, mean {popularity.mean():.1f}"
    )
    for point in bench.point("wikipedia edits", interests, links=12):
        more = point.scribe / point.magnet - 1
        print(f"  the strawman involves {more:.0%} more uninterested peers (paper: 77%)")


def worse(bench: Bench) -> None:
    """Never worse than the strawman, for uncorrelated interests too."""
    nodes = bench.chosen.nodes[-1]
    for topics, subs in ((1000, 50), (200, 5)):
        bench.point(f"random, {subs} of {topics}", Uniform(nodes, topics, Sizes(subs, subs)))
    most = max(point.magnet / point.scribe for point in bench.points)
    print(f"  of all points: Magnet at most {most:.2f} times the strawman", flush=True)


FIGURES: dict[str, Callable[[Bench], None]] = {
    "fig1": fig1,
    "hops": hops,
    "fig2": fig2,
    "fig3a": fig3a,
    "fig3b": fig3b,
    "fig4a": fig4a,
    "fig4b": fig4b,
    "fig5": fig5,
    "fig6": fig6,
    "fig7": fig7,
    "fig8a": fig8a,
    "fig8b": fig8b,
    "wiki": wiki,
    "worse": worse,
}


def main(words: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="+", choices=[*FIGURES, "all"])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--trees", nargs="+", choices=["graft", "greedy-path"], default=["graft", "greedy-path"])
    parser.add_argument("--modes", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="values of b_p in fig3")
    parser.add_argument("--interests", default=None, help="the table for wiki")
    parser.add_argument("--converged", action="store_true", help="on converged tables instead of running the protocols")
    chosen = parser.parse_args(None if words is None else list(words))
    bench = Bench(chosen)
    for name in FIGURES if "all" in chosen.figures else chosen.figures:
        print(name, flush=True)
        FIGURES[name](bench)


if __name__ == "__main__":
    main()
