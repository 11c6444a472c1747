"""Under churn: degrees over 1,000 rounds.  [SH Fig. 4-6; OMen Fig. 5]"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from figures.runs import LAMBDA, POPULARITY, Lab
from figures.table import Check, Figure, Report, Rule, Table, Values, at_most, decreasing, grid, within
from trellis.plan.maintain_config import BACKUPS

READINGS = ("primal-dual", "primal-dual-carry")  # as listed, and A-SHD-5
LAMBDAS = (1, 2, 3, 4)
FIG5 = (31, 25, 24, 24)


def add_degrees(
    lab: Lab, table: Table, experiment: str, system: str, seed: int, algorithm: str, backups: str, lambda_: int
) -> None:
    rounds = lab.run(seed, algorithm, backups, lambda_)
    about = lab.about(algorithm=algorithm, backups=backups, coverage_factor=lambda_)
    steps = [round_.round for round_ in rounds]
    table.add(experiment, system, "D", seed, [round_.degree_max for round_ in rounds], steps, **about)
    table.add(experiment, system, "d", seed, [round_.degree_mean for round_ in rounds], steps, **about)
    table.add(experiment, system, "links", seed, [round_.links for round_ in rounds], steps, **about)


def last(values: Values) -> float:
    return float(values[-1])


def measure_routines(experiment: str, lab: Lab, table: Table) -> None:
    for seed in lab.seeds:
        for routine in BACKUPS:
            add_degrees(lab, table, experiment, routine, seed, "shadows", routine, LAMBDA)


def judge_routines(experiment: str, table: Table) -> Report:
    """[SH Fig. 4, OMen Fig. 5] The unweighted greedy against the default; others for comparison."""
    rows = []
    for name in BACKUPS:
        paths = {metric: np.mean(table.by_seed(experiment, name, metric), axis=0) for metric in "Dd"}
        middle = len(paths["D"]) // 2
        rows.append((name, [paths[m][at] for m in "Dd" for at in (0, middle, -1)]))
    rows.append(("paper, greedy", [None, None, 84]))
    columns = [f"{metric} {at}" for metric in "Dd" for at in ("first", "middle", "last")]

    def rule(greedy: str, steady: str) -> Rule:
        ends = [table.mean(experiment, name, "D", last) for name in (greedy, steady)]
        double = Check("D_greedy >= 2 D_pd at the end", f"{ends[0]:.4g}, {ends[1]:.4g}", ends[0] >= 2 * ends[1])
        if experiment == "shadows-fig4":
            return Rule([double], [Check("D_greedy > D_pd", f"{ends[0]:.4g}, {ends[1]:.4g}", ends[0] > ends[1])])
        paths = [np.mean(table.by_seed(experiment, name, "D"), axis=0) for name in (greedy, steady)]
        late = slice(len(paths[0]) // 2 - 1, None)  # from round 500 of 1,000 on
        above = float(np.mean(paths[0][late] > paths[1][late]))
        return Rule(
            [double, at_most("D_pd at the end", ends[1], 30)],
            [Check("D_greedy > D_pd in the second half", f"{100 * above:.4g}% of the rounds", above == 1)],
        )

    readings = {
        f"{greedy} against {steady}": rule(greedy, steady)
        for greedy in ("greedy", "greedy-weighted")
        for steady in READINGS
    }
    return Report(grid(columns, rows), readings)


def measure_fig5(lab: Lab, table: Table) -> None:
    for seed in lab.seeds:
        for routine in READINGS:
            for lambda_ in LAMBDAS:
                system = f"{routine} {lambda_}"
                add_degrees(lab, table, "shadows-fig5", system, seed, "shadows", routine, lambda_)


def judge_fig5(table: Table) -> Report:
    rows: list[tuple[str, Iterable[float | None]]] = []
    readings = {}
    for routine in READINGS:
        degrees, means = (
            [table.each("shadows-fig5", f"{routine} {lambda_}", metric, last) for lambda_ in LAMBDAS] for metric in "Dd"
        )
        rows += [
            (f"{routine}, {metric} at the end", [v.mean() for v in found])
            for metric, found in (("D", degrees), ("d", means))
        ]
        d1, d2, d3, d4 = (float(values.mean()) for values in degrees)
        readings[routine] = Rule(
            [
                Check(
                    "D(1) > D(2) >= D(3) >= D(4) - 1",
                    f"{d1:.4g}, {d2:.4g}, {d3:.4g}, {d4:.4g}",
                    d1 > d2 >= d3 >= d4 - 1,
                ),
                at_most("|D(3) - D(4)|", abs(d3 - d4), 1.5),
                *(within(f"D({k})", d, t, 25) for k, d, t in zip(LAMBDAS, (d1, d2, d3, d4), FIG5, strict=True)),
            ],
            [decreasing("d falls with lambda", means)],
        )
    return Report(grid([f"lambda {k}" for k in LAMBDAS], [*rows, ("paper, D at the end", FIG5)]), readings)


def measure_fig6(lab: Lab, table: Table) -> None:
    for seed in lab.seeds:
        for routine in BACKUPS:
            add_degrees(lab, table, "shadows-fig6", routine, seed, "shadows", routine, LAMBDA)
        for algorithm in ("naive", "rebuild"):
            add_degrees(lab, table, "shadows-fig6", algorithm, seed, algorithm, "primal-dual", LAMBDA)
        start = lab.lowoda("unif", seed)
        for metric, value in (("D0", start.degrees.max()), ("d0", start.degrees.mean()), ("links0", len(start))):
            table.add("shadows-fig6", "start", metric, seed, value, **lab.about())


def judge_fig6(table: Table) -> Report:
    def apart(system: str, other: str, metric: str) -> float:
        """Mean over rounds and seeds of the difference."""
        return table.mean("shadows-fig6", system, metric) - table.mean("shadows-fig6", other, metric)

    def rule(name: str) -> Rule:
        high, mean, naive = apart(name, "rebuild", "D"), apart(name, "rebuild", "d"), apart(name, "naive", "D")
        end = table.mean("shadows-fig6", name, "D", last)
        return Rule(
            [
                at_most("mean_r(D_Sh - D_Low)", high, 5.5),
                at_most("mean_r(d_Sh - d_Low)", mean, 0.798),
                at_most("|mean_r(D_Sh) - mean_r(D_Na)|", abs(naive), 2),
                Check("D at the end in [17, 27]", f"{end:.4g}", 17 <= end <= 27),
            ],
            [at_most("mean_r(D_Sh - D_Low)", high, 8), at_most("mean_r(d_Sh - d_Low)", mean, 1.0)],
        )

    rows: list[tuple[str, Iterable[float | None]]] = []
    for name in (*BACKUPS, "naive", "rebuild"):
        ends = [table.mean("shadows-fig6", name, metric, last) for metric in ("D", "d", "links")]
        rows.append((name, [apart(name, "rebuild", "D"), apart(name, "rebuild", "d"), *ends]))
    start = [table.mean("shadows-fig6", "start", metric) for metric in ("D0", "d0", "links0")]
    rows += [("before any churn", [None, None, *start]), ("paper, Shadow (starts at D = 13)", [5.5, 0.798, 22])]
    columns = ("D - D_Low", "d - d_Low", "D last", "d last", "links last")
    return Report(grid(columns, rows), {name: rule(name) for name in BACKUPS})


def measure_also(lab: Lab, table: Table) -> None:
    for popularity in POPULARITY:
        for seed in lab.seeds:
            for routine in BACKUPS:
                rounds = lab.run(seed, "shadows", routine, popularity=popularity, check_every=1)
                about = lab.about(popularity=popularity, backups=routine, coverage_factor=LAMBDA)
                steps = [round_.round for round_ in rounds]
                for metric, values in (
                    ("split topics", [round_.split_topics for round_ in rounds]),
                    ("D", [round_.degree_max for round_ in rounds]),
                    ("d", [round_.degree_mean for round_ in rounds]),
                ):
                    table.add("shadows-also", f"{routine} {popularity}", metric, seed, values, steps, **about)


def judge_also(table: Table) -> Report:
    """TCO after every round, in every seed, and Step I always ends."""
    systems = table.systems("shadows-also")
    worst = {name: table.each("shadows-also", name, "split topics", np.max).max() for name in systems}
    rows = [
        (name, [worst[name], *(table.mean("shadows-also", name, metric, last) for metric in "Dd")]) for name in systems
    ]
    checks = [
        Check(f"{name}: TCO every round", f"at most {count:g} split topics", count == 0)
        for name, count in worst.items()
        if not name.endswith("unif")
    ]
    return Report(grid(("split", "D last", "d last"), rows), {"zipf(2) and expo": Rule(checks)})


def _routines_figure(experiment: str) -> Figure:
    return Figure(
        lambda lab, table: measure_routines(experiment, lab, table),
        lambda table: judge_routines(experiment, table),
        "D = 84 at round 1,000 with greedy; primal-dual steadily low",
    )


FIGURES = {
    "shadows-fig4": _routines_figure("shadows-fig4"),
    "omen-fig5": _routines_figure("omen-fig5"),
    "shadows-fig5": Figure(measure_fig5, judge_fig5, "D at round 1,000: 31, 25, 24, 24 for lambda 1..4"),
    "shadows-fig6": Figure(measure_fig6, judge_fig6, "D - D_Low <= 5.5, d - d_Low <= 0.798 on average; D 13 -> 22"),
    "shadows-also": Figure(measure_also, judge_also, "no figure: a TCO after every round under skewed popularity too"),
}
