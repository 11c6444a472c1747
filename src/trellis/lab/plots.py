"""Pictures of results: they read the table and nothing else. Means over seeds, with 95% intervals."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.lab.experiment import Bars, Case, Experiment, Limited, Lines, Over, Plot
from trellis.lab.table import Missing, Series, Table, half_width
from trellis.measure.picture import INK, MUTED, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#2f6f9f", "#d98324", "#3c8d6e", "#c0392b", "#7d5ba6", "#5f9ea0", "#a0522d", "#b0457b", "#6b7a1f", "#4b5563")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # lines that lie on each other can be told apart
LABELS_MAX, TICKS_MAX = 36, 8
LONG_LABEL = 38  # letters: two columns of longer labels are wider than the picture
STYLES = ("-", "--", ":", "-.")
POINTS_MAX = 200  # of a line: more cannot be seen
UNTOLD = ("sample", "diameters", "closest")  # parameters that tell a reader nothing in a legend


def draw(experiment: Experiment, table: Table, paths: Iterable[Path]) -> bool:
    """The figure into each file; False where there is nothing to draw."""
    plots = [plot for plot in experiment.plots if cases_of(plot, table)]
    if not plots:
        return False
    for path in paths:
        with picture(path, f"{experiment.id} ({experiment.figure})", rows=1, columns=len(plots)) as (axes,):
            import matplotlib

            matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text: small files; `picture` restores it
            for one, plot in zip(axes, plots, strict=True):
                _draw(one, plot, table)
    return True


def has_figure(experiment: Experiment, table: Table) -> bool:
    """Return whether `draw` has something to draw."""
    return any(cases_of(plot, table) for plot in experiment.plots)


def cases_of(plot: Plot, table: Table) -> list[Case]:
    if isinstance(plot, Limited):
        plot = plot.lines
    metrics = plot.metrics if isinstance(plot, Bars) else (plot.metric,)
    systems = plot.systems if isinstance(plot, Over) else ()
    found = [
        case
        for case in table.cases(**plot.only)
        if any(metric in table.metrics(case) for metric in metrics) and (not systems or case.system in systems)
    ]
    return [case for case in found if plot.x in case.parameters] if isinstance(plot, Lines) else found


def limits_of(plot: Lines, table: Table) -> list[tuple[str, float, float]]:
    """Return (label, mean, half-width of the interval) of each case that lines leave out for want of a parameter."""
    chosen = [c for c in table.cases(**plot.only) if plot.x not in c.parameters and plot.metric in table.metrics(c)]
    found = []
    for case in chosen:
        values = np.array([series.of(np.mean) for series in table.of_case(case, plot.metric)])
        found.append((label_of(case, chosen), float(values.mean()), half_width(values)))
    return found


def label_of(case: Case, among: list[Case], without: tuple[str, ...] = ()) -> str:
    """The system, and the parameters in which the cases differ."""
    names = dict.fromkeys(name for one in among for name in one.parameters)
    words = []
    for name in names:
        values = {repr(one.parameters.get(name)) for one in among if one.system == case.system}
        if name not in (*without, *UNTOLD) and len(values) > 1 and name in case.parameters:
            value = case.parameters[name]
            words.append(
                f"{name.replace('_', ' ')} {value:g}"
                if isinstance(value, float)
                else f"{name.replace('_', ' ')} {value}"
            )
    one_system = len({one.system for one in among}) == 1
    return ", ".join(words) if one_system and words else ", ".join([case.system, *words])


def line_points(plot: Lines, table: Table) -> dict[str, list[tuple[Any, float, float]]]:
    """Label -> (x, mean, half-width of the interval), x ascending."""
    chosen = cases_of(plot, table)
    found: dict[str, list[tuple[Any, float, float]]] = {}
    for case in chosen:
        values = np.array([series.of(np.mean) for series in table.of_case(case, plot.metric)])
        point = (case.parameters[plot.x], float(values.mean()), half_width(values))
        named = f"{case.system}, {plot.line(case.parameters)}" if plot.line else label_of(case, chosen, (plot.x,))
        points = found.setdefault(named, [])
        if point[0] not in [x for x, _, _ in points]:
            points.append(point)
    return {label: sorted(points, key=lambda p: (isinstance(p[0], str), p[0])) for label, points in found.items()}


def bands(found: list[Series]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, means, half-widths; seeds whose steps differ are put on the steps that they share.

    The seeds of a shortened series may share no step. Their points are then put on the steps of the first seed.
    """
    steps = found[0].steps
    if any(one.summary is not None for one in found):
        found = [Series(steps, np.interp(steps, one.steps, one.points)) for one in found]
    for series in found[1:]:
        steps = np.intersect1d(steps, series.steps)
    rows = np.array(
        [[dict(zip(s.steps.tolist(), s.values.tolist(), strict=True))[x] for x in steps.tolist()] for s in found]
    )
    widths = np.array([half_width(column) for column in rows.T]) if len(steps) else np.zeros(0)
    return steps, rows.mean(axis=0) if len(steps) else np.zeros(0), widths


def _draw(axes: Axes, plot: Plot, table: Table) -> None:
    limits: list[tuple[str, float, float]] = []
    if isinstance(plot, Limited):
        limits = limits_of(plot.lines, table)
        plot = plot.lines
    if isinstance(plot, Lines):
        _lines(axes, plot, table)
        for place, (label, mean, _) in enumerate(limits, start=len(axes.containers)):
            axes.axhline(mean, label=label, linestyle="--", linewidth=1.0, color=COLORS[place % len(COLORS)])
    elif isinstance(plot, Over):
        _over(axes, plot, table)
    else:
        _bars(axes, plot, table)
    _scale(axes, plot)
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        below = -0.24 if axes.get_xlabel() else -0.16
        axes.legend(
            handles[:LABELS_MAX], labels[:LABELS_MAX], loc="upper center", bbox_to_anchor=(0.5, below),
            ncols=1 if max(map(len, labels)) > LONG_LABEL else 2, fontsize=6.5 if len(labels) <= 16 else 5,
        )  # fmt: skip


