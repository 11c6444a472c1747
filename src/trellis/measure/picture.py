"""Draw pictures in one style: PNG or SVG, by the name of the file.

The same input gives the same bytes. Fonts come with matplotlib, settings are not read from the user's files, and
neither date nor version is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trellis.errors import InputError
from trellis.files import written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID = "#22313f", "#7b8a97", "#e4e9ed"
BLUE, GREEN, ORANGE, RED = "#2f6f9f", "#3c8d6e", "#d98324", "#c0392b"

STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 1.2,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.0,
    "legend.borderaxespad": 0.2,
    "svg.hashsalt": "trellis",
    "savefig.dpi": 150,
}


@contextmanager
def picture(path: str | Path, title: str, *, rows: int, columns: int) -> Iterator[list[list[Axes]]]:
    """Yield the axes to draw on, row by row. At the end write the picture, completely or not at all."""
    kind = Path(path).suffix.lower().lstrip(".")
    if kind not in ("png", "svg"):
        raise InputError(str(path), "is neither a .png nor a .svg file", "name the picture so")
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with style.context(["default", STYLE]):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
        figure = Figure(figsize=(4.3 * columns, 3.4 * rows + 0.3), layout=layout)
        figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold")
        axes = figure.subplots(rows, columns, squeeze=False)
        yield [list(row) for row in axes]
        nothing = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        with written_whole(path) as temporary:
            figure.savefig(temporary, format=kind, metadata=nothing)
