"""`trellis pipeline JOB`: from raw traces to interests, churn traces and profiles, on Spark."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

from trellis.cli import lineage, pipeline_plan, pipeline_watch
from trellis.cli.common import Seed, examples
from trellis.cli.spark import ROWS_PANEL, Folder, Overwrite, on_spark
from trellis.cli.values import FORMATS, among
from trellis.errors import InputError

SparkSession: TypeAlias = Any  # of packages that only a job imports
Report: TypeAlias = Any

app = typer.Typer(no_args_is_help=True, help="Jobs on Spark: raw traces to interests, churn traces and profiles.")
app.command("lineage", epilog=lineage.EXAMPLE)(lineage.lineage)

Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Raw files, plain or gzip.", show_default=False)]


def _format(job: str) -> Any:
    help = "Told from the file's first lines unless given."
    return typer.Option("--format", help=help, metavar="NAME", autocompletion=among(FORMATS[job]))


BadRows = Annotated[
    str,
    typer.Option(
        "--on-bad-rows",
        help="fail, or quarantine: set them apart in _rejected/.",
        metavar="WHAT",
        autocompletion=among(["fail", "quarantine"]),
        rich_help_panel=ROWS_PANEL,
    ),
]
MaxBadShare = Annotated[
    float,
    typer.Option(
        "--max-bad-share", help="With quarantine: fail above this share.", metavar="SHARE", rich_help_panel=ROWS_PANEL
    ),
]


@app.command(
    epilog=examples(
        "trellis pipeline social facebook_combined.txt.gz --format facebook --sample-nodes 1000 --seed 7 -o interests"
    )
)
@on_spark
def social(
    spark: SparkSession,
    files: Files,
    output: Folder,
    format: Annotated[str | None, _format("social")] = None,
    sample_nodes: Annotated[
        int | None, typer.Option(help="How many users; all unless given.", metavar="N", show_default=False)
    ] = None,
    sampling: Annotated[
        str,
        typer.Option(
            help="omen: breadth first from a few seeds; vitis: random users and all they follow.",
            autocompletion=among(["omen", "vitis"]),
        ),
    ] = "omen",
    seeds: Annotated[int, typer.Option(help="Users to start from.", metavar="N")] = 5,
    directed: Annotated[
        bool | None, typer.Option("--directed/--undirected", help="Is following one-sided?", show_default=False)
    ] = None,
    seed: Seed = 0,
    on_bad_rows: BadRows = "fail",
    max_bad_share: MaxBadShare = 0.01,
    overwrite: Overwrite = False,
) -> Report:
    """Turn a social graph into interests: users are nodes and topics, and subscribe to their friends or followees.

    Formats: facebook, edges (SNAP, KONECT), twitter (user follower). The graph never passes through the driver.
    """
    from trellis.pipeline import jobs

    return jobs.social(
        spark,
        files,
        output,
        format=format,
        sample_nodes=sample_nodes,
        sampling=sampling,  # type: ignore[arg-type]  # the job checks it
        seeds=seeds,
        directed=directed,
        seed=seed,
        on_bad_rows=on_bad_rows,  # type: ignore[arg-type]
        max_bad_share=max_bad_share,
        overwrite=overwrite,
    )


@app.command(epilog=examples("trellis pipeline edits wikiticker.json.gz --topics 3000 --drop-robots -o interests"))
@on_spark
def edits(
    spark: SparkSession,
    files: Files,
    output: Folder,
    format: Annotated[str | None, _format("edits")] = None,
    topics: Annotated[int, typer.Option(help="How many random pages; 0 for all.", metavar="N")] = 3000,
    drop_robots: Annotated[bool, typer.Option("--drop-robots", help="Leave out edits by robots.")] = False,
    drop_anonymous: Annotated[bool, typer.Option("--drop-anonymous", help="Leave out edits without a user.")] = False,
    mask_secret: Annotated[
        str | None, typer.Option(help="Keys the stand-ins of internet addresses.", envvar="TRELLIS_MASK_SECRET")
    ] = None,
    seed: Seed = 0,
    on_bad_rows: BadRows = "fail",
    max_bad_share: MaxBadShare = 0.01,
    overwrite: Overwrite = False,
) -> Report:
    """Turn an edit log into interests: pages are topics, and users subscribe to the pages that they edited."""
    from trellis.pipeline import jobs

    return jobs.edits(
        spark,
        files,
        output,
        format=format,
        topics=topics or None,
        drop_robots=drop_robots,
        drop_anonymous=drop_anonymous,
        mask_secret=mask_secret,
        seed=seed,
        on_bad_rows=on_bad_rows,  # type: ignore[arg-type]
        max_bad_share=max_bad_share,
        overwrite=overwrite,
    )


@app.command(epilog=examples("trellis pipeline pairs user_artists.dat.gz --columns userID,artistID -o interests"))
@on_spark
def pairs(
    spark: SparkSession,
    files: Files,
    output: Folder,
    format: Annotated[str | None, _format("pairs")] = None,
    columns: Annotated[
        str | None, typer.Option(help="The two columns, by name or by number from 1: user,topic.", metavar="A,B")
    ] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", show_default=False)] = None,
    separator: Annotated[str | None, typer.Option(help="Told from the first lines unless given.")] = None,
    comment: Annotated[str | None, typer.Option(help="Lines that begin so are no rows.")] = None,
    subscribers_min: Annotated[int, typer.Option(help="Drop less popular topics.", metavar="N")] = 1,
    subscribers_max: Annotated[int | None, typer.Option(help="Drop more popular topics.", metavar="N")] = None,
    topics_min: Annotated[int, typer.Option(help="Drop nodes with fewer topics.", metavar="N")] = 1,
    topics_max: Annotated[int | None, typer.Option(help="Drop nodes with more topics.", metavar="N")] = None,
    sample_nodes: Annotated[int | None, typer.Option(help="So many random nodes.", metavar="N")] = None,
    seed: Seed = 0,
    on_bad_rows: BadRows = "fail",
    max_bad_share: MaxBadShare = 0.01,
    overwrite: Overwrite = False,
) -> Report:
    """Turn a table of users and topics into interests, filtered by popularity and size. It also reads telemetry."""
    from trellis.pipeline import jobs

    return jobs.pairs(
        spark,
        files,
        output,
        format=format,
        columns=_columns(columns),
        header=header,
        separator=separator,
        comment=comment,
        subscribers_min=subscribers_min,
        subscribers_max=subscribers_max,
        topics_min=topics_min,
        topics_max=topics_max,
        sample_nodes=sample_nodes,
        seed=seed,
        on_bad_rows=on_bad_rows,  # type: ignore[arg-type]
        max_bad_share=max_bad_share,
        overwrite=overwrite,
    )


@app.command(
    epilog=examples("trellis pipeline churn part-00000-of-00001.csv.gz --format google2011 --map-to interests -o churn")
)
@on_spark
def churn(
    spark: SparkSession,
    files: Files,
    output: Folder,
    map_to: Annotated[
        str | None, typer.Option(help="The interests whose nodes come and go.", metavar="INTERESTS", show_default=False)
    ] = None,
    format: Annotated[str | None, _format("churn")] = None,
    machines: Annotated[
        int | None, typer.Option(help="How many to map; one for each node unless given.", metavar="N")
    ] = None,
    sample_from: Annotated[
        str | None,
        typer.Option(
            help="start: machines there at the start; all: any.",
            metavar="WHERE",
            autocompletion=among(["start", "all"]),
        ),
    ] = None,
    seed: Seed = 0,
    on_bad_rows: BadRows = "fail",
    max_bad_share: MaxBadShare = 0.01,
    overwrite: Overwrite = False,
) -> Report:
    """Turn machine events or availability sessions into a churn trace over given interests.

    Formats: google2011, google2019, avt (sessions), fta (failure traces), telemetry (of live nodes).
    """
    from trellis.pipeline import jobs

    return jobs.churn(
        spark,
        files,
        output,
        map_to=map_to,
        format=format,
        machines=machines,
        sample_from=sample_from,  # type: ignore[arg-type]
        seed=seed,
        on_bad_rows=on_bad_rows,  # type: ignore[arg-type]
        max_bad_share=max_bad_share,
        overwrite=overwrite,
    )


@app.command(epilog=examples("trellis pipeline rates events.jsonl -o rates"))
@on_spark
def rates(
    spark: SparkSession,
    files: Files,
    output: Folder,
    format: Annotated[str | None, _format("rates")] = None,
    on_bad_rows: BadRows = "fail",
    max_bad_share: MaxBadShare = 0.01,
    overwrite: Overwrite = False,
) -> Report:
    """Turn telemetry of live nodes into publication rates: topic, messages a second. For interests see `pairs`."""
    from trellis.pipeline import jobs

    return jobs.rates(
        spark,
        files,
        output,
        format=format,
        on_bad_rows=on_bad_rows,  # type: ignore[arg-type]
        max_bad_share=max_bad_share,
        overwrite=overwrite,
    )


@app.command(epilog=examples("trellis pipeline events events.jsonl.1 --append -o events"))
@on_spark
def events(
    spark: SparkSession,
    files: Files,
    output: Folder,
    format: Annotated[str | None, _format("events")] = None,
    append: Annotated[bool, typer.Option("--append", help="Add to the table of an earlier run.")] = False,
    on_bad_rows: BadRows = "fail",
    max_bad_share: MaxBadShare = 0.01,
    overwrite: Overwrite = False,
) -> Report:
    """Turn telemetry or logs of Mosquitto into a table of events by day, which pairs, rates and churn read."""
    from trellis.pipeline import jobs

    return jobs.events(
        spark,
        files,
        output,
        format=format,
        append=append,
        on_bad_rows=on_bad_rows,  # type: ignore[arg-type]
        max_bad_share=max_bad_share,
        overwrite=overwrite,
    )


@app.command(epilog=examples("trellis pipeline profile interests -o profile"))
@on_spark
def profile(
    spark: SparkSession,
    files: Files,
    output: Folder,
    format: Annotated[
        str,
        typer.Option(
            help="interests, or a graph: edges, facebook, twitter.",
            metavar="NAME",
            autocompletion=among(FORMATS["profile"]),
        ),
    ] = ("interests"),
    directed: Annotated[bool | None, typer.Option("--directed/--undirected", show_default=False)] = None,
    tdi: Annotated[int, typer.Option(help="d of tdi(d).", metavar="N")] = 20,
    tdi_sample: Annotated[int, typer.Option(help="Random nodes it is measured on; 0: none.", metavar="N")] = 200,
    seed: Seed = 0,
    on_bad_rows: BadRows = "fail",
    max_bad_share: MaxBadShare = 0.01,
    overwrite: Overwrite = False,
) -> Report:
    """Measure interests or a whole graph: CCDFs, power-law fits and similarity, as tables and pictures."""
    from trellis.pipeline import jobs

    return jobs.profile(
        spark,
        files,
        output,
        format=format,
        directed=directed,
        tdi_closest=tdi,
        tdi_sample=tdi_sample,
        seed=seed,
        on_bad_rows=on_bad_rows,  # type: ignore[arg-type]
        max_bad_share=max_bad_share,
        overwrite=overwrite,
    )


def _columns(text: str | None) -> Any:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise InputError(f"--columns {text}", "is not two columns", "write user,topic or 1,2")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else tuple(parts)


for _command, _examples in pipeline_plan.COMMANDS.items():
    app.command(epilog=_examples)(_command)
app.command(epilog=pipeline_watch.EXAMPLE)(pipeline_watch.watch)
