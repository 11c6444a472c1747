"""Draw a run: degrees and connected topics over time, messages by type, and the final degrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trellis.measure.picture import BLUE, GREEN, MUTED, ORANGE, RED, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from trellis.simulate.run import Watching

TYPES_MAX = 7  # message types with a line of their own; the others are only counted
COLORS = (BLUE, ORANGE, GREEN, RED, "#7d5ba6", "#5f9ea0", "#a0522d")


def draw_run(probe: Watching, title: str, folder: Path) -> None:
    """Write degrees.png, topics.png, messages.png and histogram.png. The same run gives the same bytes."""
    with picture(folder / "degrees.png", f"Degree, {title}", rows=1, columns=1) as ((axes,),):
        axes.set(xlabel="virtual time, s", ylabel="links of a node")
        _line(axes, probe, "degree_mean", "mean", BLUE)
        _line(axes, probe, "degree_max", "max", RED)
        axes.set_ylim(bottom=0)
        _legend(axes)
    with picture(folder / "topics.png", f"Connected topics, {title}", rows=1, columns=1) as ((axes,),):
        times, shares = probe.series("connected_topics")
        axes.plot(times, [100 * share for share in shares], color=GREEN)
        axes.set(xlabel="virtual time, s", ylabel="connected topics, %", ylim=(-3, 103))
    with picture(folder / "messages.png", f"Messages, {title}", rows=1, columns=1) as ((axes,),):
        _draw_messages(axes, probe)
    with picture(folder / "histogram.png", f"Degrees at the end, {title}", rows=1, columns=1) as ((axes,),):
        degrees = probe.snapshot().degrees
        axes.bar(degrees.values, degrees.counts, color=BLUE)
        axes.axvline(degrees.mean, color=ORANGE, label=f"mean {degrees.mean:.2f}")
        axes.set(xlabel="links of a node", ylabel="nodes")
        _legend(axes)


def _draw_messages(axes: Axes, probe: Watching) -> None:
    totals = probe.sent_by_type()
    ranked = sorted(totals, key=lambda kind: (-totals[kind], kind))
    for kind, color in zip(ranked, COLORS, strict=False):
        _line(axes, probe, f"messages/{kind}", f"{kind} {totals[kind]:,}", color)
    if rest := ranked[TYPES_MAX:]:
        axes.plot([], [], color=MUTED, label=f"{len(rest)} more kinds {sum(totals[kind] for kind in rest):,}")
    axes.set(xlabel="virtual time, s", ylabel="messages since the sample before")
    # Heartbeats are far more than all other messages: on a linear scale nothing else would be visible.
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    if ranked:
        _legend(axes)


def _line(axes: Axes, probe: Watching, metric: str, label: str, color: str) -> None:
    times, values = probe.series(metric)
    axes.plot(times, values, color=color, label=label, linewidth=1.4)


def _legend(axes: Axes) -> None:
    """Put the legend above the picture, where it hides no data."""
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
