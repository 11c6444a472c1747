"""Define the settings of each generator: one frozen configuration per generator, with the paper's values as defaults.

A configuration raises InputError when it is created with values that make no sense. An option's name is the field's,
with hyphens: `init_frac` is `--init-frac`, `lambda_` is `--lambda`. Definitions and readings (E-1 ... E-8):
docs/papers.md.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.workloads.checks import (
    check_above,
    check_at_least,
    check_choice,
    check_count,
    check_share,
    refuse_if,
)
from trellis.workloads.sizes import Sizes

Nodes = Annotated[int, Meta(description="number of nodes; cost grows in proportion")]
Topics = Annotated[int, Meta(description="number of topics; more of them share fewer subscribers each")]
Subs = Annotated[Sizes, Meta(description="topics a node, as 10 or 10:90; more make nodes overlap more, and cost more")]
Alpha = Annotated[float, Meta(description="skew of the popularity i^-alpha; 0 is uniform, 2 heavily skewed")]

SHADOWS_SIZES = Sizes(10, 90, "powerlaw", 3.0)


class Uniform(msgspec.Struct, frozen=True, tag=str.lower):
    """All topics equally popular.  [OMen 6.1, Shadows VI, SpiderCast 3.1]"""

    nodes: Nodes = 2000
    topics: Topics = 200
    subs: Subs = SHADOWS_SIZES

    def __post_init__(self) -> None:
        _check_drawn(self)


class Zipf(msgspec.Struct, frozen=True, tag=str.lower):
    """The i-th topic drawn with probability proportional to i^-alpha.  [SpiderCast 3.1: 0.5 is RSS feeds]"""

    nodes: Nodes = 2000
    topics: Topics = 200
    subs: Subs = SHADOWS_SIZES
    alpha: Alpha = 2.0

    def __post_init__(self) -> None:
        _check_drawn(self)
        check_at_least("alpha", self.alpha, 0)


class Exponential(msgspec.Struct, frozen=True, tag=str.lower):
    """The i-th topic drawn with probability proportional to exp(-c i).  [SpiderCast 3.1: stocks of the NYSE]"""

    nodes: Nodes = 2000
    topics: Topics = 200
    subs: Subs = SHADOWS_SIZES
    top: Annotated[float, Meta(description="which part of the topics counts as the most popular ones")] = 0.1
    share: Annotated[
        float, Meta(description="share of the draws that those take, which sets c; higher is more skewed")
    ] = 0.55

    def __post_init__(self) -> None:
        _check_drawn(self)
        check_share("top", self.top)
        even = self.top_topics / self.topics
        refuse_if(
            self.topics > 1 and not even <= self.share < 1,
            f"--share {self.share:g}",
            f"the most popular {self.top_topics} of {self.topics} topics cannot take that share",
            f"give at least {even:g} (all topics equally popular) and less than 1",
        )

    @property
    def top_topics(self) -> int:
        """Return the number of topics that the share `top` stands for."""
        return max(1, min(self.topics - 1, int(self.top * self.topics + 0.5)))


BUCKETS_OF_LEVEL = {"random": 1, "low": 5, "high": 2}  # level -> buckets from which a node chooses [Vitis IV-A]


class Correlated(msgspec.Struct, frozen=True, tag=str.lower):
    """Topics in buckets, the same for all nodes (E-8); a node takes its topics from a few of them.  [Vitis IV-A]"""

    nodes: Nodes = 10_000
    topics: Topics = 5000
    subs: Annotated[int, Meta(description="topics a node, the same for all; more make nodes overlap more")] = 50
    buckets: Annotated[int, Meta(description="number of buckets; more make nodes that share one rarer")] = 100
    level: Annotated[str, Meta(description="random: no buckets, low: 5 buckets a node, high: 2")] = "high"

    def __post_init__(self) -> None:
        for option in ("nodes", "topics", "subs", "buckets"):
            check_count(option, getattr(self, option))
        Sizes(self.subs, self.subs).check_within(self.topics, "in all")
        check_choice("level", self.level, tuple(BUCKETS_OF_LEVEL))
        if self.level == "random":
            return
        where = f"--subs {self.subs}"
        picks = self.buckets_chosen
        refuse_if(
            self.buckets < picks,
            f"--buckets {self.buckets}",
            f"level {self.level} chooses {picks} buckets",
            f"give {picks} or more",
        )
        refuse_if(
            self.subs % picks != 0,
            where,
            f"level {self.level} takes equally many topics from {picks} buckets",
            f"give a multiple of {picks}",
        )
        smallest = self.topics // self.buckets
        refuse_if(
            self.subs // picks > smallest,
            where,
            f"a node would take {self.subs // picks} topics from each bucket, which holds {smallest}",
            "give fewer subscriptions or fewer buckets",
        )

    @property
    def buckets_chosen(self) -> int:
        return BUCKETS_OF_LEVEL[self.level]


class Multimodal(msgspec.Struct, frozen=True, tag=str.lower):
    """Topics in categories; a node picks a few, then topics in them by rank.  [Magnet 4.2; E-3, E-4]"""

    nodes: Nodes = 10_000
    topics: Topics = 1000
    subs: Subs = Sizes(50, 50)
    b_p: Annotated[int, Meta(description="categories a node picks; fewer at the same b_p/b_n correlate more")] = 1
    b_n: Annotated[int, Meta(description="number of categories; more are smaller")] = 10
    alpha: Alpha = 1.0

    def __post_init__(self) -> None:
        for option in ("nodes", "topics", "b_p", "b_n"):
            check_count(option.replace("_", "-"), getattr(self, option))
        refuse_if(
            self.b_n > self.topics,
            f"--b-n {self.b_n}",
            f"{self.topics} topics cannot fill that many categories",
            f"give at most {self.topics}",
        )
        refuse_if(
            self.b_p > self.b_n,
            f"--b-p {self.b_p}",
            f"there are only {self.b_n} categories",
            f"give at most {self.b_n}",
        )
        self.subs.check_within(self.b_p * (self.topics // self.b_n), f"in {self.b_p} categories")
        check_at_least("alpha", self.alpha, 0)


class Spatial(msgspec.Struct, frozen=True, tag=str.lower):
    """Users on the unit square, each with a topic of its own; a user wants the topics of all within a radius,
    its own included.  [Magnet 4.3; E-5]"""

    nodes: Nodes = 10_000
    mean: Annotated[
        float | None, Meta(description="topics a node on average, by the right radius; 32 if no radius is given")
    ] = None
    radius: Annotated[float | None, Meta(description="how far a user looks; larger circles overlap more")] = None

    def __post_init__(self) -> None:
        check_count("nodes", self.nodes)
        refuse_if(
            self.mean is not None and self.radius is not None,
            f"--mean {self.mean} --radius {self.radius}",
            "one follows from the other",
            "give only one of them",
        )
        if self.radius is not None:
            check_at_least("radius", self.radius, 0)
            return
        refuse_if(
            not 1 <= self.target_mean <= self.nodes,
            f"--mean {self.target_mean:g}",
            f"a user wants at least its own topic and at most those of all {self.nodes} users",
            f"give a number from 1 to {self.nodes}",
        )

    @property
    def topics(self) -> int:
        return self.nodes

    @property
    def target_mean(self) -> float:
        return 32.0 if self.mean is None else self.mean


class Hierarchical(msgspec.Struct, frozen=True, tag=str.lower):
    """Topics as leaves of a binary tree, filled by preferential attachment to similar ones.  [Magnet 4.4; E-6, E-7]"""

    nodes: Nodes = 2**14
    topics: Annotated[int, Meta(description="number of topics, a power of two: the leaves of the tree")] = 2**14
    z: Annotated[float, Meta(description="Z, topics a node on average; more dilute the correlation")] = 16.0
    init_frac: Annotated[
        float, Meta(description="share of the subscriptions dealt at random first; more correlate less")
    ] = 0.1
    alpha0: Annotated[
        float, Meta(description="exponent of the popularity values at first; higher evens the topics out")
    ] = 2.0
    lambda_: Annotated[float, Meta(description="homophily: how strongly a node prefers topics near those it has")] = 2.0

    def __post_init__(self) -> None:
        check_count("nodes", self.nodes)
        check_count("topics", self.topics)
        refuse_if(
            self.topics < 2 or self.topics & (self.topics - 1) != 0,
            f"--topics {self.topics}",
            "the topics are the leaves of a complete binary tree",
            "give a power of two",
        )
        where = f"--z {self.z:g}"
        check_above("z", self.z, 0)
        refuse_if(
            self.z > self.topics,
            where,
            f"a node cannot subscribe to {self.z:g} different topics of {self.topics} in all",
            f"give at most {self.topics}",
        )
        refuse_if(
            round(self.z * self.nodes) < max(self.nodes, self.topics),
            where,
            f"every one of {self.nodes} nodes and {self.topics} topics needs a subscription",
            f"give at least {max(self.nodes, self.topics) / self.nodes:g}",
        )
        check_share("init-frac", self.init_frac)
        check_above("alpha0", self.alpha0, 1)  # Otherwise the values x^-alpha0 have no distribution.
        check_at_least("lambda", self.lambda_, 0)


WorkloadConfig = Uniform | Zipf | Exponential | Correlated | Multimodal | Spatial | Hierarchical

GENERATORS: dict[str, type[WorkloadConfig]] = {
    "uniform": Uniform,
    "zipf": Zipf,
    "exponential": Exponential,
    "correlated": Correlated,
    "multimodal": Multimodal,
    "spatial": Spatial,
    "hierarchical": Hierarchical,
}


def _check_drawn(config: Uniform | Zipf | Exponential) -> None:
    check_count("nodes", config.nodes)
    check_count("topics", config.topics)
    config.subs.check_within(config.topics, "in all")
