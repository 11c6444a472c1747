"""Options and output of `trellis plan` for costs of links, caps of nodes, and bounds of hops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trellis.cli.common import note
from trellis.errors import InputError

if TYPE_CHECKING:
    from trellis.model import Interests
    from trellis.model.costs import LinkCaps, LinkCosts
    from trellis.plan.excess import Excess
    from trellis.plan.hops import Short

_PANEL = "Costs and caps"
_SHOWN = 10

CostsFile = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        help="Table of u, v, cost: links that join the most for their cost come first.",
        metavar="FILE",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
RegionsFile = Annotated[
    Path | None,
    typer.Option(
        "--regions",
        help="Table of node, region: then u and v of --costs are regions.",
        metavar="FILE",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
CostDefault = Annotated[
    float | None,
    typer.Option(
        "--cost-default",
        help="The cost of links that --costs does not list; without it they are refused.",
        metavar="COST",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
CapsFile = Annotated[
    Path | None,
    typer.Option(
        "--caps",
        help="Table of node, links_max: how many links a node may have. Other nodes have no cap.",
        metavar="FILE",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class LimitFiles:
    """The files and options with costs and caps."""

    costs: Path | None = None
    regions: Path | None = None
    cost_default: float | None = None
    caps: Path | None = None

    def __post_init__(self) -> None:
        for name, given in (("--regions", self.regions), ("--cost-default", self.cost_default)):
            if given is not None and self.costs is None:
                raise InputError(name, "says nothing without costs", "give a table of u, v, cost as well: --costs FILE")

    def read(self, interests: Interests) -> tuple[LinkCosts | None, LinkCaps | None]:
        """Read the costs and caps that are given, for the nodes of the interests."""
        from trellis.model.costs import read_caps, read_costs

        costs = caps = None
        if self.costs is not None:
            costs = read_costs(self.costs, interests.nodes, regions=self.regions, default=self.cost_default)
            if costs.unused:
                note(f"{self.costs}: rows about regions without a node of the interests: {costs.unused:,}")
        if self.caps is not None:
            caps = read_caps(self.caps, interests.nodes)
        return costs, caps


def excess_text(excess: Sequence[Excess]) -> Iterator[str]:
    """Yield lines about nodes that have more links than their cap allows."""
    if not excess:
        return
    more = sum(one.links - one.links_max for one in excess)
    yield f"caps exceeded by {more:,} {'link' if more == 1 else 'links'} together, at these nodes:"
    yield from (f"  {one}" for one in excess[:_SHOWN])
    if len(excess) > _SHOWN:
        yield f"  and {len(excess) - _SHOWN:,} more: see --json"


def excess_json(excess: Sequence[Excess]) -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [asdict(one) for one in excess]


def hops_rows(short: Short, degree_max: int) -> list[tuple[str, object]]:
    """Return the cost of a bound of hops: links and the greatest degree, before and after."""
    after = short.links_before + short.links_added
    share = f" (+{100 * short.links_added / short.links_before:.0f}%)" if short.links_before else ""
    return [
        ("greatest topic diameter", f"{short.diameter_before} before, {short.diameter} now; wanted: {short.hops_max}"),
        ("links for that", f"{short.links_before:,} before, {after:,} now{share}"),
        ("maximum degree for that", f"{short.degree_max_before:,} before, {degree_max:,} now"),
    ]


def unmet_text(short: Short | None) -> Iterator[str]:
    """Yield lines about topics that stay longer than the bound."""
    if short is None or not short.unmet:
        return
    yield f"{len(short.unmet):,} topics stay longer than {short.hops_max} hops, as caps forbid the links:"
    yield from (f"  {topic}: {hops} hops" for topic, hops in short.unmet[:_SHOWN])
    if len(short.unmet) > _SHOWN:
        yield f"  and {len(short.unmet) - _SHOWN:,} more: see --json"


def hops_json(short: Short | None) -> dict[str, Any] | None:
    from dataclasses import asdict

    if short is None:
        return None
    return {**asdict(short), "unmet": [{"topic": topic, "diameter": hops} for topic, hops in short.unmet]}
