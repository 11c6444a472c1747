"""`trellis check INTERESTS OVERLAY`: is it a topic-connected overlay, and how good is it?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import trellis
from trellis.cli.common import AsJson, InterestsFile, Plot, examples, number, progress, says_compiling, show, table
from trellis.cli.reading import Reading, reads_interests

if TYPE_CHECKING:
    from trellis.measure.check import CheckResult

EXAMPLE = examples("trellis check interests.parquet overlay.parquet --plot check.png")
_SPLIT_SHOWN = 10


@reads_interests
def check(
    interests_file: InterestsFile,
    overlay_file: Annotated[Path, typer.Argument(metavar="OVERLAY", help="Table of u, v.", show_default=False)],
    *,
    reading: Reading,
    diameters: Annotated[
        bool, typer.Option(help="Exact topic diameters, from every node; most of the time goes there.")
    ] = True,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Judge an overlay: topic connectivity, degrees, exact topic diameters.

    Exits 0 when every topic is connected, 1 when one is split (it says which, and where), 2 when it cannot tell.
    """
    from trellis.measure.draw import draw_check

    interests = reading.interests(interests_file)
    overlay = trellis.read_overlay(overlay_file, interests.nodes)
    with says_compiling(), progress("topic diameters") as report:
        result = trellis.check(interests, overlay, diameters=diameters, progress=report)
    if plot is not None:
        draw_check(interests, overlay, result, plot)
    show(result.to_json(), as_json, _text(result))
    raise typer.Exit(0 if result.is_tco else 1)


def _text(result: CheckResult) -> Iterator[str]:
    split = len(result.connectivity.split)
    if result.is_tco:
        yield f"a topic-connected overlay: all {result.topics:,} topics are connected"
    else:
        yield f"not topic-connected: {split:,} of {result.topics:,} topics are split"
    degree, diameter = result.degrees, result.diameters
    rows: list[tuple[str, object]] = [
        ("nodes", result.nodes),
        ("links", result.links),
        ("links that serve no topic", result.connectivity.idle_links),
        ("degree", f"max {number(degree.maximum)}, mean {number(degree.mean)}, Gini {number(result.degree_gini)}"),
    ]
    if diameter is not None and diameter.maximum is not None:
        rows.append(("topic diameter", f"max {diameter.maximum}, mean {number(diameter.mean)}"))
        rows.append(("topic radius", f"max {diameter.radius_maximum}, mean {number(diameter.radius_mean)}"))
    yield from table(rows)
    if split:
        yield "split topics:"
        yield from (f"  {topic}" for topic in result.split[:_SPLIT_SHOWN])
        if split > _SPLIT_SHOWN:
            yield f"  and {split - _SPLIT_SHOWN:,} more: see --json"
