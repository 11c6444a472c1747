"""Pictures of a case: bars for the figures of all systems, and what flowed over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.fire.judge import Span
from benchmarks.fire.keep import Kept

from trellis.files import written_whole
from trellis.judge.history import Disturbed, Down, Received, Up
from trellis.measure.picture import BLUE, GRID, INK, MUTED, ORANGE, RED, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP_S = 0.5
Figures = Callable[[Kept], float | None]


def _median(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _most(values: Sequence[float]) -> float | None:
    return max(values) if values else None


def cpu_us(run: Kept) -> float | None:
    """Return the computing time of all brokers for each delivery to another broker's client, in microseconds."""
    return 1e6 * run.about["costs"]["cpu_s"] / run.verdict.crossed if run.verdict.crossed else None


def peer_bytes(run: Kept) -> float | None:
    """Return the bytes between brokers for each such delivery, divided by the size of the payload."""
    count = run.about["costs"]["peer_bytes"]
    return count / run.verdict.crossed / run.case[2] if count is not None and run.verdict.crossed else None


BARS: tuple[tuple[str, Figures, str], ...] = (
    ("lost, per 100,000 acknowledged", lambda run: run.verdict.per_100k(run.verdict.lost), RED),
    ("twice, per 100,000 acknowledged", lambda run: run.verdict.per_100k(run.verdict.twice), ORANGE),
    ("out of order, per 100,000 acknowledged", lambda run: run.verdict.per_100k(run.verdict.disorder), ORANGE),
    ("flows again between other brokers, s (most)", lambda run: _most(run.verdict.others_s), BLUE),
    ("flows again at a broker that is back, s (most)", lambda run: _most(run.verdict.again_s), BLUE),
    ("computing per delivery, µs", cpu_us, MUTED),
    ("bytes between brokers per delivered byte", peer_bytes, MUTED),
    ("memory of the largest site, MB", lambda run: run.about["costs"]["memory_mb"], MUTED),
)


def draw_bars(runs: Sequence[Kept], path: Path) -> None:
    """Draw one panel for each figure that a run of the case has, systems from top to bottom."""
    shown = [one for one in BARS if any(one[1](run) is not None for run in runs)]
    if not any(run.verdict.others_s for run in runs):  # nothing was harmed
        shown = [one for one in shown if "flows again" not in one[0]]
    rows = -(-len(shown) // 2)
    with _figure((11.0, rows * (0.34 * len(runs) + 0.75)), path) as figure:
        axes = figure.subplots(rows, 2, squeeze=False, sharey=True)
        for place, axis in enumerate(axes.flat):
            if place >= len(shown):
                axis.set_visible(False)
                continue
            title, of, color = shown[place]
            values = [of(run) for run in runs]
            axis.barh(range(len(runs)), [value or 0.0 for value in values], color=color, height=0.62)
            most = max([value or 0.0 for value in values]) or 1.0
            for row, value in enumerate(values):
                text = "not measured" if value is None else f"{value:,.0f}" if value >= 20 else f"{value:.3g}"
                axis.text((value or 0.0) + 0.015 * most, row, text, va="center", color=INK, fontsize=8)
            axis.set_xlim(0, 1.18 * most)
            axis.set_title(title)
            axis.set_yticks(range(len(runs)), [run.about["title"] for run in runs])
            axis.tick_params(axis="y", length=0)
            axis.grid(axis="y", visible=False)
        axes[0][0].invert_yaxis()


def draw_flow(runs: Sequence[Kept], path: Path) -> None:
    """Draw deliveries over time, one panel for each system; faults are shaded."""
    with _figure((11.0, 1.15 * len(runs) + 0.5), path) as figure:
        axes = figure.subplots(len(runs), 1, squeeze=False, sharex=True)
        longest = max(run.about["until"] - run.about["since"] for run in runs)
        for axis, run in zip(axes.flat, runs, strict=True):
            since, until = run.about["since"], run.about["until"]
            for span in spans(run):
                axis.axvspan(span.begin - since, min(span.end, until) - since, color=RED, alpha=0.12, lw=0)
            times, counts = _flow(run)
            axis.fill_between(times, counts, step="post", color=BLUE, alpha=0.85, lw=0)
            axis.set_xlim(0, longest)
            axis.set_ylim(bottom=0)
            axis.set_title(run.about["title"], fontsize=9, pad=4)
            axis.grid(axis="x", color=GRID)
        axes[-1][0].set_xlabel("seconds of load, until all faults are over; shaded: a broker is down, hangs or is cut")
        figure.supylabel("deliveries a second, for the first time", fontsize=9)


def spans(run: Kept) -> Iterator[Span]:
    """Return the faults of a run in the order in which they ended."""
    down: dict[str, float] = {}
    for event in run.events:
        match event:
            case Down():
                down[event.node] = event.t
            case Up() if event.node in down:
                yield Span(down.pop(event.node), event.t, frozenset([event.node]))
            case Disturbed():
                yield Span(event.t, event.until, frozenset(event.nodes))
            case _:
                pass


def _flow(run: Kept) -> tuple[list[float], list[float]]:
    since, until = run.about["since"], run.about["until"]
    counts = [0] * (int((until - since) / STEP_S) + 2)
    seen: set[tuple[str, str]] = set()
    for event in run.events:
        if isinstance(event, Received) and since <= event.t <= until:
            key = (event.session.partition("#")[0], event.message)
            if key not in seen:
                seen.add(key)
                counts[int((event.t - since) / STEP_S)] += 1
    return [STEP_S * place for place in range(len(counts))], [one / STEP_S for one in counts]


@contextmanager
def _figure(size: tuple[float, float], path: Path) -> Iterator[Figure]:
    """Yield a figure in the project's style, and write it whole at the end."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", {**STYLE, "svg.fonttype": "none"}]):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        kind = path.suffix.lstrip(".")
        nothing = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        with written_whole(path) as temporary:
            figure.savefig(temporary, format=kind, metadata=nothing, dpi=110)
