"""Draw the results of `trellis profile` and `trellis check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from trellis.measure.check import CheckResult
from trellis.measure.diameters import TopicDiameters
from trellis.measure.distributions import Distribution
from trellis.measure.picture import BLUE, GREEN, MUTED, ORANGE, RED, picture
from trellis.measure.profile import Profile, Skew, profile
from trellis.measure.similarity import Similarity, sample_within
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED_MAX = 3  # split topics whose names are written into the picture
BARS_MAX = 60


def draw_profile(interests: Interests, path: str | Path, measured: Profile | None = None) -> None:
    """Draw CCDFs of popularity and subscription size, popularity by rank, and tdi(d).

    If similarity was not measured, a histogram of subscription sizes takes the place of tdi(d).
    """
    shown = measured or profile(interests, sample=sample_within(interests))
    counts = (shown.nodes, "node"), (shown.topics, "topic"), (shown.subscriptions, "subscription")
    with picture(path, ", ".join(_count(*of) for of in counts), rows=2, columns=2) as ((ccdf, sizes), (ranks, last)):
        _draw_ccdf(ccdf, shown.popularity, "Popularity of topics", "subscribers x of a topic", BLUE)
        _draw_ccdf(sizes, shown.sizes, "Subscriptions of nodes", "topics x of a node", GREEN)
        _draw_ranks(ranks, interests)
        if shown.similarity is not None:
            _draw_tdi(last, shown.similarity)
        else:
            _draw_histogram(last, shown.sizes.distribution, "Subscriptions of nodes", "topics of a node", GREEN)


def draw_check(interests: Interests, overlay: Overlay, result: CheckResult, path: str | Path) -> None:
    """Draw degrees, components of each topic with split ones marked, and topic diameters if they were measured."""
    split = len(result.connectivity.split)
    verdict = "topic-connected" if result.is_tco else f"{split:,} of {_count(result.topics, 'topic')} split"
    title = f"{_count(len(overlay.nodes), 'node')}, {_count(len(overlay), 'link')}: {verdict}"
    columns = 2 if result.diameters is None else 3
    with picture(path, title, rows=1, columns=columns) as (axes,):
        _draw_histogram(axes[0], result.degrees, "Degrees", "links of a node", BLUE)
        _draw_components(axes[1], interests, result)
        if result.diameters is not None:
            _draw_diameters(axes[2], interests, result.diameters)


def _draw_ccdf(axes: Axes, skew: Skew, title: str, label: str, color: str) -> None:
    positive = skew.distribution.values > 0
    x, y = skew.distribution.values[positive], skew.distribution.ccdf[positive]
    axes.set(title=title, xlabel=label, ylabel="share with x or more")
    if not len(x):
        return _say(axes, "nobody subscribes")
    axes.plot(x, y, ".", color=color, markersize=4)
    _log(axes, "x", x)
    _log(axes, "y", y, percent=True)
    law = skew.power_law
    if law is not None and law.is_near:  # A line far from the points would mislead.
        tail = x >= law.x_min
        line = y[tail][0] * (x[tail] / law.x_min) ** (1 - law.exponent)
        label = f"exponent {law.exponent:.2f}"
        axes.plot(x[tail], line, color=ORANGE, linewidth=1.2, label=label)
        _legend(axes)


def _draw_ranks(axes: Axes, interests: Interests) -> None:
    popular = np.sort(interests.popularity[interests.popularity > 0])[::-1]
    axes.set(title="Popularity by rank", xlabel="rank of the topic", ylabel="subscribers")
    if not len(popular):
        return _say(axes, "nobody subscribes")
    ranks = np.arange(1, len(popular) + 1)
    axes.plot(ranks, popular, ".-" if len(ranks) < 10 else "-", color=BLUE, linewidth=1.6)
    _log(axes, "x", ranks)
    _log(axes, "y", popular)


def _draw_tdi(axes: Axes, alike: Similarity) -> None:
    d = np.arange(1, len(alike.top_intersection) + 1)
    of = "" if alike.measured == alike.nodes else f", {_count(alike.measured, 'node')} drawn"
    axes.set(title=f"Top-d-intersection{of}", xlabel="d", ylabel="tdi(d), %", ylim=(0, 105))
    axes.plot(d, alike.top_intersection, ".-", color=BLUE)
    axes.axhline(alike.mean, color=ORANGE, linestyle="--", linewidth=1.2, label=f"all pairs {alike.mean:.1f} %")
    _whole_ticks(axes, "x")
    _legend(axes)


def _draw_histogram(axes: Axes, numbers: Distribution, title: str, label: str, color: str) -> None:
    axes.set(title=title, xlabel=label, ylabel="nodes")
    if not numbers.total:
        return _say(axes, "no nodes")
    low, high = numbers.minimum, numbers.maximum
    width = max(-(-(high - low + 1) // BARS_MAX), 1)  # numbers per bar
    edges = np.arange(low, high + 1 + width, width) - 0.5
    heights, _ = np.histogram(numbers.values, edges, weights=numbers.counts)
    axes.bar(edges[:-1] + width / 2, heights, width=0.9 * width, color=color)
    axes.axvline(numbers.mean, color=ORANGE, linewidth=1.4, label=f"mean {numbers.mean:.2f}")
    axes.axvline(high, color=RED, linewidth=1.4, linestyle=":", label=f"max {high}")
    margin = max(2.0, 0.03 * (high - low))
    axes.set_xlim(max(low - margin, -0.9), high + margin)
    _whole_ticks(axes, "x")
    _whole_ticks(axes, "y")
    _legend(axes)


def _draw_components(axes: Axes, interests: Interests, result: CheckResult) -> None:
    popular, components = interests.popularity, result.connectivity.components
    whole, split = np.flatnonzero(components == 1), result.connectivity.split
    axes.set(title="Components of topics", xlabel="subscribers of the topic", ylabel="components")
    if not result.topics:
        return _say(axes, "no topics")
    axes.plot(popular[whole], components[whole], ".", color=MUTED, label=f"connected {len(whole):,}")
    _log(axes, "x", popular[popular > 0])
    if len(split):
        axes.plot(popular[split], components[split], ".", color=RED, label=f"split {len(split):,}")
        _log(axes, "y", components[components > 0])
        named = [f"{_short(topic.topic)}: {topic.components:,}" for topic in result.split[:NAMED_MAX]]
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 2}
        text = "\n".join(["most components", *named])
        axes.text(0.98, 0.03, text, transform=axes.transAxes, ha="right", va="bottom", fontsize=7.5, bbox=box)
    else:
        axes.set_ylim(0, 2)
        _whole_ticks(axes, "y")
    _legend(axes)


def _draw_diameters(axes: Axes, interests: Interests, diameters: TopicDiameters) -> None:
    axes.set(title="Topic diameters", xlabel="subscribers of the topic", ylabel="hops")
    if not len(diameters.measured):
        return _say(axes, "no connected topic to measure")
    popular = interests.popularity[diameters.measured]
    diameter, radius = diameters.diameter[diameters.measured], diameters.radius[diameters.measured]
    axes.plot(popular, diameter, ".", color=BLUE, label=f"max {diameters.maximum}, mean {diameters.mean:.2f}")
    axes.plot(popular, radius, ".", color=GREEN, markersize=3, label="radius")
    _log(axes, "x", popular)
    axes.set_ylim(0, diameter.max() * 1.08 + 0.5)
    _whole_ticks(axes, "y")
    _legend(axes)


def _log(axes: Axes, which: Literal["x", "y"], values: npt.NDArray[np.generic], *, percent: bool = False) -> None:
    """Make an axis logarithmic with plain numbers at its ticks, even if it spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    low, high = float(values.min()), float(values.max())
    if percent:
        low, high = min(low, 0.1), 1.0
    margin = max((high / low) ** 0.05, 1.02) if high > low else 2.0
    low, high = low / margin, high * margin
    axes.set(**{f"{which}lim": (low, high)})
    if high >= 25 * low:
        axis.set_major_locator(LogLocator(numticks=7))
    elif high >= 3 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g} %" if percent else f"{x:,.0f}"))


def _whole_ticks(axes: Axes, which: Literal["x", "y"]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))


def _legend(axes: Axes) -> None:
    """Put the legend to the right of the title, where it hides no data."""
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)


def _say(axes: Axes, what: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.text(0.5, 0.5, what, transform=axes.transAxes, ha="center", color=MUTED)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"
