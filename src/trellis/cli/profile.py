"""`trellis profile INTERESTS`: what a workload looks like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trellis.cli.common import (
    AsJson,
    InterestsFile,
    Plot,
    Seed,
    examples,
    number,
    progress,
    says_compiling,
    show,
    table,
)
from trellis.cli.reading import Reading, reads_interests

if TYPE_CHECKING:
    from trellis.measure.profile import Profile, Skew

EXAMPLE = examples("trellis profile interests.parquet --plot profile.png")
_SHOWN = (1, 5, 10, 20)


@reads_interests
def profile(
    interests_file: InterestsFile,
    *,
    reading: Reading,
    similarity: Annotated[bool, typer.Option(help="How alike the nodes are: top-d-intersection.")] = True,
    d: Annotated[int, typer.Option("--tdi", help="tdi(1) to tdi(d): compare each node to its d most similar.")] = 20,
    sample: Annotated[
        int | None, typer.Option(help="Compare only so many nodes, drawn by seed.", metavar="N", show_default=False)
    ] = None,
    rates: Annotated[
        Path | None, typer.Option(help="Publication rates: a table of topic, rate.", metavar="FILE", show_default=False)
    ] = None,
    plot: Plot = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Describe interests: sizes, popularity, how skewed and how alike.

    Large instances are compared on a sample of the nodes, and it says so.
    """
    from trellis.measure.draw import draw_profile
    from trellis.measure.profile import profile as measure
    from trellis.measure.similarity import sample_within

    interests = reading.interests(interests_file, rates)
    with says_compiling(), progress("similarity") as report:
        found = measure(
            interests,
            similarity=similarity,
            d=d,
            sample=sample if sample is not None else sample_within(interests),
            seed=seed,
            progress=report,
        )
    if plot is not None:
        draw_profile(interests, plot, found)
    show(found.to_json(), as_json, _text(found))


def _text(found: Profile) -> Iterator[str]:
    rows: list[tuple[str, object]] = [
        ("nodes", found.nodes),
        ("topics with subscribers", found.topics),
        ("subscriptions", found.subscriptions),
        ("topics of a node", _spread(found.sizes)),
        ("nodes of a topic", _spread(found.popularity)),
    ]
    fit = found.popularity.power_law
    if fit is not None and fit.is_near:
        rows.append(("popularity tail", f"exponent {number(fit.exponent)} from {fit.x_min} on"))
    if found.rates is not None:
        rows.append(("rate of a topic", f"{number(found.rates.min)} to {number(found.rates.max)}"))
    if found.similarity is not None:
        tdi = found.similarity.top_intersection
        shown = ", ".join(f"tdi({d}) {number(float(tdi[d - 1]))}%" for d in _SHOWN if d <= len(tdi))
        part = "" if found.similarity.measured == found.nodes else f" (of {found.similarity.measured:,} sampled nodes)"
        rows.append(("similarity", shown + part))
    yield from table(rows)


def _spread(skew: Skew) -> str:
    spread = skew.distribution
    return f"{number(spread.minimum)} to {number(spread.maximum)}, mean {number(spread.mean)}, Gini {number(skew.gini)}"
