"""Under churn: what a round costs, in time and in links changed.  [SH Fig. 7-8 and abstract]

Times are processor time of Step II; for `rebuild`, of LowODA from scratch. Medians over rounds, then means over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from figures.dynamics import READINGS
from figures.runs import LAMBDA, Lab
from figures.table import Check, Figure, Report, Rule, Table, Values, at_least, at_most, grid, within
from trellis.plan.maintain_history import Round

EVENTS = ("join", "leave")
SYSTEMS = (*READINGS, "naive", "rebuild")


def runs(lab: Lab) -> Iterator[tuple[int, str, list[Round], dict[str, Any]]]:
    for seed in lab.seeds:
        for system in SYSTEMS:
            algorithm = "shadows" if system in READINGS else system
            backups = system if system in READINGS else "primal-dual"
            about = lab.about(algorithm=algorithm, backups=backups, coverage_factor=LAMBDA)
            yield seed, system, lab.run(seed, algorithm, backups), about


def measure_fig7(lab: Lab, table: Table) -> None:
    for seed, system, rounds, about in runs(lab):
        for event in EVENTS:
            some = [round_ for round_ in rounds if round_.event == event]
            steps = [round_.round for round_ in some]
            seconds = [round_.seconds_step2 for round_ in some]
            shares = [100 * round_.shadow_set / round_.nodes for round_ in some]
            table.add("shadows-fig7", system, f"{event} seconds", seed, seconds, steps, **about)
            table.add("shadows-fig7", system, f"{event} |S| %", seed, shares, steps, **about)


def judge_fig7(table: Table) -> Report:
    rebuild = np.array([np.median(values) for values in _both(table, "shadows-fig7", "rebuild", "seconds")])

    def share(system: str, event: str, of: Callable[[Values], float] = np.median) -> float:
        """Of a rebuild's median, in percent."""
        return float(100 * np.mean(table.each("shadows-fig7", system, f"{event} seconds", of) / rebuild))

    rows: list[tuple[str, Iterable[float | None]]] = []
    for system in SYSTEMS:
        sets = _both(table, "shadows-fig7", system, "|S| %")
        per_event = [
            value
            for event in EVENTS
            for value in (
                1e3 * table.mean("shadows-fig7", system, f"{event} seconds", np.median),
                share(system, event),
                share(system, event, np.mean),
                share(system, event, np.max),
            )
        ]
        rows.append((system, [*per_event, np.mean([v.mean() for v in sets]), max(v.max() for v in sets)]))
    rows += [
        ("paper, Shadow (Java, means)", [2.69, None, 0.014, None, 333, None, 1.78, None, 1.59, 4.97]),
        ("paper, Naive", [7.93, None, 0.043, None, 2575, None, 14, 61.6]),
    ]
    columns = [f"{event} {what}" for event in EVENTS for what in ("ms", "med %", "mean %", "max %")]

    def rule(system: str) -> Rule:
        sets = _both(table, "shadows-fig7", system, "|S| %")
        joins, leaves = share(system, "join"), share(system, "leave")
        return Rule(
            [
                at_most("median leave, % of a rebuild", leaves, 2.5),
                at_most("median join, % of a rebuild", joins, 0.1),
                *(at_most(f"median {event}, % of naive's", 100 * share(system, event) / share("naive", event), 100)
                  for event in EVENTS),
                at_most("mean |S|/|V'|, %", float(np.mean([v.mean() for v in sets])), 2.5),
                at_most("max |S|/|V'| in any seed, %", float(max(v.max() for v in sets)), 6),
            ],
            [at_most("median join and leave, % of a rebuild", max(joins, leaves), 10)],
        )  # fmt: skip

    return Report(grid([*columns, "|S| % mean", "max"], rows, 14), {name: rule(name) for name in READINGS})


def measure_fig8(lab: Lab, table: Table) -> None:
    for seed, system, rounds, about in runs(lab):
        for event in EVENTS:
            some = [round_ for round_ in rounds if round_.event == event]
            steps = [round_.round for round_ in some]
            for metric, values in (
                ("changes", [round_.links_added + round_.links_removed for round_ in some]),
                ("ratio %", [100 * (round_.repair_ratio or 0.0) for round_ in some]),
                ("size", [round_.subscriptions for round_ in some]),
            ):
                table.add("shadows-fig8", system, f"{event} {metric}", seed, values, steps, **about)


