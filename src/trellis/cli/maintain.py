"""`trellis maintain INTERESTS [OVERLAY] --churn CHURN`: keep an overlay whole, event by event."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any

import typer

import trellis
from trellis.cli.common import (
    AsJson,
    InterestsFile,
    Output,
    Plot,
    Seed,
    examples,
    note,
    number,
    progress,
    says_compiling,
    show,
    table,
)
from trellis.cli.reading import Reading, reads_interests
from trellis.cli.values import among
from trellis.plan.maintain_config import ALGORITHMS, BACKUPS, COMPONENTS, MaintainConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from trellis.plan.maintain import Maintenance

EXAMPLE = examples(
    "trellis maintain interests.parquet --churn churn.parquet --algorithm shadows --lambda 3 -o history.parquet",
    "trellis maintain interests.parquet overlay.parquet --churn churn.parquet --check-every 50 -o history.tsv",
)


@reads_interests
def maintain(
    interests_file: InterestsFile,
    churn_file: Annotated[Path, typer.Option("--churn", help="Table of time, node, event, topic.", metavar="CHURN")],
    output: Output,
    overlay_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OVERLAY]", help="The overlay to start from; LowODA's unless given.", show_default=False
        ),
    ] = None,
    *,
    reading: Reading,
    algorithm: Annotated[
        str, typer.Option(help=f"{', '.join(ALGORITHMS)}.", metavar="NAME", autocompletion=among(ALGORITHMS))
    ] = "shadows",
    backups: Annotated[
        str,
        typer.Option(
            help=f"How backups are chosen: {', '.join(BACKUPS)}.", metavar="NAME", autocompletion=among(BACKUPS)
        ),
    ] = ("primal-dual"),
    components: Annotated[
        str,
        typer.Option(
            help=f"Connected where: {', '.join(COMPONENTS)}.", metavar="NAME", autocompletion=among(COMPONENTS)
        ),
    ] = ("overlay"),
    coverage_factor: Annotated[
        int, typer.Option("--lambda", help="Backups for each topic of a node; more give better links.", metavar="N")
    ] = 3,
    rho: Annotated[float, typer.Option(help="LowODA's parameter.")] = 3.0,
    check_every: Annotated[int, typer.Option(help="Check every topic each N rounds.", metavar="N")] = 0,
    overlay_out: Annotated[
        Path | None, typer.Option(help="Write the overlay at the end.", metavar="FILE", show_default=False)
    ] = None,
    interests_out: Annotated[
        Path | None,
        typer.Option(help="Write the interests of who is there at the end.", metavar="FILE", show_default=False),
    ] = None,
    plot: Plot = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Replay a churn trace and repair the overlay after every event. Each round gives one row of history.

    Ctrl-C stops between two rounds: the history so far is written and marked partial. At the end the overlay is
    checked: exits 0 if every topic is connected, and 1 if not.
    """
    how: dict[str, Any] = {
        "algorithm": algorithm,
        "rho": rho,
        "coverage_factor": coverage_factor,
        "backups": backups,
        "components": components,
        "check_every": check_every,
        "seed": seed,
    }
    MaintainConfig(**how)  # Bad options are refused before anything is read.
    from trellis.model import expect_format
    from trellis.plan.draw import draw_history

    for path in (output, overlay_out, interests_out):
        if path is not None:
            expect_format(path)
    interests = reading.interests(interests_file)
    trace = trellis.read_churn(churn_file, interests)
    overlay = None if overlay_file is None else trellis.read_overlay(overlay_file, interests.nodes)
    _compile(how)
    with _stop_on_interrupt() as stopped, progress(f"{algorithm} rounds") as report:
        run = trellis.maintain(interests, trace, overlay, **how, progress=report, should_stop=stopped)
    trellis.write_table(_marked(run), output)
    if overlay_out is not None:
        trellis.write_table(run.overlay().to_table(), overlay_out)
    if interests_out is not None:
        trellis.write_table(run.interests().to_table(), interests_out)
    if plot is not None:
        draw_history(run.history, plot)
    result = _summary(run, output)
    show(result, as_json, _text(result))
    if not run.history.complete:
        note(
            f"stopped after {len(run.history):,} of {run.history.rounds_expected:,} rounds: {output} is marked partial"
        )
        raise typer.Exit(130)
    raise typer.Exit(0 if result["split_topics"] == 0 else 1)


def _compile(how: dict[str, Any]) -> None:
    """Run everything once on four nodes, so that the kernels are compiled or loaded. Say so if they are compiled."""
    few = trellis.Interests.from_pairs({"a": ["x", "y"], "b": ["x"], "c": ["x", "y"], "d": ["y"]})
    rows = [
        (1.0, "a", "leave", None),
        (2.0, "b", "subscribe", "y"),
        (3.0, "a", "join", None),
        (4.0, "c", "crash", None),
    ]
    with says_compiling():
        trellis.maintain(few, trellis.ChurnTrace.from_rows(rows), **how)


@contextmanager
def _stop_on_interrupt() -> Iterator[Any]:
    """Let Ctrl-C and SIGTERM stop the work between two rounds. A second signal stops it at once."""
    asked = False

    def ask(signum: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = {kind: signal.signal(kind, ask) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _marked(run: Maintenance) -> pa.Table:
    """Return the history with a column that says, in every format, whether the run was complete."""
    import pyarrow as pa

    history = run.history.to_table()
    mark = "complete" if run.history.complete else "partial"
    return history.append_column("run", pa.array([mark] * history.num_rows, pa.string()))


def _summary(run: Maintenance, output: Path) -> dict[str, Any]:
    rounds = list(run.history)

    def of(events: tuple[str, ...]) -> dict[str, Any] | None:
        some = [round_ for round_ in rounds if round_.event in events]
        if not some:
            return None
        return {
            "rounds": len(some),
            "links_changed_mean": fmean(round_.links_added + round_.links_removed for round_ in some),
            "shadow_set_mean": fmean(round_.shadow_set for round_ in some),
            "step2_ms_median": 1000 * median(round_.seconds_step2 for round_ in some),
            "step2_ms_mean": 1000 * fmean(round_.seconds_step2 for round_ in some),
        }

    return {
        "algorithm": run.config.algorithm,
        "complete": run.history.complete,
        "rounds": len(rounds),
        "nodes": run.current.nodes,
        "links": run.current.links,
        "degree_max": run.current.degree_max,
        "degree_mean": run.current.degree_mean,
        "joins": of(("join",)),
        "leaves": of(("leave", "crash")),
        "changes": of(("subscribe", "unsubscribe")),
        "split_topics": run.split_topics(),
        "file": str(output),
    }


def _text(result: dict[str, Any]) -> Iterator[str]:
    split = result["split_topics"]
    yield f"{result['file']}: {result['rounds']:,} rounds of {result['algorithm']}" + (
        ", and still a topic-connected overlay" if split == 0 else f", but {split:,} topics are split"
    )
    rows: list[tuple[str, object]] = [
        ("nodes, links", f"{result['nodes']:,}, {result['links']:,}"),
        ("degree", f"max {result['degree_max']}, mean {number(result['degree_mean'])}"),
    ]
    rows += [(name, _repairs(result[name])) for name in ("joins", "leaves", "changes") if result[name] is not None]
    yield from table(rows)


def _repairs(some: dict[str, Any]) -> str:
    return (
        f"{some['rounds']:,}; {number(some['links_changed_mean'])} links changed on average, "
        f"repair {number(some['step2_ms_mean'])} ms, shadow set {number(some['shadow_set_mean'])} nodes"
    )
