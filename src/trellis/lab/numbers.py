"""Our numbers as small tables, for any kind of page: means over seeds with 95% intervals, the paper's values below."""

from __future__ import annotations

from math import isnan
from typing import NamedTuple

import numpy as np

from trellis.lab.experiment import Bars, Experiment, Limited, Lines, Over
from trellis.lab.plots import cases_of, label_of, limits_of, line_points
from trellis.lab.table import Missing, Table, first, half_width, last
from trellis.lab.verdict import number

ROWS_MAX = 24  # of a table of numbers: longer ones are for files


class Numbers(NamedTuple):
    title: str
    columns: list[str]
    rows: list[tuple[str, list[str]]]


def numbers_of(experiment: Experiment, table: Table) -> list[Numbers]:
    """Return a table for each plot that has something to show."""
    found = []
    for plot in experiment.plots:
        if not cases_of(plot, table):
            continue
        if isinstance(plot, Lines):
            found.append(_along(table, plot))
        elif isinstance(plot, Limited):
            found.append(_with_limits(_along(table, plot.lines), table, plot))
        elif isinstance(plot, Over):
            found.append(_over(table, plot))
        else:
            found.append(_single(table, plot))
    return [one for one in found if one.rows]


def mean_text(mean: float, width: float) -> str:
    if isnan(width) or width == 0:
        return number(mean)
    return f"{number(mean)} ± {f'{width:.2g}' if width < 100 else f'{width:,.0f}'}"


def _along(table: Table, plot: Lines) -> Numbers:
    points = line_points(plot, table)
    xs = list(dict.fromkeys(x for found in points.values() for x, _, _ in found))
    rows = []
    for label, found in list(points.items())[:ROWS_MAX]:
        at = {x: mean_text(mean, width) for x, mean, width in found}
        rows.append((label, [at.get(x, "") for x in xs]))
    for label, printed in plot.paper.items():
        if any(x in printed for x in xs):
            rows.append((label, [number(printed[x]) if x in printed else "" for x in xs]))
    return Numbers(f"{plot.ylabel or plot.metric} by {plot.x.replace('_', ' ')}", [str(x) for x in xs], rows)


def _with_limits(found: Numbers, table: Table, plot: Limited) -> Numbers:
    rows = [(label, [*cells, ""]) for label, cells in found.rows]
    empty = [""] * len(found.columns)
    rows += [(label, [*empty, mean_text(mean, width)]) for label, mean, width in limits_of(plot.lines, table)]
    return Numbers(found.title, [*found.columns, plot.name], rows)


def _over(table: Table, plot: Over) -> Numbers:
    chosen, rows = cases_of(plot, table), []
    for case in chosen[:ROWS_MAX]:
        try:
            found = table.of_case(case, plot.metric)
        except Missing:
            continue
        shown = [np.array([one.of(pick) for one in found]) for pick in (first, np.mean, np.max, last)]
        rows.append((label_of(case, chosen), [mean_text(float(v.mean()), half_width(v)) for v in shown]))
    for label, printed in plot.paper.items():
        rows.append((label, ["; ".join(f"{number(y)} at {x:g}" for x, y in printed.items()), "", "", ""]))
    columns = ["first", "mean", "greatest", "last"]
    return Numbers(f"{plot.ylabel or plot.metric} over {plot.xlabel}", columns, rows)


def _single(table: Table, plot: Bars) -> Numbers:
    chosen, rows = cases_of(plot, table), []
    for case in chosen[:ROWS_MAX]:
        cells = []
        for metric in plot.metrics:
            try:
                values = np.array([series.of(np.mean) for series in table.of_case(case, metric)])
                cells.append(mean_text(float(values.mean()), half_width(values)))
            except Missing:
                cells.append("")
        rows.append((label_of(case, chosen), cells))
    if plot.paper:
        rows.append(("paper", [number(plot.paper[m]) if m in plot.paper else "" for m in plot.metrics]))
    return Numbers(plot.ylabel, list(plot.metrics), rows)
