"""Mean degree, diameters and similarity on four distributions.  [SC Fig. 7, §3.4]"""

from __future__ import annotations

from trellis.lab.catalogue.spidercast.shared import ALL_SCALES, DISTRIBUTIONS, NODES, connected, degrees, static
from trellis.lab.experiment import Case, Experiment, Lines, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table, half_width
from trellis.lab.verdict import Check, Rule, at_most, between, each_of, falling, in_order, missing

PRINTED_DIAMETERS = {"unif": 6, "rss": 6, "zipf1": 7, "nyse": 8}


def run_a(scale: str, at_hand: AtHand) -> list[Case]:
    return static(scale, popularity=list(DISTRIBUTIONS))


def rule_a(table: Table) -> Rule:
    sizes = table.values_of("nodes")
    means = {n: [table.mean("degree", nodes=n, popularity=p) for p in DISTRIBUTIONS] for n in sizes}
    orders = [in_order(f"NYSE < zipf(1) < RSS < unif at {n}", means[n]) for n in sizes]
    widths = [half_width(table.each("degree", nodes=n, popularity=p)) for n in sizes for p in DISTRIBUTIONS]
    return Rule(
        [
            each_of("d < 12 everywhere", table.everywhere("degree"), lambda d: d < 12),
            *(falling(f"d falls with n, {p}", degrees(table, popularity=p)) for p in DISTRIBUTIONS),
            *orders,
            each_of("half-width of the 95% interval <= 0.2", widths, lambda w: w <= 0.2),
            connected(table, "every topic is connected in every run"),
        ],
        [orders[-1]],
    )


def run_s34(scale: str, at_hand: AtHand) -> list[Case]:
    ends = (NODES[scale][0], NODES[scale][-1])
    return static(scale, popularity=list(DISTRIBUTIONS), nodes=ends, diameters=True)


def rule_s34(table: Table) -> Rule:
    low, high = table.values_of("nodes")
    worst = {p: [table.mean("diameter", nodes=n, popularity=p) for n in (low, high)] for p in DISTRIBUTIONS}
    near: list[Check] = [
        between(f"greatest topic diameter at {high}, {p}", worst[p][1], value - 1, value + 1)
        for p, value in PRINTED_DIAMETERS.items()
    ]
    return Rule(
        near,
        [
            at_most("greatest topic diameter in any run", float(table.everywhere("diameter").max()), 12),
            at_most(f"growth from {low} to {high} nodes", max(b - a for a, b in worst.values()), 4),
        ],
    )


def run_b(scale: str, at_hand: AtHand) -> list[Case]:
    grid = {"nodes": NODES[scale], "popularity": DISTRIBUTIONS}
    tdi = cases("spidercast.closeness", "workload", grid, closest=20, **({} if scale == "smoke" else {"sample": 2000}))
    return [*tdi, *run_a(scale, at_hand)]


def rule_b(table: Table) -> Rule:
    checks = []
    for n in table.values_of("nodes"):
        by_degree = sorted(DISTRIBUTIONS, key=lambda p: table.mean("degree", nodes=n, popularity=p))
        tdi = [table.mean("tdi", nodes=n, popularity=p) for p in reversed(by_degree)]
        checks.append(
            in_order(f"at {n} nodes tdi(20) rises as the degree falls ({', '.join(reversed(by_degree))})", tdi)
        )
    return Rule(checks, checks[-1:] or [missing("the order at the largest size", "nothing was run")])


EXPERIMENTS = [
    Experiment(
        "spidercast-fig7a",
        "Mean degree on four distributions",
        "Fig. 7(a)",
        "All connected; mean degree below 12 and falling with n; NYSE lowest, uniform highest.",
        run_a,
        rule_a,
        (Lines("degree", "nodes", "mean degree"),),
        ALL_SCALES,
    ),
    Experiment(
        "spidercast-s34",
        "Topic diameters stay small",
        "§3.4",
        "Greatest topic diameter: uniform 6, RSS 6, zipf(1) 7, NYSE 8.",
        run_s34,
        rule_s34,
        (Lines("diameter", "nodes", "greatest topic diameter"), Lines("radius", "nodes", "greatest topic radius")),
        note="Ours are exact, over all pairs; the printed ones look like distances from a centre; so radii too.",
    ),
    Experiment(
        "spidercast-fig7b",
        "The more similar the interests, the lower the degree",
        "Fig. 7(b)",
        "Higher top-20 intersection, lower degree, for each pair of distributions.",
        run_b,
        rule_b,
        (Lines("tdi", "nodes", "tdi(20), %"), Lines("degree", "nodes", "mean degree")),
    ),
]
