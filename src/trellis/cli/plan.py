"""`trellis plan INTERESTS`: plan a topic-connected overlay with few links, or ask what a loss would do to it."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

import trellis
from trellis.cli.common import (
    OUTPUT,
    AsJson,
    InterestsFile,
    Plot,
    Seed,
    bytes_allowed,
    examples,
    number,
    progress,
    says_compiling,
    show,
    table,
)
from trellis.cli.limits import (
    CapsFile,
    CostDefault,
    CostsFile,
    LimitFiles,
    RegionsFile,
    excess_json,
    excess_text,
    hops_json,
    hops_rows,
    unmet_text,
)
from trellis.cli.reading import Reading, reads_interests
from trellis.cli.values import CANDIDATES, PLAN_ALGORITHMS, among
from trellis.errors import InputError
from trellis.files import removed_on_failure, written_whole

if TYPE_CHECKING:
    from trellis.model import Interests, Overlay
    from trellis.plan.construction import Construction
    from trellis.plan.whatif import LeaveAnswer, Loss

EXAMPLE = examples(
    "trellis plan interests.parquet --algorithm lowoda --rho 3 -o overlay.parquet",
    "trellis plan export.csv --columns node=client_id,topic=subscription -o overlay.csv",
    "trellis plan interests.parquet --connectivity 2 -o overlay.parquet",
    "trellis plan interests.parquet --costs costs.csv --caps caps.csv -o overlay.parquet",
    "trellis plan interests.parquet --regions regions.csv --costs region-costs.csv -o overlay.parquet",
    "trellis plan interests.parquet --hops-max 3 -o overlay.parquet",
    "trellis plan interests.parquet -o overlay.parquet --configs planned/",
    "trellis plan interests.parquet --existing overlay.parquet --what-if-leave n17 n18",
    "trellis plan interests.parquet --existing overlay.parquet --what-if-worst 5",
)
_LINKS_SHOWN = 20


@reads_interests
def plan(
    interests_file: InterestsFile,
    leaving: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE]...", help="More nodes for --what-if-leave.", show_default=False),
    ] = None,
    *,
    reading: Reading,
    output: Annotated[Path | None, OUTPUT] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="gm, minmax, lowoda; ring (or ringpt), random, star as baselines.",
            metavar="NAME",
            autocompletion=among(PLAN_ALGORITHMS),
        ),
    ] = "lowoda",
    rho: Annotated[
        float, typer.Option(help="LowODA: 1 is nearly GM (few links), inf is MinMaxODA (low maximum degree).")
    ] = 3.0,
    existing: Annotated[
        Path | None, typer.Option(help="Keep these links and add to them.", metavar="OVERLAY", show_default=False)
    ] = None,
    what_if_leave: Annotated[
        str | None, typer.Option(help="Ask what would happen if these nodes left.", metavar="NODE")
    ] = None,
    what_if_worst: Annotated[
        int | None, typer.Option(help="Name the N nodes whose loss would split most.", metavar="N")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write the overlay as .graphml too.", metavar="FILE", show_default=False)
    ] = None,
    configs: Annotated[
        Path | None,
        typer.Option(
            help="For live nodes: NODE.toml for each, its planned links, to be appended to its node.toml.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    connectivity: Annotated[
        int, typer.Option(help="2: more links, so that no loss of a single node splits a topic.", metavar="1|2")
    ] = 1,
    hops_max: Annotated[
        int | None,
        typer.Option(
            help="More links, so that no two subscribers of a topic are further apart.", metavar="H", show_default=False
        ),
    ] = None,
    candidates: Annotated[
        str,
        typer.Option(
            help="Pairs to choose links from: all; sampled, a few for each node; auto, sampled above 20,000 nodes.",
            metavar="auto|all|sampled",
            autocompletion=among(CANDIDATES),
        ),
    ] = "auto",
    sample: Annotated[
        int, typer.Option(help="Sampled: subscribers of each topic that a node looks at, at least.", metavar="N")
    ] = 64,
    keep: Annotated[
        int, typer.Option(help="Sampled: candidates that a node keeps. More: fewer links, more time.", metavar="N")
    ] = 48,
    memory: Annotated[
        str | None, typer.Option(help="Refuse above this, as 4GiB; 60% of the machine's unless given.", metavar="SIZE")
    ] = None,
    costs_file: CostsFile = None,
    regions_file: RegionsFile = None,
    cost_default: CostDefault = None,
    caps_file: CapsFile = None,
    plot: Plot = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Build a topic-connected overlay with few links, or ask what a loss of nodes would do to one.

    gm takes the fewest links, minmax the lowest maximum degree (give or take one), lowoda comes close to both. The
    overlay is checked before it is written. FILE.manifest.json beside it says what it was made from; trellis pipeline
    lineage reads it. With --what-if-..., --existing names the overlay and nothing is written.
    Exits 0 when everything asked for is met, 1 when a cap had to be exceeded, or when caps keep a topic from
    --hops-max: the overlay is written all the same.
    """
    from trellis.model import expect_format
    from trellis.pipeline.beside import now, write_beside

    asks = what_if_leave is not None or what_if_worst is not None
    if leaving and what_if_leave is None:
        raise InputError(leaving[0], "nothing is asked of this node", "put --what-if-leave before it")
    if configs is not None and asks:
        raise InputError("--configs", "with --what-if-... nothing is written", "leave one of them out")
    if output is None and not asks:
        raise InputError("", "no output file is named", "say where to write, for instance -o overlay.parquet")
    if output is not None:
        expect_format(output)
    how: dict[str, Any] = {
        "algorithm": algorithm,
        "rho": rho,
        "candidates": candidates,
        "sample": sample,
        "keep": keep,
        "connectivity": connectivity,
        "hops_max": hops_max,
        "seed": seed,
        "memory_bytes_max": bytes_allowed(memory),
    }
    files = LimitFiles(costs_file, regions_file, cost_default, caps_file)
    started = now()
    interests = reading.interests(interests_file)
    chosen = {key: value for key, value in how.items() if key != "seed"}
    how["costs"], how["caps"] = files.read(interests)
    base = None if existing is None else trellis.read_overlay(existing, interests.nodes)
    if asks:
        overlay = base if base is not None else _built(interests, None, how).overlay
        _what_if(
            interests,
            overlay,
            [what_if_leave, *(leaving or [])] if what_if_leave else [],
            what_if_worst,
            how,
            as_json,
        )
        return
    assert output is not None
    with removed_on_failure(configs) if configs is not None else nullcontext():
        if configs is not None:
            _make(configs)  # refused now, not after the work
        made = _built(interests, base, how)
        _deliver(interests, made, output, export, plot, as_json)
        write_beside(
            output,
            "plan",
            inputs=[path for path in (interests_file, existing, costs_file, regions_file, caps_file) if path],
            outputs=[path for path in (output, export) if path],
            started=started,
            parameters={**chosen, "cost_default": cost_default},
            rows={"links": len(made.overlay)},
            seed=seed,
        )
        if configs is not None:
            _write_configs(made.overlay, configs)
    if made.excess or (made.short is not None and made.short.unmet):
        raise typer.Exit(1)


