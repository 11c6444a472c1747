"""`trellis judge HISTORY`: check whether a mesh has kept its promises to the clients of a history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trellis.cli.common import AsJson, examples, show, table

if TYPE_CHECKING:
    from trellis.judge import Verdict

EXAMPLE = examples(
    "trellis up --nodes 6 --duration 60 --history run.jsonl; trellis judge run.jsonl",
    "trellis judge run.jsonl --copies 3 --settle-s 40 --json",
    "trellis judge run.jsonl --may-refuse quota --may-refuse 'no room'",
)


def judge(
    history: Annotated[Path, typer.Argument(metavar="HISTORY", help="JSON lines, as `trellis up --history` writes.")],
    copies: Annotated[int, typer.Option(help="Nodes that hold an acknowledged message.", min=1)] = 2,
    window_s: Annotated[float, typer.Option(help="Seconds of a cut that may pass without a loss.", min=0)] = 60.0,
    settle_s: Annotated[
        float, typer.Option(help="Seconds after the last fault until everything must flow again.", min=0)
    ] = 25.0,
    grace_s: Annotated[
        float, typer.Option(help="Seconds from an acknowledgement to the last subscriber, without faults.", min=0)
    ] = 5.0,
    depth: Annotated[int, typer.Option(help="Levels of an MQTT topic that nodes share (`mqtt.depth`).", min=1)] = 2,
    durable: Annotated[
        bool,
        typer.Option(
            "--durable", help="All nodes have stores: crashes and restarts excuse nothing.  [docs/durable.md]"
        ),
    ] = False,
    may_refuse: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge refusals, too: in calm, only those whose reason holds these words are right. Repeatable.",
            metavar="WORDS",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Judge a history: messages lost, delivered twice, out of order or unasked, or acknowledged with too few copies.

    The judge knows only what docs/delivery.md and docs/mqtt.md promise. Exits 0 if every promise was kept, 1 if one was
    broken or if no delivery was owed, 2 if the history cannot be read.
    """
    from trellis.judge import Promise, read_history
    from trellis.judge import judge as judge_history

    promise = Promise(
        copies=copies,
        depth=depth,
        window_s=window_s,
        settle_s=settle_s,
        grace_s=grace_s,
        durable=durable,
        may_refuse=tuple(may_refuse) if may_refuse else None,
    )
    verdict = judge_history(read_history(history), promise)
    show(verdict.to_json(), as_json, _text(verdict))
    raise typer.Exit(0 if verdict.holds and verdict.counts.owed else 1)


def _text(verdict: Verdict) -> Iterator[str]:
    yield from table(verdict.rows())
    yield from verdict.lines()
