"""`trellis workload GENERATOR`: synthetic interests, by every generator of the papers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from trellis.cli.common import OUTPUT, AsJson, Seed, examples, options_of, say, says_compiling, show
from trellis.cli.values import among, presets, workloads
from trellis.errors import InputError
from trellis.workloads.configs import BUCKETS_OF_LEVEL, GENERATORS
from trellis.workloads.options import configure
from trellis.workloads.presets import PRESETS, named
from trellis.workloads.sizes import SHAPES

EXAMPLE = examples(
    "trellis workload zipf --alpha 2.0 --nodes 2000 --topics 200 --subs 10:90 --sizes powerlaw --seed 7 -o a.tsv",
    "trellis workload --preset spidercast-rss --nodes 1000 -o rss.parquet",
    "trellis workload --list",
)
_option = options_of(GENERATORS)


def workload(
    generator: Annotated[
        str | None,
        typer.Argument(
            metavar="GENERATOR",
            help=f"One of {', '.join(GENERATORS)}, or a preset's name.",
            autocompletion=among(workloads),
        ),
    ] = None,
    output: Annotated[Path | None, OUTPUT] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Start from a paper's workload; see --list.",
            metavar="NAME",
            show_default=False,
            autocompletion=among(presets),
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List generators and presets, and stop.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    nodes: Annotated[int | None, _option("nodes", "N")] = None,
    topics: Annotated[int | None, _option("topics", "N")] = None,
    subs: Annotated[str | None, _option("subs", "K|MIN:MAX")] = None,
    sizes: Annotated[str | None, _option("sizes", "SHAPE", among(SHAPES))] = None,
    size_exponent: Annotated[float | None, _option("size-exponent", "X")] = None,
    alpha: Annotated[float | None, _option("alpha", "X")] = None,
    top: Annotated[float | None, _option("top", "SHARE")] = None,
    share: Annotated[float | None, _option("share", "SHARE")] = None,
    level: Annotated[str | None, _option("level", "LEVEL", among(BUCKETS_OF_LEVEL))] = None,
    buckets: Annotated[int | None, _option("buckets", "N")] = None,
    b_p: Annotated[int | None, _option("b-p", "N")] = None,
    b_n: Annotated[int | None, _option("b-n", "N")] = None,
    mean: Annotated[float | None, _option("mean", "X")] = None,
    radius: Annotated[float | None, _option("radius", "X")] = None,
    z: Annotated[float | None, _option("z", "X")] = None,
    init_frac: Annotated[float | None, _option("init-frac", "SHARE")] = None,
    alpha0: Annotated[float | None, _option("alpha0", "X")] = None,
    lambda_: Annotated[float | None, _option("lambda", "X")] = None,
    rates_file: Annotated[
        Path | None, typer.Option("--rates", help="Write publication rates (topic, rate) too.", metavar="FILE")
    ] = None,
    rate_model: Annotated[
        str, typer.Option(help="uniform or powerlaw.", metavar="MODEL", autocompletion=among(["uniform", "powerlaw"]))
    ] = "uniform",
    rate_alpha: Annotated[float, typer.Option(help="The i-th topic's rate goes with i^-alpha.", metavar="X")] = 0.75,
    rate_order: Annotated[
        str,
        typer.Option(
            help="Which topics are published on most: by popularity, or random.",
            metavar="ORDER",
            autocompletion=among(["popularity", "random"]),
        ),
    ] = "popularity",
) -> None:
    """Make interests: which node subscribes to which topics.

    Without options a generator takes its paper's values. The same seed gives the same bytes.
    """
    given = {
        "nodes": nodes, "topics": topics, "subs": subs, "sizes": sizes, "size-exponent": size_exponent, "alpha": alpha,
        "top": top, "share": share, "level": level, "buckets": buckets, "b-p": b_p, "b-n": b_n, "mean": mean,
        "radius": radius, "z": z, "init-frac": init_frac, "alpha0": alpha0, "lambda": lambda_,
    }  # fmt: skip
    if listing:
        _list()
        return
    config = configure(_base(generator, preset), given)
    if output is None:
        raise InputError("", "no output file is named", "say where to write, for instance -o interests.parquet")

    from trellis.model import expect_format, write_table
    from trellis.workloads.generate import generate
    from trellis.workloads.rates import rates

    expect_format(output)
    if rates_file is not None:
        expect_format(rates_file)
    with says_compiling():
        interests = generate(config, seed)
    if rates_file is not None:
        published = rates(interests, rate_model, alpha=rate_alpha, order=rate_order, seed=seed)
        write_table(replace(interests, rates=published).rates_table(), rates_file)
    write_table(interests.to_table(), output)
    counts = {"nodes": len(interests.nodes), "topics": len(interests.topics), "subscriptions": interests.subscriptions}
    result = {"generator": type(config).__name__.lower(), **counts, "seed": seed, "file": str(output)}
    show(result, as_json, [f"{output}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items())])


def _base(generator: str | None, preset: str | None) -> Any:
    if preset is None and generator is None:
        raise InputError("", "nothing is named to generate", f"name one of {', '.join(GENERATORS)}, or give --preset")
    if preset is None:
        return named(str(generator))
    if preset not in PRESETS:
        raise InputError(f"--preset {preset}", "there is no such preset", "see: trellis workload --list")
    config = PRESETS[preset].config
    if generator is not None and type(named(generator)) is not type(config):
        raise InputError(
            f"--preset {preset}", f"is a preset of {type(config).__name__.lower()}", f"leave out {generator}"
        )
    return config


def _list() -> None:
    say("Generators (each with its paper's values as defaults):")
    for name, kind in GENERATORS.items():
        say(f"  {name:<22}{' '.join((kind.__doc__ or '').split())}")
    say("\nPresets:")
    for name, entry in PRESETS.items():
        say(f"  {name:<22}{entry.about}")
