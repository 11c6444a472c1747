"""`trellis replan`: bring an existing overlay near a plan by few changes of links, printed or carried out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import trellis
from trellis.cli.common import OUTPUT, AsJson, Seed, examples, note, number, progress, says_compiling, show, table
from trellis.cli.reading import Reading, reads_interests
from trellis.errors import InputError

if TYPE_CHECKING:
    from trellis.live.relink import Applied, Fleet
    from trellis.model import Interests, Overlay
    from trellis.plan.replan import Change, Replan

EXAMPLE = examples(
    "trellis replan interests.parquet overlay.parquet -o changes.csv",
    "trellis replan interests.parquet overlay.parquet --connectivity 2",
    "trellis replan interests.parquet overlay.parquet --target plan.parquet",
    "trellis replan events.jsonl overlay.parquet -o changes.csv",
    "trellis replan --live 127.0.0.1:9001 127.0.0.1:9002 127.0.0.1:9003",
    "trellis replan --live 127.0.0.1:9001 127.0.0.1:9002 127.0.0.1:9003 --apply --token admin.token",
)
_LIVE = "A mesh that runs"
_SHOWN = 20  # changes in the text; --json and -o have all


@reads_interests
def replan(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="INTERESTS OVERLAY | HOST:PORT...",
            help="Table of node, topic, or telemetry, and table of u, v; with --live the admin ports of all nodes.",
            show_default=False,
        ),
    ],
    *,
    reading: Reading,
    live: Annotated[
        bool, typer.Option("--live", help="Read a mesh that runs, at its admin ports.", rich_help_panel=_LIVE)
    ] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Carry the changes out, one at a time. Needs --token.", rich_help_panel=_LIVE),
    ] = False,
    token: Annotated[
        Path | None,
        typer.Option(
            help="The file that the nodes have as admin_token.",
            metavar="FILE",
            show_default=False,
            rich_help_panel=_LIVE,
        ),
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", help="TLS: who signs.", metavar="FILE", rich_help_panel=_LIVE)
    ] = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", help="TLS: a certificate.", metavar="FILE", rich_help_panel=_LIVE)
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="TLS: its key.", metavar="FILE", rich_help_panel=_LIVE)
    ] = None,
    target_file: Annotated[
        Path | None,
        typer.Option(
            "--target", help="Lead to this overlay instead: table of u, v.", metavar="OVERLAY", show_default=False
        ),
    ] = None,
    within: Annotated[
        float, typer.Option(help="Links may be so many times those of LowODA's plan. More: fewer changes.")
    ] = 1.05,
    connectivity: Annotated[
        int, typer.Option(help="2: no loss of a single node splits a topic afterwards.", metavar="1|2")
    ] = 1,
    output: Annotated[Path | None, OUTPUT] = None,
    overlay_out: Annotated[
        Path | None,
        typer.Option(help="Write the overlay after all changes as well.", metavar="FILE", show_default=False),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Bring an existing overlay near a plan, by few changes of single links that never split a topic.

    Prints the changes, new links first; -o writes them as a table of do, u, v. INTERESTS may be telemetry of nodes (a
    file, or a folder of files), or the output of trellis pipeline watch. Then links of departed nodes are removed. With
    --live the interests and links of a mesh that runs are read at its admin ports, and --apply carries the changes out
    there. A node refuses to drop a link that a topic needs. When a node leaves, restarts or does not answer, it stops;
    run it again later. Exits 1 if --apply could not carry out all changes.
    """
    from trellis.model import expect_format

    for path in (output, overlay_out):
        if path is not None:
            expect_format(path)
    _expect(live, apply, token, sources)
    chosen = {"within": within, "connectivity": connectivity, "seed": seed, "target": target_file}
    if not live:
        interests, present, departed = _read(reading, Path(sources[0]), Path(sources[1]))
        made = _planned(interests, present, chosen)
        _write(made, departed, output, overlay_out)
        show(_json(made, departed), as_json, _text(made, departed))
        return
    from trellis.live.run import run_loop

    made, applied, links = run_loop(_live(sources, (ca, cert, key), token if apply else None, chosen))
    _write(made, [], output, overlay_out)
    result = _json(made, [])
    if applied is not None:
        result["applied"] = _applied_json(applied, links)
    show(result, as_json, [*_text(made, []), *([] if applied is None else _applied_text(applied, links))])
    if applied is not None and (applied.refused or applied.left or applied.stopped):
        raise typer.Exit(1)


def _expect(live: bool, apply: bool, token: Path | None, sources: list[str]) -> None:
    from trellis.live.addresses import parse_address

    if apply and not live:
        raise InputError("--apply", "files cannot be changed", "name admin ports of nodes that run, with --live")
    if apply and token is None:
        raise InputError("--apply", "no secret is given", "name the file that the nodes have as admin_token: --token")
    if live:
        for one in sources:
            parse_address(one, "--live")
    elif len(sources) != 2:
        raise InputError("", f"{len(sources)} files are named", "give INTERESTS and OVERLAY, or --live and ports")


