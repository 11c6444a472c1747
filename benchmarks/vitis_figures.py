"""Vitis' figures beside the paper's: the numbers of each experiment of [VI §IV].

    python benchmarks/vitis_figures.py fig4 fig5 abs fig6 fig7 --nodes 1000 --topics 1000 --seeds 1
    python benchmarks/vitis_figures.py fig10 fig11 --nodes 1000                     the generator of followers
    python benchmarks/vitis_figures.py fig10 fig11 --social interests.parquet       any table of interests
    python benchmarks/vitis_figures.py fig12 --nodes 600 --topics 600
    python benchmarks/vitis_figures.py fig12 --social interests/ --churn churn/ --start 904600 --window 5400 --faster 40
    python benchmarks/vitis_figures.py bound ideal expected --sizes-bound 1000 4000 10000 --long-bound 1 2 --cycles 30

The paper has 10,000 nodes and 5,000 topics, 50 of them a node; topics stand in buckets of 50. Runs start from nothing,
go on for `--cycles` gossip cycles, and then publish one event on every topic from a random subscriber. Runs that
several figures need are made once; with `--results DIR` they are kept there, and a later call goes on where `--seconds`
ended the one before. Verdicts are given by `trellis lab` alone.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from statistics import mean

import msgspec

import vitis_bound
from bench_vitis import wrong_successors
from trellis import ids
from trellis.model import read_churn, read_interests
from trellis.simulate.churn import schedule_of
from trellis.simulate.dissemination import Measured
from trellis.simulate.dissemination_system import TableSystem
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.publications import by_rates, one_per_topic, together
from trellis.simulate.run import topics_by_node
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems import maker_of
from trellis.workloads.configs import Correlated
from trellis.workloads.generate import generate

LEVELS = ("random", "low", "high")
DEFAULTS = {"sw_neighbors": 3, "table_size": 15, "bounded": True, "coverage": 3}
Wanted = dict[str, tuple[str, ...]]


class Made(msgspec.Struct):
    """A run, as it is kept."""

    found: Measured
    tables: list[int]  # links of a node, both ends counted, ascending
    wrong: int  # successors
    seconds: float


class Lab:
    """Runs by their parameters, each once."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen, self.nodes, self.seeds, self.cycles = chosen, chosen.nodes, chosen.seeds, chosen.cycles
        self.topics = chosen.topics or self.nodes // 2
        self.missed = 0  # over all static runs of Vitis and RVR
        self.spent = 0.0

    @cache  # noqa: B019  one lab, and it lives as long as the program
    def interests(self, level: str, seed: int) -> Wanted:
        buckets = max(1, self.topics // 50)
        return topics_by_node(generate(Correlated(self.nodes, self.topics, level=level, buckets=buckets), seed))

    @cache  # noqa: B019
    def social(self, seed: int) -> Wanted:
        return topics_by_node(read_interests(self.chosen.social)) if self.chosen.social else followers(self.nodes, seed)

    def run(self, system: str, level: str, seed: int, alpha: float = 0.0, **options: object) -> Measured:
        """What was measured after one run. RVR does not see interests: all patterns are the same for it."""
        if system == "rvr" and level in LEVELS:
            level = "random"
        given = {name: value for name, value in options.items() if DEFAULTS.get(name) != value}
        return self._run(system, level, seed, alpha, **given)

    @cache  # noqa: B019
    def _run(self, system: str, level: str, seed: int, alpha: float, **options: object) -> Measured:
        social = str(self.chosen.social or "generator") if level == "social" else ""
        size = f"{self.nodes}-{self.topics}-{self.cycles}" if not self.chosen.social else f"{self.cycles}"
        varied = "-".join(f"{name}={value}" for name, value in sorted(options.items()))
        key = f"{system}-{level}{social}-{size}-seed{seed}-alpha{alpha:g}-{varied}".replace("/", "_")
        kept = self.chosen.results / f"{key}.json" if self.chosen.results else None
        if kept is not None and kept.exists():
            made = msgspec.json.decode(kept.read_bytes(), type=Made)
        else:
            if self.chosen.seconds and time.process_time() > self.chosen.seconds:
                raise SystemExit("the seconds are over; call again to go on")
            made = self._make(system, level, seed, alpha, options)
            if kept is not None:
                kept.write_bytes(msgspec.json.encode(made))
        found = made.found
        if system != "opt":
            self.missed += found.missed
        self.spent += made.seconds
        self.tables = made.tables
        told = f"missed {found.missed} of {found.missed + found.hits:,}, {made.wrong} wrong successors"
        varied = " ".join([*(f"{name} {value}" for name, value in options.items()), f"alpha {alpha:g}" * bool(alpha)])
        print(f"      [{system} {level} seed {seed} {varied} {told}, {made.seconds:.0f} s]", flush=True)
        return found

    def _make(self, system: str, level: str, seed: int, alpha: float, options: dict[str, object]) -> Made:
        begun = time.process_time()
        interests = self.social(seed) if level == "social" else self.interests(level, seed)
        made = made_for_figures(system, **options)
        start, span = self.cycles * 1000, 5_000
        if alpha:
            made.rates = power_law(interests, alpha, seed)
            faults = by_rates(interests, made.rates, count=500, start_ms=start, span_ms=span, seed=seed)
        else:
            faults = one_per_topic(interests, start_ms=start, span_ms=span, seed=seed)
        engine = Engine(made, interests, seed=seed)
        Injector(engine, together(faults))
        engine.run(start + span + 6_000)
        assert made.dissemination is not None
        found = made.dissemination.measure()
        assert not found.repeated, "an application got an event twice"
        links = Counter(name for link in engine.world.links() for name in link)
        tables = sorted(links[name] for name in engine.world.living)
        wrong = wrong_successors(engine.world) if system != "opt" else 0
        return Made(found, tables, wrong, time.process_time() - begun)

    def mean(self, of: Callable[[Measured], float], system: str, level: str, **options: object) -> float:
        return mean(of(self.run(system, level, seed, **options)) for seed in self.seeds)

    def overhead(self, system: str, level: str, **options: object) -> float:
        return self.mean(lambda found: found.overhead, system, level, **options)

    def delay(self, system: str, level: str, **options: object) -> float:
        return self.mean(lambda found: found.delay, system, level, **options)

    def hits(self, system: str, level: str, **options: object) -> float:
        return self.mean(lambda found: found.hit_ratio, system, level, **options)


def made_for_figures(system: str, **options: object) -> TableSystem:
    """The system as the paper has it: its links do not linger."""
    lingering = {} if system == "opt" else {"linger_rounds": 0}
    made: TableSystem = maker_of(system)(publications=0, **lingering, **options)
    return made


def power_law(interests: Wanted, alpha: float, seed: int) -> dict[str, float]:
    """The i-th topic's rate is i^-alpha, topics in random order.  [VI §IV-D]"""
    topics = sorted({topic for wanted in interests.values() for topic in wanted})
    Random(ids.stream(seed, "figure", "rates")).shuffle(topics)
    return {topic: (place + 1) ** -alpha for place, topic in enumerate(topics)}


def followers(nodes: int, seed: int, exponent: float = 1.65) -> Wanted:
    """A stand-in for the Twitter sample: in- and out-degrees by a power law of exponent 1.65, capped at a fifth of all.

    Users are topics as well; nobody follows itself. The mean is about 80 at 10,000 nodes, less where the cap is lower.
    """
    random = Random(ids.stream(seed, "figure", "followers"))
    most, least = max(10, nodes // 5), 4

    def draw() -> int:
        return min(most, int(least * (1 - random.random()) ** (-1 / (exponent - 1))))

    names = [f"u{number}" for number in range(nodes)]
    weights = [draw() for _ in names]
    wanted: Wanted = {}
    for name in names:
        chosen: dict[str, None] = {}
        count = min(draw(), nodes // 5)
        while len(chosen) < count:
            chosen.update(dict.fromkeys(one for one in random.choices(names, weights, k=count) if one != name))
        wanted[name] = tuple(list(chosen)[:count])
    return wanted


def percents(values: list[float]) -> str:
    return " ".join(f"{100 * value:.1f}%" for value in values)


def hops(values: list[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def fig4(lab: Lab) -> Iterator[str]:
    """Fig. 4: friends 0..12 of 15 entries; the others are successor, predecessor and long links."""
    friends = lab.chosen.friends
    rvr, rvr_delay = lab.overhead("rvr", "random"), lab.delay("rvr", "random")
    overhead = {level: [lab.overhead("vitis", level, sw_neighbors=15 - count) for count in friends] for level in LEVELS}
    delay = {level: [lab.delay("vitis", level, sw_neighbors=15 - count) for count in friends] for level in LEVELS}
    yield f"friends {' '.join(map(str, friends))}; RVR {rvr:.1%}, {rvr_delay:.2f} hops"
    for level in LEVELS:
        yield f"{level:7} overhead {percents(overhead[level])}   delay {hops(delay[level])}"
    high, random = (min(overhead[level]) / rvr - 1 for level in ("high", "random"))
    yield f"{lab.missed} pairs missed; against RVR at best: high {high:+.0%}, random {random:+.0%}"


def fig5(lab: Lab) -> Iterator[str]:
    """Fig. 5: the distribution of overhead over nodes, table 15."""
    shares = {
        name: [lab.mean(lambda found, at=at: found.share_of_nodes(above=at), *which) for at in (0.1, 0.2)]
        for name, which in (("Vitis high", ("vitis", "high")), ("RVR", ("rvr", "random")))
    }
    for name, (ten, twenty) in shares.items():
        yield f"{name:10} nodes above 10%: {ten:.1%}, above 20%: {twenty:.1%}"


def fig6(lab: Lab) -> Iterator[str]:
    """Fig. 6: tables of 15 to 35 entries."""
    sizes = lab.chosen.sizes
    overhead = {level: [lab.overhead("vitis", level, table_size=size) for size in sizes] for level in LEVELS}
    delay = {level: [lab.delay("vitis", level, table_size=size) for size in sizes] for level in LEVELS}
    rvr = [lab.overhead("rvr", "random", table_size=size) for size in sizes]
    rvr_delay = [lab.delay("rvr", "random", table_size=size) for size in sizes]
    yield f"table {' '.join(map(str, sizes))}; RVR {percents(rvr)}   {hops(rvr_delay)}"
    for level in LEVELS:
        yield f"{level:7} overhead {percents(overhead[level])}   delay {hops(delay[level])}"
    slower = [size for size, mine, theirs in zip(sizes, delay["random"], rvr_delay, strict=True) if mine > theirs]
    yield f"random interests: slower than RVR with tables of {slower}"


def fig7(lab: Lab) -> Iterator[str]:
    """Fig. 7: publication rates by a power law of exponent 0.3 to 3; utility knows the rates (A-VIT-5)."""
    alphas = lab.chosen.alphas
    overhead = {level: [lab.overhead("vitis", level, alpha=alpha) for alpha in alphas] for level in ("random", "high")}
    delay = {level: [lab.delay("vitis", level, alpha=alpha) for alpha in alphas] for level in ("random", "high")}
    for level in overhead:
        yield f"alpha {alphas}: {level:7} overhead {percents(overhead[level])}   delay {hops(delay[level])}"
    for name, values in (("overhead", overhead), ("delay", delay)):
        first, last = (values["random"][at] - values["high"][at] for at in (0, -1))
        yield f"{name}: random less high falls to {last / first:.0%}"


def fig10(lab: Lab) -> Iterator[str]:
    """Fig. 10: social interests (a substitute), tables of 15 to 35: Vitis, RVR, OPT."""
    sizes = lab.chosen.sizes
    names = ("vitis", "rvr", "opt")
    wanted = lab.social(lab.seeds[0])
    yield f"{len(wanted):,} users, {mean(map(len, wanted.values())):.1f} subscriptions on average; table {sizes}"
    hit = {name: [lab.hits(name, "social", table_size=size) for size in sizes] for name in names}
    overhead = {name: [lab.overhead(name, "social", table_size=size) for size in sizes] for name in names}
    delay = {name: [lab.delay(name, "social", table_size=size) for size in sizes] for name in names}
    for name in names:
        yield f"{name:6} hit {percents(hit[name])}   overhead {percents(overhead[name])}   delay {hops(delay[name])}"
    ratios = " ".join(f"{m / r - 1:+.0%}" for m, r in zip(overhead["vitis"], overhead["rvr"], strict=True))
    yield f"Vitis' overhead against RVR's: {ratios}"


def fig11(lab: Lab) -> Iterator[str]:
    """Fig. 11: degrees of OPT without a bound, social interests (a substitute)."""
    for coverage in (1, 3):
        found = lab.run("opt", "social", lab.seeds[0], bounded=False, coverage=coverage)
        sizes = lab.tables
        above, many = (sum(size > at for size in sizes) / len(sizes) for at in (15, 200))
        median = sizes[len(sizes) // 2]
        yield f"K = {coverage}: {above:.1%} above 15, {many:.1%} above 200, median {median}, largest {sizes[-1]}"
        yield f"       hit ratio {found.hit_ratio:.4f}, delay {found.delay:.2f}"


def fig12(lab: Lab) -> Iterator[str]:
    """Fig. 12: churn. A synthetic flash crowd (half as many again join within 10 s), or a window of a churn table."""
    seed, step = lab.seeds[0], 5_000
    interests, churn, end = window_of(lab.chosen) if lab.chosen.churn else crowd_of(lab, seed)
    joins = Counter(fault.time_ms // 10_000 for fault in churn.faults if fault.kind == "join")
    peak = max(joins, key=lambda at: (joins[at], -at)) * 10_000
    crowd = (peak, peak + 30_000)
    there, came = len(interests) - len(churn.absent), sum(joins.values())
    yield f"{there} nodes at the start, {came} joins in {end // 1000} s, {joins[peak // 10_000]} of them in the crowd"
    for name in ("vitis", "rvr"):
        begun = time.process_time()
        made = made_for_figures(name)
        faults = one_per_topic(
            interests, start_ms=WARM_MS, span_ms=end - WARM_MS, seed=seed, churn=churn, events=lab.chosen.events
        )
        engine = Engine(made, interests, seed=seed, absent=churn.absent)
        Injector(engine, together(churn, faults))
        engine.run(end + 12_000)
        assert made.dissemination is not None
        seen = made.dissemination
        slices = [(at, seen.measure(since_ms=at, until_ms=at + step)) for at in range(WARM_MS, end, step)]
        slices = [(at, found) for at, found in slices if found.hits]
        yield f"{name}: time s, events, hit ratio, overhead, delay   ({time.process_time() - begun:.0f} s)"
        for at, found in slices:
            told = f"{found.publications:5}  {found.hit_ratio:.4f}  {found.overhead:.3f}  {found.delay:.2f}"
            yield f"  {at / 1000:6.0f}  {told}{'  crowd' if crowd[0] <= at < crowd[1] else ''}"
        inside = [found for at, found in slices if crowd[0] <= at < crowd[1]]
        outside = [found for at, found in slices if not crowd[0] <= at < crowd[1]]
        least = min(found.hit_ratio for found in inside)
        calm = min((found.hit_ratio for found in outside), default=1.0)
        extreme = min if name == "rvr" else max
        share = extreme(found.overhead for found in inside) / mean(found.overhead for _, found in slices)
        usual = mean(found.delay for _, found in slices)
        off = max((abs(found.delay / usual - 1) for found in outside), default=0.0)
        yield f"  least hit ratio in the crowd {least:.4f}, outside {calm:.4f}"
        yield f"  overhead in the crowd by its mean {share:.2f}; delay outside it off its mean by up to {off:.0%}"


WARM_MS = 40_000  # before the first event; a window of a churn table begins so late as well


def crowd_of(lab: Lab, seed: int) -> tuple[Wanted, Schedule, int]:
    """A third of the nodes comes within 10 s, 20 s after the first event."""
    interests = lab.interests(lab.chosen.level, seed)
    late, start = sorted(interests)[::3], WARM_MS + 20_000
    random = Random(ids.stream(seed, "figure", "crowd"))
    times = sorted(start + random.randrange(10_000) for _ in late)
    churn = Schedule(tuple(Fault(at, "join", (who,)) for at, who in zip(times, late, strict=True)), tuple(late))
    return interests, churn, start + 50_000


def window_of(chosen: argparse.Namespace) -> tuple[Wanted, Schedule, int]:
    """`--window` seconds of a churn table, `--faster` times as fast; who is there at its start is there at once."""
    table = read_interests(chosen.social)
    whole = schedule_of(read_churn(chosen.churn, table), table)
    start, length = chosen.start * 1000, chosen.window * 1000
    churning = {name for fault in whole.faults for name in fault.nodes}
    present = churning - set(whole.absent)
    kept = []
    for fault in whole.faults:
        if fault.time_ms < start:
            present = present | set(fault.nodes) if fault.kind == "join" else present - set(fault.nodes)
        elif fault.time_ms < start + length:
            kept.append(Fault((fault.time_ms - start) // chosen.faster + WARM_MS, fault.kind, fault.nodes))
    interests = topics_by_node(table)
    there = present | {name for fault in kept for name in fault.nodes}
    absent = tuple(sorted(name for name in there if name not in present))
    return (
        {name: interests[name] for name in sorted(there)},
        Schedule(tuple(kept), absent),
        length // chosen.faster + WARM_MS,
    )


def absolute(lab: Lab) -> Iterator[str]:
    """Abstract: "traffic overhead in Vitis is between 40% to 75% less" than in RVR."""
    less = {level: 1 - lab.overhead("vitis", level) / lab.overhead("rvr", level) for level in LEVELS}
    yield "less than RVR: " + ", ".join(f"{level} {value:.0%}" for level, value in less.items())


def bound(lab: Lab) -> Iterator[str]:
    """vitis-claim-bound: mean lookup hops grow no faster than log^2 N / k; gossip from nothing, one topic a node."""
    for long_links, friends in shapes(lab):
        yield f"{long_links} long links, {friends} friends, {lab.cycles} cycles:"
        yield from vitis_bound.by_gossip(lab.chosen.sizes_bound, long_links, friends, lab.seeds, lab.cycles)


def ideal(lab: Lab) -> Iterator[str]:
    """vitis-claim-bound on converged tables without gossip, friends at random."""
    for long_links, friends in shapes(lab):
        yield f"{long_links} long links, {friends} friends:"
        yield from vitis_bound.over_drawn(lab.chosen.sizes_bound, long_links, friends, lab.seeds)


def expected(lab: Lab) -> Iterator[str]:
    """vitis-claim-bound without chance: expected hops on an even ring, friends at random."""
    for long_links, friends in shapes(lab):
        yield f"{long_links} long links, {friends} friends:"
        yield from vitis_bound.by_expectation(lab.chosen.sizes_bound, long_links, friends)


def shapes(lab: Lab) -> list[tuple[int, int]]:
    """Long links and friends, as they were asked for."""
    return [(long_links, friends) for long_links in lab.chosen.long_bound for friends in lab.chosen.friends_bound]


FIGURES: dict[str, Callable[[Lab], Iterator[str]]] = {
    "fig4": fig4,
    "fig5": fig5,
    "fig6": fig6,
    "fig7": fig7,
    "fig10": fig10,
    "fig11": fig11,
    "fig12": fig12,
    "abs": absolute,
    "bound": bound,
    "ideal": ideal,
    "expected": expected,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="+", choices=[*FIGURES, "all"])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=0, help="0: half as many as nodes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--friends", type=int, nargs="+", default=[0, 6, 12])
    parser.add_argument("--sizes", type=int, nargs="+", default=[15, 25, 35], help="of tables, fig6 and fig10")
    parser.add_argument("--sizes-bound", type=int, nargs="+", default=[250, 500, 1000], help="of networks, bound")
    parser.add_argument("--long-bound", type=int, nargs="+", default=[1], help="long links: bound, ideal, expected")
    parser.add_argument("--friends-bound", type=int, nargs="+", default=[0], help="bound, ideal, expected")
    parser.add_argument("--social", type=Path, help="interests to take instead of the generator, fig10 to fig12")
    parser.add_argument("--results", type=Path, help="a folder to keep runs in")
    parser.add_argument("--seconds", type=int, default=0, help="begin no run after so many CPU seconds; 0: all of them")
    parser.add_argument("--alphas", type=float, nargs="+", default=[0.3, 1.0, 3.0], help="fig7")
    parser.add_argument("--level", choices=LEVELS, default="low", help="fig12: the interests of the synthetic crowd")
    parser.add_argument("--events", type=int, default=2, help="fig12: on each topic")
    parser.add_argument("--churn", type=Path, help="fig12: a churn table that was made for the interests of --social")
    parser.add_argument("--start", type=int, default=0, help="fig12: first second of the churn table")
    parser.add_argument("--window", type=int, default=600, help="fig12: seconds of the churn table")
    parser.add_argument("--faster", type=int, default=1, help="fig12: that many seconds of it in one")
    chosen = parser.parse_args()
    if chosen.results:
        chosen.results.mkdir(exist_ok=True)
    lab = Lab(chosen)
    for name in FIGURES if "all" in chosen.figures else chosen.figures:
        print(f"{name}: {(FIGURES[name].__doc__ or '').splitlines()[0]}", flush=True)
        for line in FIGURES[name](lab):
            print(f"  {line}", flush=True)
    print(f"missed pairs in all static runs of Vitis and RVR: {lab.missed}; {lab.spent:.0f} CPU s")


if __name__ == "__main__":
    main()
