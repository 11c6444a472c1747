"""`trellis lab`: the papers' experiments: list them, run them on Spark, report on them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trellis.cli.common import AsJson, examples, note, progress, show, table
from trellis.cli.spark import Conf, DriverMemory, LogLevel, Master, settings_of
from trellis.cli.values import SCALES, among, experiments
from trellis.errors import InputError

if TYPE_CHECKING:
    from trellis.lab.runner import Progress, Summary

app = typer.Typer(
    no_args_is_help=True,
    help="The papers' experiments: every figure from data to verdict, on Spark.",
    epilog=examples("trellis lab list", "trellis lab run all --scale smoke", "trellis lab report"),
)
Folder = Annotated[Path, typer.Option("-o", "--output", help="The folder of results.", metavar="DIR")]
Scale = Annotated[
    str,
    typer.Option(
        help="smoke: seconds; medium: some entries at sizes between; paper: the paper's sizes; beyond: larger.",
        metavar="SCALE",
        autocompletion=among(SCALES),
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder of raw traces; else TRELLIS_DATA.", metavar="DIR", show_default=False),
]
Ids = Annotated[
    list[str],
    typer.Argument(
        help="Ids, a paper (omen), or all.", metavar="ID...", show_default=False, autocompletion=among(experiments)
    ),
]
FOLDER = Path("trellis-lab")


@app.command("list", epilog=examples("trellis lab list", "trellis lab list --scale paper --json"))
def list_(output: Folder = FOLDER, scale: Scale = "smoke", data: Data = None, as_json: AsJson = False) -> None:
    """List all experiments, with their verdicts where results are there."""
    from trellis.lab.catalogue import catalogue
    from trellis.lab.report import judged_all

    found = judged_all(list(catalogue().values()), output, _scale(scale), _at_hand(data, output))
    result = [
        {
            "id": one.experiment.id,
            "figure": one.experiment.figure,
            "title": one.experiment.title,
            "scales": list(one.experiment.scales) if one.experiment.can_run else [],
            "verdict": one.verdict.word,
            "reason": one.verdict.reason,
        }
        for one in found
    ]
    lines = [f"{'id':<20} {'figure':<12} {'verdict':<15} title"]
    for one in found:
        experiment, verdict = one.experiment, one.verdict
        word = "-" if verdict.word == "incomplete" and not one.seeds else verdict.word
        why = f"  ({verdict.reason})" if not experiment.can_run else ""
        lines.append(f"{experiment.id:<20} {experiment.figure:<12} {word:<15} {experiment.title}{why}")
    show({"scale": scale, "experiments": result}, as_json, lines)


@app.command(
    "run", epilog=examples("trellis lab run all --scale smoke", "trellis lab run spidercast-fig12 --scale paper")
)
def run(
    ids: Ids,
    output: Folder = FOLDER,
    scale: Scale = "smoke",
    seeds: Annotated[
        int | None, typer.Option(help="Seeds 1 to N; as the rules ask unless given.", metavar="N", show_default=False)
    ] = None,
    data: Data = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
    master: Master = None,
    conf: Conf = None,
    driver_memory: DriverMemory = None,
    log_level: LogLevel = "off",
    as_json: AsJson = False,
) -> None:
    """Run experiments as rows of a grid on Spark. What is there already is not run again.

    Exits 1 when a row failed; the next run tries it again. On a cluster all machines must see the folder of results.
    """
    from trellis.lab.catalogue import chosen
    from trellis.lab.experiment import merged
    from trellis.lab.store import Store

    if seeds is not None and seeds < 1:
        raise InputError(f"--seeds {seeds}", "is not 1 or more", "give a number of seeds")
    experiments, at_hand = chosen(ids), _at_hand(data)
    wanted = None if seeds is None else range(1, seeds + 1)
    rows = merged(row for one in experiments for row in one.rows(_scale(scale), at_hand, wanted))
    store = Store(output)
    missing = [row for row in rows if not store.is_done(row)]
    idle = [one for one in experiments if not one.can_run or scale not in one.scales]
    plan: dict[str, Any] = {
        "experiments": len(experiments),
        "not run": len(idle),
        "rows": len(rows),
        "rows there already": len(rows) - len(missing),
    }
    if dry_run or not missing:
        show({**plan, "folder": str(output)}, as_json, [f"{output}: scale {scale}", *table(plan.items())])
        return
    summary = _on_spark(rows, store, at_hand, master, settings_of(conf), driver_memory, log_level)
    plan |= {"rows run": summary.done, "rows failed": len(summary.failed), "seconds": summary.seconds}
    for row, error in summary.failed[:20]:
        note(f"failed: {row.case.measure} {row.case.system} {dict(row.case.parameters)} seed {row.seed}: {error}")
    failed = [{"key": row.key, "experiments": list(row.experiments), "error": error} for row, error in summary.failed]
    text = [f"{output}: scale {scale}", *table(plan.items()), f"Next: trellis lab report --scale {scale} -o {output}"]
    show({**plan, "folder": str(output), "failures": failed}, as_json, text)
    if summary.failed:
        raise typer.Exit(1)


@app.command("report", epilog=examples("trellis lab report", "trellis lab report --scale paper --png"))
def report(
    output: Folder = FOLDER,
    scale: Scale = "smoke",
    data: Data = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder of the report; OUTPUT/report-SCALE unless given.", metavar="DIR")
    ] = None,
    png: Annotated[bool, typer.Option("--png", help="Write every figure as .png too, beside its .svg.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make one self-contained HTML page of all results, figures as files, and a summary table as Markdown."""
    from trellis.lab.catalogue import catalogue
    from trellis.lab.report import write_report

    folder = to or output / f"report-{_scale(scale)}"
    with progress("figures") as tell:
        made = write_report(
            list(catalogue().values()),
            output,
            scale,
            _at_hand(data, output),
            folder,
            png=png,
            progress=lambda d, t: tell(d, t),
        )
    said = [text] if (text := made.not_run.sentence(scale)) else []
    result = {"page": str(made.page), "scale": scale, "verdicts": made.words, "not_run": made.not_run.total}
    show(result, as_json, [f"{made.page}: scale {scale}", *table(made.words.items()), *said])