def _built(interests: Interests, base: Overlay | None, how: dict[str, Any]) -> Construction:
    with says_compiling(), progress("choosing links") as report:
        return trellis.plan(interests, existing=base, progress=report, **how)


def _deliver(
    interests: Interests, made: Construction, output: Path, export: Path | None, plot: Path | None, as_json: bool
) -> None:
    from trellis.measure.bounds import links_lower_bound
    from trellis.measure.draw import draw_check
    from trellis.model.graphml import write_graphml

    with says_compiling():
        checked = trellis.check(interests, made.overlay, diameters=plot is not None, connectivity=made.connectivity)
    assert checked.is_two_connected is not False, "a node's loss splits a topic: a bug of ours, please report it"
    assert checked.is_tco, f"{made.algorithm} left {len(checked.split)} topics split: a bug of ours, please report it"
    trellis.write_table(made.overlay.to_table(), output)
    if export is not None:
        write_graphml(made.overlay, export)
    if plot is not None:
        draw_check(interests, made.overlay, checked, plot)
    bound = links_lower_bound(interests)
    links = len(made.overlay)
    result: dict[str, Any] = {
        "algorithm": made.algorithm,
        "nodes": checked.nodes,
        "topics": checked.topics,
        "links": links,
        "links_new": len(made.new_u),
        "degree_max": checked.degrees.maximum,
        "degree_mean": checked.degrees.mean,
        "links_lower_bound": bound,
        "links_over_bound": links / bound if bound else None,
        "candidates": made.candidates,
        "cost": made.cost,
        "excess": excess_json(made.excess),
        "hops": hops_json(made.short),
        "connectivity": made.connectivity,
        "kernel_seconds": made.seconds,
        "memory_peak_bytes": _peak_bytes(),
        "file": str(output),
    }
    rows: list[tuple[str, object]] = [
        ("nodes", checked.nodes),
        ("topics", checked.topics),
        ("links", f"{links:,} ({len(made.new_u):,} new)"),
        ("degree", f"max {checked.degrees.maximum}, mean {number(checked.degrees.mean)}"),
        ("no overlay has fewer links than", f"{bound:,} (ours: {number(result['links_over_bound'])} times that)"),
        ("links chosen among", _among(made)),
        ("time", f"{made.seconds:.3f} s in the kernel"),
        ("memory", f"{_size(_peak_bytes())} at the peak"),
    ]
    if made.cost is not None:
        rows.insert(3, ("cost of all links", made.cost))
    if made.short is not None:
        rows[4:4] = hops_rows(made.short, checked.degrees.maximum)
    kind = "topic-connected" if made.connectivity == 1 else "two-connected"
    lines = [
        f"{output}: a {kind} overlay by {made.algorithm}",
        *table(rows),
        *excess_text(made.excess),
        *unmet_text(made.short),
    ]
    show(result, as_json, lines)