def judge_fig8(table: Table) -> Report:
    def rho(system: str, event: str) -> float:
        """Do changes grow with the subscription size of the churn node?"""
        pairs = [table.by_seed("shadows-fig8", system, f"{event} {metric}") for metric in ("size", "changes")]
        return float(np.mean([np.corrcoef(size, changes)[0, 1] for size, changes in zip(*pairs, strict=True)]))

    def rule(system: str) -> Rule:
        joins, leaves = (table.mean("shadows-fig8", system, f"{event} changes") for event in EVENTS)
        ratios = [table.mean("shadows-fig8", system, f"{event} ratio %") for event in EVENTS]
        return Rule(
            [
                within("changes per join", joins, 4.83, 20),
                within("changes per leave", leaves, 12.24, 20),
                at_most("repair ratio of joins, %", ratios[0], 0.085),
                at_most("repair ratio of leaves, %", ratios[1], 0.21),
                at_least("LowODA changes / Shadow's", _changes(table, "rebuild") / _changes(table, system), 10),
            ],
            [at_most("changes per join", joins, 8), at_most("changes per leave", leaves, 20)],
        )

    rows: list[tuple[str, Iterable[float | None]]] = []
    for system in SYSTEMS:
        means = [table.mean("shadows-fig8", system, f"{e} {what}") for what in ("changes", "ratio %") for e in EVENTS]
        ratio = np.mean([v.mean() for v in _both(table, "shadows-fig8", system, "ratio %")])
        rows.append((system, [*means, _changes(table, system), ratio, *(rho(system, event) for event in EVENTS)]))
    rows += [
        ("paper, Shadow", [4.83, 12.24, 0.068, 0.17]),
        ("paper, LowODA", [None, None, 11.3, 7.5, 610, 9.4]),
    ]
    columns = ("join", "leave", "join %", "leave %", "all", "all %", "rho join", "rho leave")
    return Report(grid(columns, rows), {name: rule(name) for name in READINGS})


def measure_abs(lab: Lab, table: Table) -> None:
    measured = Table()
    measure_fig7(lab, measured)
    measure_fig8(lab, measured)
    for system in SYSTEMS:
        for at, seed in enumerate(lab.seeds):
            found = {
                f"{event} median seconds": np.median(measured.by_seed("shadows-fig7", system, f"{event} seconds")[at])
                for event in EVENTS
            }
            found["median seconds"] = np.median(_both(measured, "shadows-fig7", system, "seconds")[at])
            found["mean changes"] = _both(measured, "shadows-fig8", system, "changes")[at].mean()
            for metric, value in found.items():
                table.add("shadows-abs", system, metric, seed, value, **lab.about())


def judge_abs(table: Table) -> Report:
    whole = table.each("shadows-abs", "rebuild", "median seconds")

    def faster(system: str, event: str) -> float:
        return float(np.mean(whole / table.each("shadows-abs", system, f"{event} median seconds")))

    def fewer(system: str) -> float:
        return table.mean("shadows-abs", "rebuild", "mean changes") / table.mean("shadows-abs", system, "mean changes")

    def rule(system: str) -> Rule:
        joins, leaves, changes = faster(system, "join"), faster(system, "leave"), fewer(system)
        return Rule(
            [
                at_least("rebuild time / join time", joins, 100),
                at_least("rebuild time / leave time", leaves, 50),
                at_least("changes, LowODA / Shadow", changes, 50),
            ],
            [Check("each >= 10", f"{joins:.4g}, {leaves:.4g}, {changes:.4g}", min(joins, leaves, changes) >= 10)],
        )

    rows: list[tuple[str, Iterable[float | None]]] = [
        (system, [*(faster(system, event) for event in EVENTS), fewer(system)]) for system in SYSTEMS[:-1]
    ]
    rows.append(("paper, Shadow (from VI-C)", [18760 / 2.69, 18760 / 333, 610 / ((4.83 + 12.24) / 2)]))
    columns = ("join x", "leave x", "fewer x")
    return Report(grid(columns, rows), {name: rule(name) for name in READINGS})


def _both(table: Table, experiment: str, system: str, metric: str) -> list[Values]:
    """Joins and leaves together, one array a seed."""
    pairs = [table.by_seed(experiment, system, f"{event} {metric}") for event in EVENTS]
    return [np.concatenate(pair) for pair in zip(*pairs, strict=True)]


def _changes(table: Table, system: str) -> float:
    """Links changed a round, joins and leaves together."""
    return float(np.mean([values.mean() for values in _both(table, "shadows-fig8", system, "changes")]))


FIGURES = {
    "shadows-fig7": Figure(
        measure_fig7, judge_fig7, "of LowODA's time: joins 0.014% (Naive 0.043%), leaves 1.78% (14%); |S| 1.59%"
    ),
    "shadows-fig8": Figure(
        measure_fig8, judge_fig8, "4.83 changes a join, 12.24 a leave; LowODA 610 = 9.4% (11.3% joins, 7.5% leaves)"
    ),
    "shadows-abs": Figure(measure_abs, judge_abs, "hundreds of times faster, hundreds of times fewer links changed"),
}
