"""The result of `trellis.lab.compare`: a table with confidence intervals, as text, Markdown, or a page."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trellis.errors import InputError
from trellis.files import written_whole
from trellis.lab.numbers import mean_text
from trellis.lab.table import half_width

Measures = dict[str, float]
COLORS = ("#2f6f9f", "#d98324", "#3c8d6e", "#c0392b", "#7d5ba6", "#5f9ea0", "#a0522d", "#b0457b", "#6b7a1f", "#4b5563")
DRAWN = ("degree mean", "degree max", "split topics", "messages, events", "messages, cycles", "overhead %", "delay")


class Cell(NamedTuple):
    """A measure of one system: the mean over seeds, half of its 95% interval, and the value of each seed.

    With a single seed the interval is not a number.
    """

    mean: float
    half_width: float
    values: tuple[float, ...]

    def __str__(self) -> str:
        return mean_text(self.mean, self.half_width)


class Comparison:
    """Rows are systems, columns are measures. `str()` gives it as text; `cell`, `rows` and `write` give more."""

    def __init__(self, found: Sequence[tuple[str, str, Sequence[Measures]]], seeds: Sequence[int]) -> None:
        self.seeds = list(seeds)
        self.systems = [(label, engine) for label, engine, _ in found]
        self.measures = list(dict.fromkeys(name for _, _, some in found for one in some for name in one))
        self._cells = {
            (label, engine, name): _cell([one[name] for one in some if name in one])
            for label, engine, some in found
            for name in self.measures
            if any(name in one for one in some)
        }

    def cell(self, system: str, measure: str, engine: str | None = None) -> Cell:
        """Return one number of the table; `engine` where a system was run on both."""
        found = [key for key in self._cells if key[0] == system and key[2] == measure and engine in (None, key[1])]
        if len(found) != 1:
            what = "was not measured" if not found else "was measured on several engines"
            raise InputError(system, f"{measure} {what}", "name system, measure and engine as the table does")
        return self._cells[found[0]]

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one dictionary for each system: for pandas, JSON or a test."""
        return [
            {"system": label, "engine": engine, **{
                name: {"mean": cell.mean, "half_width": cell.half_width, "values": list(cell.values)}
                for name in self.measures if (cell := self._cells.get((label, engine, name))) is not None
            }}
            for label, engine in self.systems
        ]  # fmt: skip

    def texts(self) -> list[list[str]]:
        """Return the table as text, its head first."""
        lines = [["system", "engine", *self.measures]]
        for label, engine in self.systems:
            cells = [self._cells.get((label, engine, name)) for name in self.measures]
            lines.append([label, engine, *("" if cell is None else str(cell) for cell in cells)])
        return lines

    def markdown(self) -> str:
        head, *lines = self.texts()
        shown = [head, ["---"] * len(head), *lines]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in shown) + "\n"

    def __str__(self) -> str:
        lines = self.texts()
        widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    def write(self, folder: str | Path) -> Path:
        """Write a report: index.html, which needs no other file, comparison.md, comparison.json and comparison.svg."""
        to = Path(folder)
        try:
            to.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(str(to), f"cannot be made ({error.strerror})", "name another folder") from error
        self.draw(to / "comparison.svg")
        image = base64.b64encode((to / "comparison.svg").read_bytes()).decode()
        for name, text in (
            ("comparison.md", self.markdown()),
            ("comparison.json", json.dumps({"seeds": self.seeds, "systems": _plain(self.rows())}, indent=2) + "\n"),
            ("index.html", self._page(image)),
        ):
            with written_whole(to / name) as part:
                part.write_text(text, "utf-8")
        return to / "index.html"

    def draw(self, path: str | Path) -> None:
        """Draw bars with 95% intervals for the measures that every reader asks for first."""
        from trellis.measure.picture import picture

        names = [name for name in DRAWN if name in self.measures]
        with picture(path, "Systems side by side", rows=1, columns=len(names)) as (axes,):
            for one, name in zip(axes, names, strict=True):
                for place, (label, engine) in enumerate(self.systems):
                    cell = self._cells.get((label, engine, name))
                    if cell is not None:
                        error = float(np.nan_to_num(cell.half_width))
                        one.bar(place, cell.mean, yerr=error, color=COLORS[place % len(COLORS)])
                one.set(title=name)
                ticks = [label if engine != "cycles" else f"{label}, cycles" for label, engine in self.systems]
                one.set_xticks(range(len(ticks)), ticks, rotation=60, ha="right", fontsize=7)

    def _page(self, image: str) -> str:
        style = (resources.files("trellis.lab") / "page.css").read_text("utf-8")
        head, *lines = self.texts()
        columns = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join(
            f"<tr><th>{escape(line[0])}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in line[1:])}</tr>"
            for line in lines
        )
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Systems side by side</title>'
            f"<style>{style}</style></head><body><main><header><p class=kicker>Trellis lab</p>"
            f"<h1>{len(self.systems)} systems side by side</h1><p>Means over {len(self.seeds)} seeds; ± is half of the "
            "95% interval.</p></header>"
            f'<img alt="Systems side by side" src="data:image/svg+xml;base64,{image}">'
            f'<div class="wide"><table class="numbers"><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>'
            "</div></main></body></html>\n"
        )


def _cell(values: Sequence[float]) -> Cell:
    found = np.asarray(values, float)
    return Cell(float(found.mean()), half_width(found), tuple(map(float, found)))


def _plain(value: Any) -> Any:
    """Replace what JSON has no word for: not a number becomes null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
