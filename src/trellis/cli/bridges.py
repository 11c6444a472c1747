"""`trellis import mosquitto.conf...`: read existing bridges, report faults, and compare them with a plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import trellis
from trellis.cli.common import AsJson, Plot, Seed, examples, note, number, says_compiling, show, table
from trellis.errors import InputError

if TYPE_CHECKING:
    from trellis.plan.bridges import Bridges

EXAMPLE = examples(
    "trellis import brokers/*.conf --plot bridges.png",
    "trellis import north.conf south.conf --broker hub=10.0.0.7:1883 --json",
    "trellis import brokers/*.conf --interests-out interests.csv --overlay-out bridges.csv",
)
_SHOWN = 10


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="mosquitto.conf of each broker: north.conf or north/mosquitto.conf is that of north.",
        ),
    ],
    broker: Annotated[
        list[str] | None,
        typer.Option(
            "--broker",
            help="Which broker an address is, where its host does not name one. May be given again.",
            metavar="NAME=HOST[:PORT]",
            show_default=False,
        ),
    ] = None,
    interests_out: Annotated[
        Path | None,
        typer.Option(help="Write brokers and their topics, for trellis plan.", metavar="FILE", show_default=False),
    ] = None,
    overlay_out: Annotated[
        Path | None,
        typer.Option(help="Write the bridged pairs, for trellis check.", metavar="FILE", show_default=False),
    ] = None,
    plot: Plot = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Read the bridges of Mosquitto brokers, report what is wrong with them, and compare them with a plan.

    The report names loops, in which messages circle; paths by which a message arrives twice; islands of brokers; and
    topics that do not reach all their brokers. The plan connects the same topics.
    """
    from trellis.model import Interests, Overlay, expect_format, write_table
    from trellis.plan.bridges import find_bridges
    from trellis.plan.bridges_draw import draw_bridges
    from trellis.plan.mosquitto import read_brokers

    for target in (interests_out, overlay_out):
        if target is not None:
            expect_format(target)
    read = read_brokers(files)
    for one in read:
        for line in one.notes:
            note(line)
    bridges = find_bridges(read, dict(_named(text) for text in broker or []))
    rows = [(name, topic) for topic, holders in bridges.interests.items() for name in holders]
    if not rows:
        raise InputError("", "no connection of these files has a topic line", "name files with bridges")
    interests = Interests.from_pairs(rows)
    with says_compiling():
        made = trellis.plan(interests, seed=seed)
    names = list(interests.nodes)
    planned = [(names[u], names[v]) for u, v in zip(made.overlay.u.tolist(), made.overlay.v.tolist(), strict=True)]
    if interests_out is not None:
        write_table(interests.to_table(), interests_out)
    if overlay_out is not None:
        linked = [pair for pair in bridges.links if pair[0] in interests.nodes and pair[1] in interests.nodes]
        write_table(Overlay.from_pairs(interests.nodes, linked).to_table(), overlay_out)
    if plot is not None:
        draw_bridges(bridges, planned, plot)
    show(_json(bridges, planned), as_json, _text(bridges, len(planned)))


def _named(text: str) -> tuple[str, str]:
    name, equals, address = text.partition("=")
    if not (name.strip() and equals and address.strip()):
        raise InputError(f"--broker {text}", "does not say which address is which broker", "write NAME=HOST:PORT")
    return address.strip(), name.strip()


def _json(bridges: Bridges, planned: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "brokers": list(bridges.brokers),
        "outside": list(bridges.outside),
        "topics": len(bridges.interests),
        "links": [list(pair) for pair in bridges.links],
        "islands": [list(group) for group in bridges.islands] if len(bridges.islands) > 1 else [],
        "split_topics": {topic: [list(group) for group in groups] for topic, groups in bridges.split.items()},
        "loops": [{"topic": one.topic, "way": list(one.ways[0])} for one in bridges.loops],
        "duplicates": [{"topic": one.topic, "ways": [list(path) for path in one.ways]} for one in bridges.duplicates],
        "parallel_bridges": [list(pair) for pair in bridges.parallel],
        "renaming_rules": bridges.renamed,
        "publications": bridges.publications,
        "copies": bridges.copies,
        "copies_cut_short": bridges.cut_short,
        "reached": bridges.reached,
        "wanted": bridges.wanted,
        "plan": {"links": [list(pair) for pair in planned], "copies": bridges.wanted, "reached": bridges.wanted},
    }


def _text(bridges: Bridges, planned: int) -> Iterator[str]:
    outside = f" ({len(bridges.outside):,} known by address alone)" if bridges.outside else ""
    yield f"{len(bridges.brokers):,} brokers{outside}, {len(bridges.interests):,} topics"
    each, more = bridges.publications, "more than " if bridges.cut_short else ""
    endless = "; loops are followed once" if bridges.loops else ""
    yield from table(
        [
            ("bridged pairs of brokers", f"{len(bridges.links):,}; a plan has {planned:,} links"),
            ("relayed copies of a message", f"{more}{number(bridges.copies / each)}; a plan: "
             f"{number(bridges.wanted / each)}{endless}"),
            ("brokers that a message reaches", f"{number(bridges.reached / each)}; a plan: "
             f"{number(bridges.wanted / each)}, all that have its topic"),
        ]
    )  # fmt: skip
    yield from _listed("loops, in which messages go round", [str(one) for one in bridges.loops])
    yield from _listed("messages that arrive twice", [str(one) for one in bridges.duplicates])
    islands = [", ".join(group[:8]) + (", ..." if len(group) > 8 else "") for group in bridges.islands]
    yield from _listed("islands of brokers, without a bridge between them", islands if len(islands) > 1 else [])
    split = [
        f"{topic}: {' | '.join(', '.join(group[:4]) for group in groups)}" for topic, groups in bridges.split.items()
    ]
    yield from _listed("topics whose brokers are not connected", split)
    yield from _listed("pairs of brokers with several bridges", [f"{u} - {v}" for u, v in bridges.parallel])
    if bridges.renamed:
        yield f"topic lines that change names by prefixes, which a mesh of Trellis does not: {bridges.renamed:,}"
    if not (bridges.loops or bridges.duplicates or len(bridges.islands) > 1 or bridges.split):
        yield "no loops, no duplicates, no islands"


def _listed(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{title}: {len(lines):,}"
        yield from (f"  {line}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"  and {len(lines) - _SHOWN:,} more: see --json"
