"""`trellis lab`: the papers' experiments: list them, run them on Spark, report on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trellis.cli.common import AsJson, examples, note, progress, show, table
from trellis.cli.spark import Conf, DriverMemory, LogLevel, Master, settings_of
from trellis.cli.values import SCALES, among, experiments
from trellis.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trellis.lab.experiment import Row
    from trellis.lab.runner import Progress, Summary
    from trellis.lab.store import Store

app = typer.Typer(
    no_args_is_help=True,
    help="The papers' experiments: every figure from data to verdict, on Spark.",
    epilog=examples("trellis lab list", "trellis lab run all --scale smoke", "trellis lab report", "trellis lab pages"),
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
OptionalIds = Annotated[
    list[str] | None,
    typer.Argument(
        help="Ids, a paper (omen), or all.", metavar="[ID]...", show_default=False, autocompletion=among(experiments)
    ),
]
FOLDER, RESULTS, PAGES = Path("trellis-lab"), Path("results"), Path("docs/results")
SAY_EVERY_S, ENTRIES_SHOWN = 60.0, 3  # how often a run without a terminal tells how far it is; entries that it names
EXPLAINED = "~ marks an estimate, other times were measured"


@app.command("list", epilog=examples("trellis lab list", "trellis lab list --scale paper --json"))
def list_(output: Folder = FOLDER, scale: Scale = "smoke", data: Data = None, as_json: AsJson = False) -> None:
    """List all experiments: verdicts where results are there, and how long each takes.

    Where nothing was run yet, verdicts are those of rows that are kept in results/.

    Times are processor time on one core. They are those of rows that are kept in results/; with a ~ they are estimates.
    """
    from trellis.lab.catalogue import catalogue
    from trellis.lab.experiment import merged
    from trellis.lab.report import judged_all, results_in
    from trellis.lab.times import kept_folder

    results = results_in(output)
    if results is None and output == FOLDER and (kept := kept_folder()) is not None:
        results = results_in(kept)  # nothing was run here: show what is kept with the sources
    at_hand = _at_hand_for(results, data, output)
    found, times = judged_all(list(catalogue().values()), results, _scale(scale), at_hand), _times(output)
    rows = [one.experiment.rows(scale, at_hand) for one in found]
    expected = [times.expected(some) for some in rows]
    total = times.expected(merged(row for some in rows for row in some))
    result = [
        {
            "id": one.experiment.id,
            "figure": one.experiment.figure,
            "title": one.experiment.title,
            "scales": list(one.experiment.scales) if one.experiment.can_run else [],
            "verdict": one.verdict.word,
            "reason": one.verdict.reason,
            "rows": time.rows,
            "seconds": round(time.seconds, 1),
            "seconds_are_estimated": time.measured < time.rows,
        }
        for one, time in zip(found, expected, strict=True)
    ]
    lines = [f"{'id':<20} {'figure':<17} {'verdict':<15} {'time':>8}  title"]
    for one, time in zip(found, expected, strict=True):
        experiment, verdict = one.experiment, one.verdict
        word = "-" if verdict.word == "incomplete" and not one.seeds else verdict.word
        why = f"  ({verdict.reason})" if not experiment.can_run else ""
        lines.append(f"{experiment.id:<20} {experiment.figure:<17} {word:<15} {time!s:>8}  {experiment.title}{why}")
    lines += ["", f"all at scale {scale}: {total.rows:,} rows, {total} of processor time on one core; {EXPLAINED}"]
    summed = {"rows": total.rows, "seconds": round(total.seconds, 1), "seconds_are_estimated": total.is_estimate}
    show({"scale": scale, "experiments": result, "all": summed}, as_json, lines)


@app.command(
    "run",
    epilog=examples(
        "trellis lab run all --scale smoke",
        "trellis lab run spidercast-fig12 --scale paper",
        "trellis lab run all --scale paper --kept",
    ),
)
def run(
    ids: Ids,
    output: Folder = FOLDER,
    scale: Scale = "smoke",
    seeds: Annotated[
        int | None, typer.Option(help="Seeds 1 to N; as the rules ask unless given.", metavar="N", show_default=False)
    ] = None,
    data: Data = None,
    only: Annotated[
        bool, typer.Option("--only", help="Sum up these entries alone, not others that share rows with them.")
    ] = False,
    kept: Annotated[
        bool, typer.Option("--kept", help="Take rows that are kept in results/, instead of running them again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
    master: Master = None,
    conf: Conf = None,
    driver_memory: DriverMemory = None,
    log_level: LogLevel = "off",
    as_json: AsJson = False,
) -> None:
    """Run experiments as rows of a grid on Spark. Rows that are in the folder of results are not run again.

    Rows that are kept in results/ are run again, so that numbers can be checked. With --kept they are taken from there.
    The case, the seed and the version of the measure must be the same.

    Exits 1 when a row failed; the next run tries it again. On a cluster all machines must see the folder of results.

    Ctrl-C and SIGTERM end a run within seconds. Rows under way are lost, and the same command goes on with the others.
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
    there = len(rows) - len(missing)
    taken = _taken(missing, store, dry_run) if kept else []
    missing = [row for row in missing if row not in taken]
    idle = [one for one in experiments if not one.can_run or scale not in one.scales]
    expected = _times(output).expected(missing)
    plan: dict[str, Any] = {
        "experiments": len(experiments),
        "not run": len(idle),
        "rows": len(rows),
        "rows there already": there,
        **({"rows taken from results/": len(taken)} if kept else {}),
        "processor time, missing rows": str(expected),
    }
    if dry_run or not missing:
        words = {} if dry_run else _verdicts(output, rows, experiments, scale, at_hand, only)
        told = {**plan, "seconds_expected": round(expected.seconds, 1), "folder": str(output), "verdicts": words}
        show(told, as_json, [f"{output}: scale {scale}", *table(plan.items()), *_summed_up(words)])
        return
    announced = f"{len(missing):,} rows, {expected} of processor time; {EXPLAINED}"
    summary = _on_spark(announced, rows, store, at_hand, master, settings_of(conf), driver_memory, log_level)
    words = _verdicts(output, rows, experiments, scale, at_hand, only)
    plan |= {"rows run": summary.done, "rows failed": len(summary.failed), "seconds": summary.seconds}
    for row, error in summary.failed[:20]:
        note(f"failed: {row.case.measure} {row.case.system} {dict(row.case.parameters)} seed {row.seed}: {error}")
    failed = [{"key": row.key, "experiments": list(row.experiments), "error": error} for row, error in summary.failed]
    text = [f"{output}: scale {scale}", *table(plan.items()), *_summed_up(words)]
    text.append(f"Next: trellis lab report --scale {scale} -o {output}")
    show({**plan, "folder": str(output), "failures": failed, "verdicts": words}, as_json, text)
    if summary.failed:
        raise typer.Exit(1)


