"""`trellis pipeline lineage`: print the origins of a result. It needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trellis.cli.common import AsJson, examples, show

if TYPE_CHECKING:
    from trellis.pipeline.lineage import Origin

EXAMPLE = examples("trellis pipeline lineage overlay", "trellis pipeline lineage overlay.parquet")


def lineage(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of a result, or the file of a plan.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Print the chain of jobs back to raw files. Exits 0 if nothing has changed, else 1."""
    from trellis.pipeline.lineage import lineage as origins_of

    origin = origins_of(folder)
    show(asdict(origin), as_json, _lines(origin))
    if any(one.state in ("changed", "missing") for one in origin.all()):
        raise typer.Exit(1)


def _lines(origin: Origin, depth: int = 0, seen: set[str] | None = None) -> Iterator[str]:
    seen = set() if seen is None else seen
    indent = "  " * depth
    if origin.job is None:
        size = f", {origin.told['bytes']:,} bytes" if "bytes" in origin.told else ""
        run = f", run {origin.told['run']}" if "run" in origin.told else ""
        yield f"{indent}{origin.path}: raw{size}{run}, {origin.state}"
        return
    again = origin.path in seen
    seen.add(origin.path)
    told = origin.told
    ended = f", {told['ended']} by {told['application']}" if told.get("ended") else ""
    runs = f", {told['runs']} runs" if told.get("runs", 1) > 1 else ""
    yield f"{indent}{origin.path}: {origin.job}{ended}{runs}, {origin.state}{', see above' if again else ''}"
    if not again:
        for parent in origin.parents:
            yield from _lines(parent, depth + 1, seen)
