"""`trellis simulate mesh --check`: whole nodes and real clients under faults, judged by the clients' histories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trellis.cli.common import AsJson, examples, progress, show
from trellis.cli.ending import telling_what_is_left
from trellis.errors import InputError

EXAMPLE = examples(
    "trellis simulate mesh --check --seeds 100 --jobs 2",
    "trellis simulate mesh --check --seeds 1 --seed 200 -o failing; trellis judge failing/seed-200/history.jsonl",
    "trellis simulate mesh --check --seeds 5000 --campaign campaign  # goes on where it stopped",
)
_SEEDS_MAX = 1_000_000
DOC = "Whole nodes with real clients: shell, sockets, MQTT and limits in a simulated network."


def mesh(
    check: Annotated[bool, typer.Option("--check", help="Draw a mesh, limits and faults for each seed.")] = False,
    seeds: Annotated[int, typer.Option(help="How many, from --seed on.", metavar="N", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="The first seed. A seed gives the same run on any machine.")] = 1,
    jobs: Annotated[int, typer.Option(help="Processes.", metavar="N", min=1)] = 1,
    nodes_max: Annotated[int, typer.Option(help="Nodes of the largest mesh that is drawn.", metavar="N", min=1)] = 5,
    clients: Annotated[int, typer.Option(help="Clients of each mesh.", metavar="N", min=1)] = 8,
    span: Annotated[float, typer.Option(help="Virtual seconds under faults.", metavar="S", min=1)] = 30.0,
    failures_max: Annotated[
        int | None, typer.Option(help="Stop after so many failing seeds.", metavar="N", min=1, show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for what failing seeds leave.", metavar="DIR", show_default=False),
    ] = None,
    campaign: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a campaign: it goes on there until --seeds are done in all, and varies what was rare.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(help="A corpus.json that a new campaign begins with.", metavar="FILE", show_default=False),
    ] = None,
    case: Annotated[
        Path | None,
        typer.Option(help="Run one case again that a campaign has left.", metavar="FILE", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that whole nodes keep their promises to clients, seed by seed.

    Exits 0 when every seed holds. Exits 1 when one fails, when nothing was published, or when 20 seeds or more together
    owe no delivery. A failure prints the command that replays it.
    """
    from trellis.simulate.mesh.campaign import Campaign, open_folder
    from trellis.simulate.mesh.checked import check_case
    from trellis.simulate.mesh.corpus import read_case, read_corpus
    from trellis.simulate.mesh.draw import MeshPlan
    from trellis.simulate.mesh.seeds import check_mesh
    from trellis.simulate.ranges import Range

    for option, given, most in (
        ("--seeds", seeds, _SEEDS_MAX),
        ("--jobs", jobs, 256),
        ("--nodes-max", nodes_max, 1_000),
        ("--clients", clients, 10_000),
        ("--span", span, 1_000_000),
        ("--failures-max", failures_max, _SEEDS_MAX),
    ):
        if given is not None:
            Range(1, most).require(given, option)
    if not check:
        raise InputError("", "a mesh of whole nodes is only checked", "give --check; for a live mesh see trellis up")
    if campaign is not None and (output is not None or case is not None):
        raise InputError("--campaign", "has a folder and cases of its own", "leave out -o and --case")
    if corpus is not None and campaign is None:
        raise InputError("--corpus", "only a campaign begins with a corpus", "give --campaign DIR")
    words = ["trellis", "simulate", "mesh", "--check"]
    for option, value, default in (("--nodes-max", nodes_max, 5), ("--clients", clients, 8), ("--span", span, 30.0)):
        words += [option, f"{value:g}"] if value != default else []
    plan = MeshPlan(nodes_max=nodes_max, clients=clients, span_s=span)
    finished, where = 0, campaign or output

    def left() -> str:
        kept = "nothing was written" if where is None else f"{where} has what they left"
        return f"{finished:,} of {seeds:,} seeds were checked, and {kept}"

    with telling_what_is_left(left), progress("mesh seeds") as report:

        def told(done: int, total: int, failed: int) -> None:
            nonlocal finished
            finished = done
            report(done, total, f"mesh seeds, {failed} failed")

        if campaign is not None:
            known = read_corpus(corpus) if corpus is not None else None
            for one in known or ():
                check_case(one.case, plan, f"{corpus}: case of seed {one.case.seed}")
            folder = open_folder(campaign)
            summary = Campaign.resume(folder, plan, seed, known).run(
                seeds, jobs=jobs, folder=folder, failures_max=failures_max, command=tuple(words), progress=told
            )
        else:
            summary = check_mesh(
                seeds=seeds,
                first_seed=seed,
                plan=plan,
                jobs=jobs,
                folder=output,
                failures_max=failures_max,
                command=tuple(words),
                progress=told,
                cases=None if case is None else [check_case(read_case(case), plan, str(case))],
            )
    show(summary.to_json(), as_json, summary.lines())
    raise typer.Exit(0 if summary.holds else 1)


def command() -> Any:
    """Return the command for `trellis simulate`."""
    made = typer.Typer(add_completion=False)
    made.command("mesh", epilog=EXAMPLE, help=f"{DOC}\n\n{mesh.__doc__}")(mesh)
    return typer.main.get_command(made)
