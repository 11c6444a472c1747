"""The page at the end of `trellis demo`: what each step did, and OMen beside LowODA rebuilt and SpiderCast."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from trellis.files import written_whole
from trellis.measure.picture import BLUE, GREEN, ORANGE, picture

WARMUP_ROUNDS, ROUNDS_PER_EVENT = 30, 5  # of the simulated runs


class Step(NamedTuple):
    title: str
    command: str
    said: str
    seconds: float
    pictures: tuple[str, ...] = ()  # files in the folder of the tour


class Curve(NamedTuple):
    """A number over churn events."""

    events: np.ndarray
    values: np.ndarray


def write_tour(folder: Path, steps: Sequence[Step]) -> Path:
    """Draws the comparison from what the steps left, and writes the page."""
    compared = compare(folder)
    draw(folder / "comparison.png", compared)
    style = (resources.files("trellis.lab") / "page.css").read_text("utf-8")
    body = "".join(_step(folder, place, step) for place, step in enumerate(steps, start=1))
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Trellis: the tour</title><style>{style}</style></head><body><main>"
        "<header><p class=kicker>Trellis · the tour</p><h1>From a raw trace to an overlay that mends itself</h1>"
        "<p>Friendships of users, in the format of SNAP, became interests; machine events, in the format of Google's "
        "cluster trace, became churn. LowODA planned an overlay in which every topic is connected through nodes that "
        "want it. Then nodes left and came back, and three ways to keep it whole were compared. In the end processes "
        "did it on real sockets. Every step below is a command that can be repeated alone.</p></header>"
        f"<h2>Three ways to live with churn</h2>{_image(folder / 'comparison.png')}{_table(compared)}"
        f"<h2>The steps</h2>{body}</main></body></html>\n"
    )
    with written_whole(folder / "report.html") as part:
        part.write_text(text, "utf-8")
    return folder / "report.html"


class Compared(NamedTuple):
    name: str
    color: str
    most: Curve  # greatest degree
    mean: Curve
    connected: Curve | None  # share of topics that are connected; None: all of them, always
    facts: dict[str, Any]


def compare(folder: Path) -> list[Compared]:
    history = pq.read_table(folder / "rebuild.parquet").to_pydict()
    rounds = np.array(history["round"], float)
    changed = np.array(history["links_added"], float) + np.array(history["links_removed"], float)
    rebuilt = Compared(
        "LowODA, rebuilt after every event",
        GREEN,
        Curve(rounds, np.array(history["degree_max"], float)),
        Curve(rounds, np.array(history["degree_mean"], float)),
        None,
        {
            "links changed an event": float(changed.mean()),
            "control messages an event": None,
            "split topics at the end": 0,
        },
    )
    return [_simulated(folder / "omen", "OMen, nobody in charge", BLUE), rebuilt,
            _simulated(folder / "spidercast", "SpiderCast (3,1), nobody in charge", ORANGE)]  # fmt: skip


def _simulated(run: Path, name: str, color: str) -> Compared:
    series = pq.read_table(run / "series.parquet").to_pydict()
    metric = np.array(series["metric"], dtype=object)
    time, value = np.array(series["time"], float), np.array(series["value"], float)

    def path(wanted: str) -> Curve:
        chosen = (metric == wanted) & (time >= WARMUP_ROUNDS)
        return Curve((time[chosen] - WARMUP_ROUNDS) / ROUNDS_PER_EVENT, value[chosen])

    summary = json.loads((run / "summary.json").read_text("utf-8"))
    facts = {
        "links changed an event": None,
        "control messages an event": summary["control_messages_per_event"],
        "split topics at the end": summary["split_topics"],
    }
    return Compared(name, color, path("degree_max"), path("degree_mean"), path("connected_topics"), facts)


def draw(path: Path, compared: Sequence[Compared]) -> None:
    end = max(float(one.most.events.max(initial=1)) for one in compared if one.connected is None)
    with picture(path, "The overlay under churn", rows=1, columns=3) as (axes,):
        for one in compared:
            for place, found in enumerate((one.most, one.mean, one.connected)):
                if found is not None:
                    shown = found.events <= end
                    values = 100 * found.values if place == 2 else found.values
                    axes[place].plot(found.events[shown], values[shown], color=one.color, label=one.name, linewidth=1.3)
        for place, title in enumerate(("greatest degree", "mean degree", "connected topics, %")):
            axes[place].set(xlabel="churn event", ylabel=title)
        axes[0].set_ylim(bottom=0)
        axes[1].set_ylim(bottom=0)
        axes[0].legend(loc="center")  # between SpiderCast's line and the two others


def _table(compared: Sequence[Compared]) -> str:
    columns = ["greatest degree at the end", "mean degree at the end", *compared[0].facts]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    rows = []
    for one in compared:
        cells = [one.most.values[-1], one.mean.values[-1], *one.facts.values()]
        shown = "".join(f"<td>{'–' if cell is None else f'{cell:.4g}'}</td>" for cell in cells)
        rows.append(f"<tr><th>{escape(one.name)}</th>{shown}</tr>")
    return f'<table class="numbers"><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _step(folder: Path, place: int, step: Step) -> str:
    images = "".join(_image(folder / name) for name in step.pictures)
    return (
        f"<section><h3><span>{place}</span> {escape(step.title)}</h3><p><code>$ {escape(step.command)}</code></p>"
        f"<pre>{escape(step.said)}</pre>{images}<p class=facts>{step.seconds:.1f} s</p></section>"
    )


def _image(path: Path) -> str:
    if not path.is_file():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{escape(path.stem)}" src="data:image/png;base64,{data}">'
