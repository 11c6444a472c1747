"""Degree over the number of topics and of subscriptions, and the similarity behind it.  [SC Fig. 8]"""

from __future__ import annotations

import numpy as np

from trellis.lab.catalogue.spidercast.shared import NODES, static
from trellis.lab.experiment import Case, Experiment, Lines, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table, first, spearman
from trellis.lab.verdict import Check, Rule, at_most, below, each_of, falling, holds, rising

SUBSCRIPTIONS = (10, 15, 20, 30, 40)
D_MAX = 35  # L^max + Margin at 10 subscriptions: 3 x 10 + 5


def topics_8b(scale: str) -> tuple[int, ...]:
    return (40, 100, 250) if scale == "smoke" else (100, 200, 400, 700, 1000)


def sizes_8c(scale: str) -> tuple[int, ...]:
    return (400, 800) if scale == "smoke" else (1000, 2000, 4000)


def run_a(scale: str, at_hand: AtHand) -> list[Case]:
    sizes = NODES[scale]
    return static(scale, topics=[100, 200]) + static(
        scale, topics=[100, 200], nodes=(sizes[0], sizes[-1]), diameters=True
    )


def rule_a(table: Table) -> Rule:
    plain = [case for case in table.cases() if not case.parameters.get("diameters")]
    sizes = sorted({case.parameters["nodes"] for case in plain})

    def at(n: int, topics: int) -> np.ndarray:
        case = next(c for c in plain if c.parameters["nodes"] == n and c.parameters["topics"] == topics)
        return np.array([series.of(first) for series in table.of_case(case, "degree")])

    falls = [falling(f"d falls with n, {t} topics", [at(n, t) for n in sizes]) for t in (100, 200)]
    more = [below(f"d is higher with 200 topics, {n} nodes", at(n, 100).mean(), at(n, 200).mean()) for n in sizes]
    largest = each_of(f"D <= L^max + Margin = {D_MAX}", table.everywhere("degree_max"), lambda d: d <= D_MAX)
    far = each_of("greatest topic diameter within 1 of 6", table.everywhere("diameter"), lambda d: 5 <= d <= 7)
    return Rule([*falls, *more, largest, far], falls)


def run_b(scale: str, at_hand: AtHand) -> list[Case]:
    sizes = (800,) if scale == "smoke" else (10_000,)
    found = static(scale, topics=list(topics_8b(scale)), nodes=sizes, subs=20, diameters=True)
    return found


def rule_b(table: Table) -> Rule:
    topics = table.values_of("topics")
    each = [table.each("degree", topics=t) for t in topics]
    means = np.array([values.mean() for values in each])

    def fit(x: np.ndarray) -> float:
        return float(np.corrcoef(x, means)[0, 1] ** 2)

    by_log, by_number = fit(np.log(topics)), fit(np.array(topics, float))
    far = [table.mean("diameter", topics=t) for t in (topics[0], topics[-1])]
    ratio = float(means[-1] / means[0])
    return Rule(
        [
            rising("d rises with the number of topics", each),
            at_most("d(most topics) / d(fewest)", ratio, 2.5),
            below("R^2 of d over T is below that over ln T", by_number, by_log),
            holds("diameter(most topics) <= diameter(fewest)", f"{far[1]:g}, {far[0]:g}", far[1] <= far[0]),
        ],
        [at_most("d(most topics) / d(fewest)", ratio, 4)],
    )


def run_c(scale: str, at_hand: AtHand) -> list[Case]:
    return static(scale, subs=SUBSCRIPTIONS, nodes=sizes_8c(scale))


def rule_c(table: Table) -> Rule:
    checks: list[Check] = []
    shape: list[Check] = []
    for n in table.values_of("nodes"):
        means = {s: table.mean("degree", nodes=n, subs=s) for s in SUBSCRIPTIONS}
        most = max(means, key=means.__getitem__)
        checks.append(holds(f"highest at 15 or 20 subscriptions, {n} nodes", most, most in (15, 20)))
        checks.append(holds(f"d(40) < d(30) < d(20), {n} nodes", ", ".join(f"{means[s]:.2f}" for s in (40, 30, 20)),
                            means[40] < means[30] < means[20]))  # fmt: skip
        shape.append(below(f"d(40) < d(20), {n} nodes", means[40], means[20]))
    return Rule(checks, shape)


def tdi(parameters: list[Case], closest: int | None) -> list[Case]:
    """The same workloads, measured without a protocol; `closest` None: twice the subscriptions."""
    found = []
    for case in parameters:
        kept = {name: value for name, value in case.parameters.items() if name != "diameters"}
        wanted = closest or 2 * kept["subs"]
        found += cases("spidercast.closeness", "workload", None, **kept, closest=wanted, sample=1000)
    return found


