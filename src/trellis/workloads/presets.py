"""List the base workloads of the papers by name, and all other names of generators."""

from __future__ import annotations

from typing import NamedTuple

from trellis.errors import InputError
from trellis.workloads.configs import (
    GENERATORS,
    Correlated,
    Exponential,
    Hierarchical,
    Multimodal,
    Spatial,
    Uniform,
    WorkloadConfig,
    Zipf,
)
from trellis.workloads.sizes import Sizes


class Preset(NamedTuple):
    """A workload of a paper, and a line about it."""

    config: WorkloadConfig
    about: str


# Short names used in the papers.
ALIASES: dict[str, WorkloadConfig] = {
    "unif": Uniform(),
    "expo": Exponential(),
    "random": Correlated(level="random"),
    "low": Correlated(level="low"),
    "high": Correlated(level="high"),
    "multi": Multimodal(),
    "hier": Hierarchical(),
}

_SHADOWS = "2000 nodes, 200 topics, 10 to 90 subscriptions by a power law"
_SPIDERCAST = "10,000 nodes, 10 of 100 topics each"
_TEN = Sizes(10, 10)

PRESETS: dict[str, Preset] = {
    **{
        f"{paper}-{name}": Preset(config, f"{_SHADOWS}; {popularity}  [{section}]")
        for paper, section in (("shadows", "Shadows VI"), ("omen", "OMen 6.1"))
        for name, config, popularity in (
            ("unif", Uniform(), "all topics equally popular"),
            ("zipf", Zipf(alpha=2.0), "heavily skewed popularity i^-2"),
            ("expo", Exponential(), "exponential popularity"),
        )
    },
    **{
        f"spidercast-{name}": Preset(config, f"{_SPIDERCAST}; {popularity}  [SpiderCast 3.1]")
        for name, config, popularity in (
            ("rss", Zipf(10_000, 100, _TEN, alpha=0.5), "popularity i^-0.5, as RSS feeds"),
            ("nyse", Exponential(10_000, 100, _TEN), "exponential popularity, as stocks"),
            ("unif", Uniform(10_000, 100, _TEN), "all topics equally popular"),
            ("zipf1", Zipf(10_000, 100, _TEN, alpha=1.0), "popularity i^-1"),
            ("zipf2", Zipf(10_000, 100, _TEN, alpha=2.0), "heavily skewed popularity i^-2"),
        )
    },
    **{
        f"vitis-{level}": Preset(
            Correlated(level=level), f"10,000 nodes, 50 of 5000 topics each; {buckets}  [Vitis IV-A]"
        )
        for level, buckets in (
            ("random", "uncorrelated"),
            ("low", "from 5 of 100 buckets"),
            ("high", "from 2 of 100 buckets"),
        )
    },
    "magnet-multimodal": Preset(
        Multimodal(), "10,000 nodes, 50 of 1000 topics each, from 1 of 10 categories  [Magnet 4.2]"
    ),
    "magnet-spatial": Preset(Spatial(), "10,000 users on a square, 32 topics each on average  [Magnet 4.3]"),
    "magnet-hierarchical": Preset(
        Hierarchical(), "2^14 nodes and topics in a tree, 16 topics each on average  [Magnet 4.4]"
    ),
}


def named(name: str) -> WorkloadConfig:
    """Return the configuration of a generator's name, an alias or a preset."""
    if name in GENERATORS:
        return GENERATORS[name]()
    if name in ALIASES:
        return ALIASES[name]
    if name in PRESETS:
        return PRESETS[name].config
    raise InputError(
        name,
        "there is no such workload",
        f"choose from {', '.join([*GENERATORS, *ALIASES])}, or a preset: {', '.join(PRESETS)}",
    )
