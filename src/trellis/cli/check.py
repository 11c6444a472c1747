"""`trellis check INTERESTS OVERLAY`: check whether an overlay is topic-connected, and measure it."""

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
    from trellis.measure.cuts import Cuts

EXAMPLE = examples(
    "trellis check interests.parquet overlay.parquet --plot check.png",
    "trellis check interests.parquet overlay.parquet --connectivity 2",
)
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
    connectivity: Annotated[
        int, typer.Option(help="2: does every topic stay connected without any one node?", metavar="1|2")
    ] = 1,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Judge an overlay: topic connectivity, degrees, exact topic diameters.

    Exits 0 if every topic is connected, 1 if one is split (with its name and its parts), 2 if the input is bad. With
    --connectivity 2 it also exits 1 if the loss of a single node would split a topic.
    """
    from trellis.measure.draw import draw_check

    interests = reading.interests(interests_file)
    overlay = trellis.read_overlay(overlay_file, interests.nodes)
    with says_compiling(), progress("topic diameters") as report:
        result = trellis.check(interests, overlay, diameters=diameters, connectivity=connectivity, progress=report)
    if plot is not None:
        draw_check(interests, overlay, result, plot)
    show(result.to_json(), as_json, _text(result))
    raise typer.Exit(0 if result.is_tco and result.is_two_connected is not False else 1)


def _text(result: CheckResult) -> Iterator[str]:
    split = len(result.connectivity.split)
    if result.is_tco:
        yield f"a topic-connected overlay: all {result.topics:,} topics are connected"
    else:
        yield f"not topic-connected: {split:,} of {result.topics:,} topics are split"
    if result.cuts is not None:
        yield _cuts_line(result.cuts)
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
    if result.cuts is not None and result.cuts.topics:
        yield "topics that the loss of one node splits:"
        yield from (f"  {cut}" for cut in result.cuts.worst[:_SPLIT_SHOWN])
        if result.cuts.topics > _SPLIT_SHOWN:
            yield f"  and {result.cuts.topics - _SPLIT_SHOWN:,} more: see --json"


def _cuts_line(cuts: Cuts) -> str:
    if not cuts.topics:
        return "two-connected: no loss of a single node splits a topic"
    return f"not two-connected: {cuts.topics:,} topics are split by the loss of one of {cuts.nodes:,} nodes"