@app.command("traces", epilog=examples("trellis lab traces raw --users 400 --seed 7"))
def traces(
    folder: Annotated[Path, typer.Argument(help="Where to write.", metavar="DIR", show_default=False)],
    users: Annotated[int, typer.Option(help="Users of the graph; machines of the trace.", min=20)] = 400,
    days: Annotated[float, typer.Option(help="Days of machine events.")] = 29.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = 7,
    as_json: AsJson = False,
) -> None:
    """Write small raw traces of our own in true formats: friendships (SNAP) and machine events (Google 2011)."""
    from trellis.lab.traces import write_traces

    made = write_traces(folder, users, days, seed)
    show({name: str(path) for name, path in made.items()}, as_json, [f"{path}: {name}" for name, path in made.items()])


def _on_spark(
    rows: Any,
    store: Any,
    at_hand: Any,
    master: str | None,
    settings: dict[str, str],
    memory: str | None,
    log_level: str,
) -> Summary:
    from trellis.lab.inputs import prepare
    from trellis.lab.runner import ONE_THREAD, commit_here, one_thread, run_rows
    from trellis.pipeline.session import open_session

    os.environ.update(ONE_THREAD)  # what the workers of local[...] inherit
    with progress("starting Spark") as tell:
        tell(0, len(rows))
        settings = {"spark.sql.shuffle.partitions": "8", **one_thread(), **settings}
        with open_session(
            master, conf=settings, driver_memory=memory, log_level=log_level, name="trellis lab"
        ) as spark:
            tell(0, len(rows), "raw traces through the pipeline")
            prepare(spark, rows, at_hand, store.inputs)

            def told(now: Progress) -> None:
                left = "" if now.seconds_left is None else f", about {_minutes(now.seconds_left)} left"
                failed = f", {now.failed} failed" if now.failed else ""
                tell(now.done + now.failed, now.total, f"{now.running} running{failed}{left}")

            return run_rows(spark, rows, store, commit=commit_here(), progress=told)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _scale(scale: str) -> str:
    from trellis.lab.experiment import SCALES

    if scale not in SCALES:
        raise InputError(f"--scale {scale}", "there is no such scale", f"choose from {', '.join(SCALES)}")
    return scale


def _at_hand(data: Path | None, results: Path | None = None) -> Any:
    """`results`: whoever only judges them needs no raw traces any more."""
    from trellis.lab.inputs import AtHand

    return AtHand.find(data, None if results is None else results / "inputs")