def _scale(axes: Axes, plot: Lines | Over | Bars) -> None:
    """Scale the axes. A linear axis of lines and bars begins at zero, so that ratios can be seen."""
    drawn = _heights(axes)
    positive = drawn[drawn > 0]
    if "x" in plot.log:
        axes.set_xscale("log")
        xs = {float(x) for line in axes.get_lines() for x in np.atleast_1d(line.get_xdata())} if isinstance(
            plot, Lines) else set()  # fmt: skip
        if 0 < len(xs) <= TICKS_MAX:  # few sizes: name each
            axes.set_xticks(sorted(xs), [f"{x:,g}" if x < 1e5 else f"{x:,.0f}" for x in sorted(xs)])
            axes.set_xticks([], minor=True)
    if "y" in plot.log and len(positive):
        if isinstance(plot, Bars) or not (drawn <= 0).any():
            axes.set_yscale("log")
            axes.set_ylim(positive.min() / 2, 2 * positive.max())
        else:
            axes.set_yscale("symlog", linthresh=float(positive.min()))
            axes.set_ylim(bottom=0)
    elif len(drawn) and drawn.min() >= 0:
        if not len(positive):
            axes.set_ylim(0, 1)  # nothing but zeros
        elif not isinstance(plot, Over) or axes.get_ylim()[0] < 0:
            axes.set_ylim(bottom=0)


def _heights(axes: Axes) -> np.ndarray:
    """Return the values that lines and bars show, without their intervals."""
    lines = [
        np.asarray(line.get_ydata(), float).ravel() for line in axes.get_lines() if str(line.get_marker()) not in "_|"
    ]
    bars = [np.array([patch.get_height()], float) for patch in axes.patches if hasattr(patch, "get_height")]
    found: np.ndarray = np.concatenate([np.zeros(0), *lines, *bars])
    finite: np.ndarray = found[np.isfinite(found)]
    return finite


def _look(place: int) -> dict[str, Any]:
    return {"color": COLORS[place % len(COLORS)], "linestyle": STYLES[(place // len(COLORS)) % len(STYLES)]}


def _lines(axes: Axes, plot: Lines, table: Table) -> None:
    points = line_points(plot, table)
    for place, (label, found) in enumerate(points.items()):
        xs, means, widths = zip(*found, strict=True)
        axes.errorbar(xs, means, np.nan_to_num(widths), label=label, marker=MARKERS[place % len(MARKERS)],
                      markersize=3.5, linewidth=1.3, capsize=2, **_look(place))  # fmt: skip
    reached = {x for found in points.values() for x, _, _ in found}
    for place, (label, printed) in enumerate(plot.paper.items()):
        if shown := {x: y for x, y in printed.items() if x in reached}:
            axes.plot(
                list(shown), list(shown.values()), "x", color=COLORS[place % len(COLORS)], markersize=6, label=label
            )
    axes.set(xlabel=plot.x.replace("_", " "), ylabel=plot.ylabel or plot.metric)


def _over(axes: Axes, plot: Over, table: Table) -> None:
    chosen = cases_of(plot, table)
    for place, case in enumerate(chosen):
        try:
            steps, means, widths = bands(table.of_case(case, plot.metric))
        except Missing:
            continue
        every = max(1, len(steps) // POINTS_MAX)
        steps, means, widths = steps[::every], means[::every], np.nan_to_num(widths[::every])
        marker = "." if len(steps) < 30 else None
        axes.plot(steps, means, label=label_of(case, chosen), linewidth=1.2, marker=marker, **_look(place))
        axes.fill_between(
            steps, means - widths, means + widths, color=COLORS[place % len(COLORS)], alpha=0.15, linewidth=0
        )
    for place, (label, printed) in enumerate(plot.paper.items()):
        color = COLORS[place % len(COLORS)] if len(plot.paper) > 1 else INK
        axes.plot(list(printed), list(printed.values()), "x", color=color, markersize=7, label=label)
    axes.set(xlabel=plot.xlabel, ylabel=plot.ylabel or plot.metric)


def _bars(axes: Axes, plot: Bars, table: Table) -> None:
    chosen = cases_of(plot, table)
    width = 0.8 / max(1, len(chosen))
    for place, case in enumerate(chosen):
        for group, metric in enumerate(plot.metrics):
            if metric not in table.metrics(case):
                continue
            values = np.array([series.of(np.mean) for series in table.of_case(case, metric)])
            label = label_of(case, chosen) if group == 0 else None
            axes.bar(group + width * (place - (len(chosen) - 1) / 2), values.mean(), width,
                     yerr=np.nan_to_num(half_width(values)), color=_look(place)["color"], label=label,
                     error_kw={"linewidth": 0.8})  # fmt: skip
    for group, metric in enumerate(plot.metrics):
        if metric in plot.paper:
            axes.hlines(plot.paper[metric], group - 0.45, group + 0.45, color=MUTED, linestyle="--", linewidth=1.2)
            axes.annotate("paper", (group + 0.45, plot.paper[metric]), fontsize=6.5, color=MUTED)
    axes.set_xticks(range(len(plot.metrics)), plot.metrics)
    axes.set_ylabel(plot.ylabel)