def _read(reading: Reading, source: Path, overlay: Path) -> tuple[Interests, Overlay, list[Change]]:
    """Return the interests, the present links between their nodes, and the removal of links of departed nodes.

    A table of interests has all nodes, so there a link of another node is a mistake and is refused.
    """
    from trellis.model.folders import manifest_in
    from trellis.model.in_force import interests_in_force
    from trellis.model.telemetry import telemetry_files
    from trellis.plan.replan import without_departed

    watched = source / "interests"
    if telemetry_files(source):
        interests, events = interests_in_force(source)
        note(f"{source}: {number(interests.subscriptions)} subscriptions are in force after {number(events)} events")
    elif (manifest_in(watched) or {}).get("job") == "watch":
        interests = reading.interests(watched)
    else:
        interests = reading.interests(source)
        return interests, trellis.read_overlay(overlay, interests.nodes), []
    present, departed = without_departed(interests, trellis.read_overlay(overlay))
    return interests, present, departed


def _planned(interests: Interests, present: Overlay, chosen: dict[str, Any]) -> Replan:
    from trellis.plan.replan import replan as make

    given = chosen["target"]
    target = None if given is None else trellis.read_overlay(given, interests.nodes)
    with says_compiling(), progress("choosing links") as report:
        return make(interests, present, **{**chosen, "target": target}, progress=report)


async def _live(
    addresses: list[str], tls: tuple[Path | None, ...], token: Path | None, chosen: dict[str, Any]
) -> tuple[Replan, Applied | None, int]:
    """Return the plan, the outcome of carrying it out, and the present number of links."""
    from trellis.cli.live import tls_context
    from trellis.live.link_requests import read_admin_token
    from trellis.live.relink import Fleet

    secret = read_admin_token(str(token), "--token") if token is not None else ""
    async with Fleet(addresses, tls_context(*tls), secret) as fleet:
        await fleet.look()
        interests, present = read_fleet(fleet)
        made = _planned(interests, present, chosen)
        if token is None:
            return made, None, len(present)
        with progress("changing links") as report:
            applied = await fleet.apply([(one.do, one.u, one.v) for one in made.changes()], report)
        return made, applied, len(fleet.links)


def read_fleet(fleet: Fleet) -> tuple[Interests, Overlay]:
    """Return the interests and the overlay of a mesh as its nodes have told them."""
    from trellis.model import Interests, Overlay

    wanted = {name: list(topics) for name, topics in sorted(fleet.topics.items()) if topics}
    if not wanted:
        raise InputError("", "no node takes part in a topic", "subscribe first")
    interests = Interests.from_pairs(wanted)
    links = [pair for pair in sorted(fleet.links) if set(pair) <= wanted.keys()]
    return interests, Overlay.from_pairs(interests.nodes, links)


def _write(made: Replan, departed: list[Change], output: Path | None, overlay_out: Path | None) -> None:
    from trellis.plan.replan import changes_table

    if output is not None:
        trellis.write_table(changes_table([*made.changes(), *departed]), output)
    if overlay_out is not None:
        trellis.write_table(made.target.to_table(), overlay_out)


def _json(made: Replan, departed: list[Change]) -> dict[str, Any]:
    return {
        "nodes": len(made.present.nodes),
        "links": len(made.present) + len(departed),
        "links_after": len(made.target),
        "links_plan": made.plan_links,
        "degree_max": int(made.present.degrees.max(initial=0)),
        "degree_max_after": int(made.target.degrees.max(initial=0)),
        "links_of_departed_nodes": len(departed),
        "changes": [{"do": one.do, "u": one.u, "v": one.v} for one in (*made.changes(), *departed)],
    }


def _text(made: Replan, departed: list[Change]) -> Iterator[str]:
    adds, removes = len(made.add_u), len(made.remove_u) + len(departed)
    if not adds + removes:
        yield "nothing to change: the overlay is near a plan already"
    else:
        yield f"{adds + removes:,} changes: {adds:,} links to add, then {removes:,} to remove"
    after = len(made.target)
    times = f" ({number(after / made.plan_links)} times LowODA's {made.plan_links:,})" if made.plan_links else ""
    before, behind = made.present.degrees, made.target.degrees
    rows: list[tuple[str, object]] = [
        ("nodes", len(made.present.nodes)),
        ("links", f"{len(made.present) + len(departed):,}, then {after:,}{times}"),
        ("degree", f"max {before.max(initial=0)}, then {behind.max(initial=0)}"),
    ]
    if departed:
        rows.append(("links of nodes without subscriptions", len(departed)))
    yield from table(rows)
    for index, one in enumerate((*made.changes(), *departed)):
        if index == _SHOWN:
            yield f"and {adds + removes - _SHOWN:,} more: see --json, or write them with -o"
            return
        yield f"{one.do:<6} {one.u} - {one.v}"


def _applied_json(applied: Applied, links: int) -> dict[str, Any]:
    return {
        "done": [list(one) for one in applied.done],
        "refused": [{"change": list(one), "why": why} for one, why in applied.refused],
        "left": [list(one) for one in applied.left],
        "stopped": applied.stopped,
        "links_now": links,
    }


def _applied_text(applied: Applied, links: int) -> Iterator[str]:
    refused, left = len(applied.refused), len(applied.left)
    yield f"carried out {len(applied.done):,} changes; the mesh has {links:,} links now"
    if refused:
        yield f"refused: {refused:,}"
        for (do, u, v), why in applied.refused[:_SHOWN]:
            yield f"  {do} {u} - {v}: {why}"
    if applied.stopped:
        yield f"stopped: {applied.stopped}"
    if left:
        yield f"not done: {left:,} changes; run the command again, it plans again for the mesh as it is then"