def mirrored(table: Table, by: str | None) -> Rule:
    """rho_s(tdi, d) over the points of a figure; per value of `by` where it is given."""

    def rho(points: list[Case]) -> float:
        pairs = []
        for case in points:
            drop = ("closest", "sample", "diameters")
            where = {name: value for name, value in case.parameters.items() if name not in drop}
            mate = table.cases("spidercast(3,0)", **where)[0]
            degree = np.mean([series.of(first) for series in table.of_case(mate, "degree")])
            pairs.append((np.mean([s.of(first) for s in table.of_case(case, "tdi")]), degree))
        return spearman(*zip(*pairs, strict=True))

    points = table.cases("workload")
    groups = {None: points} if by is None else {
        value: [case for case in points if case.parameters[by] == value] for value in table.values_of(by, "workload")
    }  # fmt: skip
    found = {key: rho(group) for key, group in groups.items()}
    names = {key: "" if key is None else f", {key} {by}" for key in found}
    return Rule(
        [at_most(f"Spearman correlation of tdi and d{names[key]}", value, -0.9) for key, value in found.items()],
        [at_most(f"Spearman correlation of tdi and d{names[key]}", value, -0.5) for key, value in found.items()],
    )


def run_d(scale: str, at_hand: AtHand) -> list[Case]:
    points = static(scale, topics=[100, 200])
    return points + tdi(points, 20)


def run_e(scale: str, at_hand: AtHand) -> list[Case]:
    points = run_b(scale, at_hand)
    return points + tdi(points, 40)


def run_f(scale: str, at_hand: AtHand) -> list[Case]:
    points = run_c(scale, at_hand)
    return points + tdi(points, None)


def _mirror(letter: str, of: str, run: object, by: str | None, x: str, note: str = "") -> Experiment:
    return Experiment(
        f"spidercast-fig8{letter}",
        f"Similarity is the mirror image of Fig. 8({of})",
        f"Fig. 8({letter})",
        f"tdi falls where the degree of Fig. 8({of}) rises, and the other way round.",
        run,  # type: ignore[arg-type]
        lambda table: mirrored(table, by),
        (Lines("tdi", x, "tdi, %"), Lines("degree", x, "mean degree")),
        note=note,
    )


EXPERIMENTS = [
    Experiment(
        "spidercast-fig8a",
        "Twice the topics cost little",
        "Fig. 8(a)",
        "Degree falls with n and rises moderately with T; D = 32 and 31; greatest diameter 6 in both.",
        run_a,
        rule_a,
        (
            Lines("degree", "nodes", "mean degree"),
            Lines("degree_max", "nodes", "maximum degree"),
            Lines("diameter", "nodes", "greatest topic diameter", {"paper": {1000: 6.0, 10_000: 6.0}}),
        ),
        note="In the paper the greatest topic diameter is that of all sizes. Ours is measured at the smallest size and "
        "at the largest one.",
    ),
    Experiment(
        "spidercast-fig8b",
        "Degree grows with the logarithm of the number of topics",
        "Fig. 8(b)",
        "Moderate, logarithmic growth from 100 to 1,000 topics; diameter 5 at 100, 4 at 1,000.",
        run_b,
        rule_b,
        (
            Lines("degree", "topics", "mean degree", log="x"),
            Lines("diameter", "topics", "greatest topic diameter", {"paper": {100: 5.0, 1000: 4.0}}),
        ),
    ),
    Experiment(
        "spidercast-fig8c",
        "More subscriptions: first more links, then fewer",
        "Fig. 8(c)",
        "Degree rises from 10 over 15 to 20 subscriptions and falls from 20 over 30 to 40.",
        run_c,
        rule_c,
        (Lines("degree", "subs", "mean degree"),),
    ),
    _mirror("d", "a", run_d, None, "nodes"),
    _mirror("e", "b", run_e, None, "topics"),
    _mirror(
        "f",
        "c",
        run_f,
        "nodes",
        "subs",
        "The paper says that tdi(2d) falls from 10 to 20 subscriptions. This depends on interests alone, not on the "
        "overlay. By the printed definition it rises from 10 to 15 at 1,000 to 4,000 nodes, is flat at 10,000 (48.5, "
        "48.4), and rises from 15 to 20 at all sizes. With d or 10 instead of 2d nodes it rises from 15 to 20 as well.",
    ),
]
