"""`trellis churn MODEL INTERESTS`: make a trace of nodes that join, leave and crash."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trellis.cli.common import AsJson, InterestsFile, Output, Seed, examples, options_of, says_compiling, show
from trellis.cli.reading import Reading, reads_interests
from trellis.cli.values import among, churn_models, workloads
from trellis.workloads.churn_configs import CHURN_MODELS, PLACEMENTS, churn_named, parse_joiners
from trellis.workloads.options import configure

EXAMPLE = examples(
    "trellis churn random interests.parquet --rounds 1000 --joiners shadows-unif --seed 7 -o churn.parquet",
    "trellis churn crash-groups interests.parquet --size 5 --placement overlay --overlay overlay.parquet -o churn.tsv",
)
_option = options_of(CHURN_MODELS)


@reads_interests
def churn(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help=f"One of {', '.join(CHURN_MODELS)}.", autocompletion=among(churn_models)),
    ],
    interests_file: InterestsFile,
    output: Output,
    *,
    reading: Reading,
    seed: Seed = 0,
    as_json: AsJson = False,
    rounds: Annotated[int | None, _option("rounds", "N")] = None,
    joiners: Annotated[str | None, _option("joiners", "WORKLOAD", among(workloads))] = None,
    mean_up: Annotated[float | None, _option("mean-up", "S")] = None,
    mean_down: Annotated[float | None, _option("mean-down", "S")] = None,
    duration: Annotated[float | None, _option("duration", "S")] = None,
    joins: Annotated[int | None, _option("joins", "N")] = None,
    fraction: Annotated[float | None, _option("fraction", "SHARE")] = None,
    start: Annotated[float | None, _option("start", "S")] = None,
    window: Annotated[float | None, _option("window", "S")] = None,
    size: Annotated[int | None, _option("size", "N")] = None,
    groups: Annotated[int | None, _option("groups", "N")] = None,
    placement: Annotated[str | None, _option("placement", "PLACE", among(PLACEMENTS))] = None,
    interval: Annotated[float | None, _option("interval", "S")] = None,
    rejoin_after: Annotated[float | None, _option("rejoin-after", "S")] = None,
    overlay_file: Annotated[
        Path | None,
        typer.Option("--overlay", help="Where the groups are found, for placement overlay and hub.", metavar="FILE"),
    ] = None,
) -> None:
    """Make a churn trace over given interests, so that any two systems replay the same churn.

    random: one join or leave a round (Shadows). onoff: nodes come and go with new interests (SpiderCast).
    flash-crowd: many joins at nearly the same time. crash-groups: several nodes crash together.
    """
    given = {
        "rounds": rounds, "mean-up": mean_up, "mean-down": mean_down, "duration": duration, "joins": joins,
        "fraction": fraction, "start": start, "window": window, "size": size, "groups": groups,
        "placement": placement, "interval": interval, "rejoin-after": rejoin_after,
        "joiners": None if joiners is None else parse_joiners(joiners),
    }  # fmt: skip
    config = configure(churn_named(model), given)

    from trellis.model import Event, expect_format, read_overlay, write_table
    from trellis.workloads.churn import churn as make

    expect_format(output)
    interests = reading.interests(interests_file)
    overlay = None if overlay_file is None else read_overlay(overlay_file, interests.nodes)
    with says_compiling():
        trace = make(config, interests, seed, overlay)
    write_table(trace.to_table(), output)
    counts = {event.name: int((trace.event == event).sum()) for event in Event}
    result = {"model": model, "rows": len(trace), **counts, "seed": seed, "file": str(output)}
    happened = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing happens"
    show(result, as_json, [f"{output}: {len(trace):,} rows: {happened}"])
