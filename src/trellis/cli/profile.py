"""`trellis profile INTERESTS`: measure a workload."""

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
    """Describe interests: sizes, popularity, skew and similarity.

    The similarity of large instances is measured on a sample of the nodes, and the output says so.
    """
    from trellis.measure.draw import draw_profile
    from trellis.measure.profile import profile as measure
    from trellis.measure.similarity import sample_within

    interests = reading.interests(interests_file, rates)
    with says_compiling(), progress("similarity") as report:
        measured = measure(
            interests,
            similarity=similarity,
            d=d,
            sample=sample if sample is not None else sample_within(interests),
            seed=seed,
            progress=report,
        )
    if plot is not None:
        draw_profile(interests, plot, measured)
    show(measured.to_json(), as_json, _text(measured))


def _text(profile: Profile) -> Iterator[str]:
    rows: list[tuple[str, object]] = [
        ("nodes", profile.nodes),
        ("topics with subscribers", profile.topics),
        ("subscriptions", profile.subscriptions),
        ("topics of a node", _spread(profile.sizes)),
        ("nodes of a topic", _spread(profile.popularity)),
    ]
    fit = profile.popularity.power_law
    if fit is not None and fit.is_near:
        rows.append(("popularity tail", f"exponent {number(fit.exponent)} from {fit.x_min} on"))
    if profile.rates is not None:
        rows.append(("rate of a topic", f"{number(profile.rates.min)} to {number(profile.rates.max)}"))
    if profile.similarity is not None:
        tdi = profile.similarity.top_intersection
        shown = ", ".join(f"tdi({d}) {number(float(tdi[d - 1]))}%" for d in _SHOWN if d <= len(tdi))
        part = (
            ""
            if profile.similarity.measured == profile.nodes
            else f" (of {profile.similarity.measured:,} sampled nodes)"
        )
        rows.append(("similarity", shown + part))
    yield from table(rows)


def _spread(skew: Skew) -> str:
    spread = skew.distribution
    return f"{number(spread.minimum)} to {number(spread.maximum)}, mean {number(spread.mean)}, Gini {number(skew.gini)}"