def _among(made: Construction) -> str:
    if made.candidates is None:
        return "all pairs of nodes that share a topic"
    return f"{made.candidates:,} pairs, sampled; --candidates all may need fewer links, and takes longer"


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), error.strerror or str(error), "name a folder") from error


def _write_configs(overlay: Overlay, folder: Path) -> None:
    """[planned] of node.toml, a file for each node. Names of files are those of nodes, escaped as in an address."""
    names = list(overlay.nodes)
    neighbors: dict[str, list[str]] = {name: [] for name in names}
    for u, v in zip(overlay.u.tolist(), overlay.v.tolist(), strict=True):
        neighbors[names[u]].append(names[v])
        neighbors[names[v]].append(names[u])
    for name, peers in neighbors.items():
        listed = json.dumps(sorted(peers), ensure_ascii=False)
        with written_whole(folder / f"{quote(name, safe=' ')}.toml") as part:
            part.write_text(f"[planned]\nneighbours = {listed}\n", "utf-8")


def _what_if(
    interests: Interests,
    overlay: Overlay,
    leaving: list[str],
    worst: int | None,
    how: dict[str, Any],
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from trellis.plan.maintain_config import MaintainConfig
    from trellis.plan.whatif import what_if_leave, what_if_worst

    result: dict[str, Any] = {}
    text: list[str] = []
    if worst is not None:
        with says_compiling():
            losses = what_if_worst(interests, overlay, worst, how["costs"])
        result["worst"] = [asdict(loss) for loss in losses]
        text += _worst_text(losses)
    if leaving:
        with says_compiling():
            config = MaintainConfig(rho=how["rho"], seed=how["seed"])
            answer = what_if_leave(interests, overlay, leaving, config, how["costs"], how["caps"])
        result["leave"] = asdict(answer)
        text += _leave_text(answer)
    show(result, as_json, text)


def _worst_text(losses: tuple[Loss, ...]) -> Iterator[str]:
    if not losses:
        yield "no topic would split, whichever single node left"
        return
    has_costs = losses[0].links_cost is not None
    head = f"{'node':<20} {'topics split':>12} {'more components':>16} {'degree':>7} {'topics':>7}"
    yield head + (f" {'cost of links':>14}" if has_costs else "")
    for loss in losses:
        line = (
            f"{loss.node:<20} {loss.split_topics:>12,} {loss.extra_components:>16,} {loss.degree:>7,} "
            f"{loss.subscriptions:>7,}"
        )
        yield line + (f" {number(loss.links_cost):>14}" if has_costs else "")


def _leave_text(answer: LeaveAnswer) -> Iterator[str]:
    who = ", ".join(answer.nodes)
    if not answer.splits:
        yield f"without {who} every topic stays connected"
    else:
        yield f"without {who} {len(answer.splits):,} topics would split:"
        yield from (f"  {topic}" for topic in answer.splits[:10])
        if len(answer.splits) > 10:
            yield f"  and {len(answer.splits) - 10:,} more: see --json"
    shown = ", ".join(f"{u} - {v}" for u, v in answer.links_new[:_LINKS_SHOWN])
    more = f", and {len(answer.links_new) - _LINKS_SHOWN:,} more" if len(answer.links_new) > _LINKS_SHOWN else ""
    rows: list[tuple[str, object]] = [
        ("links lost", len(answer.links_lost)),
        ("repaired with", f"{len(answer.links_new):,} new links" + (f": {shown}{more}" if shown else "")),
        ("degree before", f"max {answer.before.maximum}, mean {number(answer.before.mean)}"),
        ("degree after", f"max {answer.after.maximum}, mean {number(answer.after.mean)}"),
    ]
    if answer.cost is not None:
        cost = answer.cost
        rows.append(("cost of all links", f"{number(cost.before)} before, {number(cost.after)} after"))
        rows.append(("of that", f"{number(cost.lost)} for links lost, {number(cost.new)} for new links"))
    yield from table(rows)
    yield from excess_text(answer.excess)


def _size(count: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
