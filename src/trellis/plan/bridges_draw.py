"""Draw bridges: brokers in a circle, arrows for flows, and colors for loops, duplicates and islands."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

from trellis.measure.picture import BLUE, GREEN, INK, MUTED, ORANGE, RED, picture
from trellis.plan.bridges import Bridges, Found

NAMED_MAX = 60  # most brokers whose names are written


def draw_bridges(bridges: Bridges, planned: list[tuple[str, str]], path: str | Path) -> None:
    """Draw the bridges on the left, and the links of a plan for the same topics on the right."""
    title = f"{len(bridges.brokers)} brokers, {len(bridges.links)} bridged pairs; a plan has {len(planned)} links"
    looping, doubled = _pairs(bridges.loops), _pairs(bridges.duplicates)
    island = {name: number for number, group in enumerate(bridges.islands) for name in group}
    with picture(path, title, rows=1, columns=2) as ((ours, theirs),):
        for axes, name in ((ours, "Bridges"), (theirs, "Plan")):
            axes.set(title=name, xticks=[], yticks=[], aspect="equal", xlim=(-1.5, 1.5), ylim=(-1.35, 1.35))
            axes.grid(visible=False)
            for spine in axes.spines.values():
                spine.set_visible(False)
        positions = {
            name: (math.sin(2 * math.pi * k / len(bridges.brokers)), math.cos(2 * math.pi * k / len(bridges.brokers)))
            for k, name in enumerate(sorted(bridges.brokers, key=lambda name: (island[name], name)))
        }
        for source, target in sorted({(flow.source, flow.target) for flow in bridges.flows}):
            pair = frozenset((source, target))
            color = RED if pair in looping else ORANGE if pair in doubled else MUTED
            arrow = {"arrowstyle": "-|>", "color": color, "shrinkA": 6, "shrinkB": 6, "lw": 1.0}
            ours.annotate("", positions[target], positions[source], arrowprops=arrow)
        for u, v in planned:
            theirs.plot(*zip(positions[u], positions[v], strict=True), color=MUTED, linewidth=1.0, zorder=1)
        for axes in (ours, theirs):
            for name, (x, y) in positions.items():
                color = MUTED if name in bridges.outside else (BLUE, GREEN, ORANGE)[island[name] % 3]
                axes.plot([x], [y], "o", color=color, markersize=6, zorder=2)
                if len(positions) <= NAMED_MAX:
                    short = name if len(name) <= 24 else f"{name[:23]}…"
                    side = "left" if x >= 0 else "right"
                    axes.text(1.1 * x, 1.1 * y, short, ha=side, va="center", fontsize=7, color=INK, parse_math=False)
        legend = [("loop", RED), ("arrives twice", ORANGE), ("other flow", MUTED)]
        for label, color in legend:
            ours.plot([], [], color=color, label=label)
        ours.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, -0.08))


def _pairs(findings: tuple[Found, ...]) -> set[frozenset[str]]:
    return {frozenset(step) for finding in findings for path in finding.ways for step in pairwise(path)}