@app.command(
    "report",
    epilog=examples("trellis lab report", "trellis lab report vitis-fig4a vitis-fig5", "trellis lab report -o results"),
)
def report(
    ids: OptionalIds = None,
    output: Folder = FOLDER,
    scale: Annotated[
        str | None,
        typer.Option(
            help="As for run; smoke unless given, for kept rows paper.",
            metavar="SCALE",
            show_default=False,
            autocompletion=among(SCALES),
        ),
    ] = None,
    data: Data = None,
    to: Annotated[
        Path | None,
        typer.Option(help="Folder of the report; trellis-lab/report-SCALE unless given.", metavar="DIR"),
    ] = None,
    png: Annotated[bool, typer.Option("--png", help="Write every figure as .png too, beside its .svg.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make one self-contained HTML page of what was run, figures as files, and a summary table as Markdown.

    DIR of -o is a folder of `trellis lab run`, or one of kept rows (results).
    """
    from trellis.lab.catalogue import chosen
    from trellis.lab.kept import Kept
    from trellis.lab.report import results_in, write_report

    results = results_in(output)
    is_kept = isinstance(results, Kept)
    size = _scale(scale or ("paper" if is_kept else "smoke"))
    folder = to or (FOLDER if is_kept else output) / f"report-{size}"
    at_hand = _at_hand_for(results, data, output)
    with progress("figures") as tell:
        made = write_report(
            chosen(ids or ["all"]), output, size, at_hand, folder, png=png, progress=lambda d, t: tell(d, t)
        )
    said = [text] if (text := made.not_run.sentence(size)) else []
    result = {"page": str(made.page), "scale": size, "verdicts": made.words, "not_run": made.not_run.total}
    show(result, as_json, [f"{made.page}: scale {size}", *table(made.words.items()), *said])


@app.command("keep", epilog=examples("trellis lab keep", "trellis lab keep -o trellis-lab --to results --scale beyond"))
def keep(
    output: Folder = FOLDER,
    scale: Scale = "paper",
    to: Annotated[Path, typer.Option(help="Folder of kept rows.", metavar="DIR")] = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Take rows of a scale into results/: text files that are small enough to be committed.

    Only rows whose sources were committed are taken. Rows of an old version of their measure are dropped.
    """
    from trellis.lab.kept import keep as keep_rows
    from trellis.lab.store import Store

    done = keep_rows(Store(output), to, (_scale(scale),))
    told = {
        "new rows": done.new,
        "rows replaced": done.replaced,
        "rows unchanged": done.unchanged,
        "rows dropped": done.dropped,
        "failed, not taken": done.failed,
        "made by uncommitted sources, not taken": done.uncommitted,
    }
    text = [f"{to}: scale {scale}", *table(told.items()), "Next: trellis lab pages"]
    show({**told, "folder": str(to)}, as_json, text)


@app.command("pages", epilog=examples("trellis lab pages", "trellis lab pages -o results --to docs/results"))
def pages(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder of kept rows.", metavar="DIR")] = RESULTS,
    to: Annotated[Path, typer.Option(help="Folder of the pages.", metavar="DIR")] = PAGES,
    as_json: AsJson = False,
) -> None:
    """Write the pages and plots of all kept rows: docs/results/PAPER.md."""
    from trellis.lab.catalogue import catalogue
    from trellis.lab.pages import write_pages

    with progress("figures") as tell:
        made = write_pages(output, to, list(catalogue().values()), lambda d, t: tell(d, t))
    result = {"folder": str(to), "pages": made.pages, "figures_drawn": made.drawn, "verdicts": made.words}
    show(result, as_json, [f"{to}: {made.pages} pages, {made.drawn} figures drawn", *table(made.words.items())])


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


def _verdicts(output: Path, rows: Any, experiments: Any, scale: str, at_hand: Any, only: bool) -> dict[str, int]:
    """Count the verdicts of the entries that were run; without `only` also of others whose rows are all there now."""
    from trellis.lab.catalogue import catalogue
    from trellis.lab.report import judged_all, results_in
    from trellis.lab.verdict import WORDS

    asked = {one.id for one in experiments}
    found = judged_all(list(catalogue().values()), results_in(output), scale, at_hand)
    keys = {row.key for row in rows}
    shared = {one.experiment.id for one in found if one.row_seconds.keys() & keys and one.verdict.word != "incomplete"}
    words = [one.verdict.word for one in found if one.experiment.id in (asked if only else asked | shared)]
    return {word: words.count(word) for word in WORDS if word in words}


def _summed_up(words: dict[str, int]) -> list[str]:
    return ["verdicts: " + ", ".join(f"{count} {word}" for word, count in words.items())] if words else []


def _taken(missing: list[Row], store: Store, dry_run: bool) -> list[Row]:
    """Put the missing rows that are kept in results/ into the folder of results, and return them."""
    from trellis.lab.kept import Kept
    from trellis.lab.times import kept_folder

    if (folder := kept_folder()) is None:
        raise InputError("--kept", "there is no folder results/ with kept rows", "run it in a checkout of Trellis")
    kept = Kept(folder)
    if dry_run:
        return [row for row in missing if row.key in kept.lines]
    with store.locked():
        return kept.take_into(store, missing)


def _times(output: Path) -> Any:
    """Times of rows that are kept, and of those in the folder of results."""
    from trellis.lab.report import results_in
    from trellis.lab.times import Times, kept_folder

    folders = [folder for folder in (kept_folder(), output) if folder is not None]
    found = [results for folder in folders if (results := results_in(folder)) is not None]
    return Times(outcome for results in found for outcome in results.outcomes() if outcome.error is None)


def _on_spark(
    announced: str,
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
    from trellis.pipeline.failures import interruptible
    from trellis.pipeline.session import open_session

    def work(spark: SparkSession) -> Summary:
        prepare(spark, rows, at_hand, store.inputs)
        return run_rows(spark, rows, store, commit=commit_here(), progress=told, cost=_times(store.folder).of)

    said = monotonic()

    def told(now: Progress) -> None:
        nonlocal said
        tell(now.done + now.failed, now.total, _under_way(now))
        if not sys.stderr.isatty() and monotonic() - said >= SAY_EVERY_S:
            said = monotonic()
            note(f"{now.done + now.failed:,} of {now.total:,} rows; {_under_way(now)}")

    note(announced)
    os.environ.update(ONE_THREAD)  # what the workers of local[...] inherit
    settings = {"spark.sql.shuffle.partitions": "8", **one_thread(), **settings}
    with store.locked(), _says_what_is_kept(rows, store), progress("starting Spark", is_timed=False) as tell:
        tell(0, len(rows))
        with open_session(
            master, conf=settings, driver_memory=memory, log_level=log_level, name="trellis lab"
        ) as spark:
            tell(0, len(rows), "raw traces through the pipeline")
            return interruptible(lambda: work(spark))


def _under_way(now: Progress) -> str:
    """Say how many rows are running, for which entries, and how long all will still take."""
    listed = ", ".join(now.entries[:ENTRIES_SHOWN])
    more = f" and {len(now.entries) - ENTRIES_SHOWN} more" if len(now.entries) > ENTRIES_SHOWN else ""
    entries = f" ({listed}{more})" if listed else ""
    left = "" if now.seconds_left is None else f", about {_minutes(now.seconds_left)} left"
    failed = f", {now.failed} failed" if now.failed else ""
    return f"{now.running} running{entries}{failed}{left}"


@contextmanager
def _says_what_is_kept(rows: Any, store: Any) -> Iterator[None]:
    """Say after Ctrl-C or SIGTERM how much is done: the answer to whether it was all in vain."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        done = sum(store.is_done(row) for row in rows)
        kept = f"{done:,} of {len(rows):,} rows are kept in {store.folder}"
        note(f"{kept}; the same command goes on with the other {len(rows) - done:,}")
        raise


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _scale(scale: str) -> str:
    from trellis.lab.experiment import SCALES

    if scale not in SCALES:
        raise InputError(f"--scale {scale}", "there is no such scale", f"choose from {', '.join(SCALES)}")
    return scale


def _at_hand_for(results: Any, data: Path | None, output: Path) -> Any:
    """Kept rows say themselves which raw traces they were made of."""
    from trellis.lab.kept import Kept

    return results.at_hand if isinstance(results, Kept) else _at_hand(data, output)


def _at_hand(data: Path | None, results: Path | None = None) -> Any:
    """`results`: whoever only judges them needs no raw traces any more."""
    from trellis.lab.inputs import AtHand

    return AtHand.find(data, None if results is None else results / "inputs")
