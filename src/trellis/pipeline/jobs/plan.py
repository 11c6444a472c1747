"""`plan`: a topic-connected overlay, whole where it fits into the memory of the driver, else in parts.

Whole: Spark reads the interests and numbers nodes and topics (`stages/numbers.py`). Executors draw candidates for each
node (`stages/draw.py`), unless the instance is so small that all pairs are compared. The planner's kernel then chooses
the links once, on the driver. The overlay is the one that `trellis plan` makes.

In parts (`plan_parts.py`): each part by itself, then merges. This takes more links, so it is done only where a whole
plan needs more memory than is allowed, or where a number of parts is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.jobs.plan_parts import Parts, check_parts, planned_in_parts
from trellis.pipeline.jobs.run import Paths, Report, Run, running
from trellis.pipeline.jobs.verify import counted_subscriptions
from trellis.pipeline.stages import draw, numbers
from trellis.pipeline.stages.merge import ALGORITHMS, Rules
from trellis.plan.api import CANDIDATES, memory_allowed
from trellis.plan.candidates import Sampling, Subscribers, with_rings
from trellis.plan.construction import rho_of
from trellis.plan.edges import Edges, low_edges
from trellis.plan.tables import Shape

if TYPE_CHECKING:
    from trellis.plan.candidates import Candidates

Steps = list[dict[str, Any]]


class Instance(NamedTuple):
    """The interests with integer ids, on Spark, and what they need."""

    nodes: DataFrame  # RANKED
    shape: Shape
    sampling: Sampling | None  # None: all pairs are compared

    @property
    def memory_bytes(self) -> int:
        """Memory that the driver's Python needs at most: the interests as arrays, and the planner's tables."""
        arrays = 8 * self.shape.slots + 16 * self.shape.nodes
        if self.sampling is None:
            return arrays + self.shape.bytes_of(self.shape.best_form())
        return arrays + self.shape.bytes_sampled(self.sampling)


def plan(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    algorithm: str = "lowoda",
    rho: float = 3.0,
    candidates: str = "auto",
    sample: int = Sampling.sample,
    keep: int = Sampling.keep,
    memory_bytes_max: int | None = None,
    partitions: int | None = None,
    partitioner: str = "random",
    representatives: int = 2,
    fan_in: int = 8,
    seed: int | str = 0,
    overwrite: bool = False,
) -> Report:
    """Write the links (u, v) of a TCO over the interests in `paths`.

    candidates        as in `trellis.plan`: all pairs, sampled ones, or auto
    sample, keep      for sampled candidates, as in `trellis.plan`
    memory_bytes_max  a plan that needs more on the driver is made in parts; by default 60 % of the machine's memory
    partitions        plan in so many parts whatever the memory; more cost links and degree, fewer time and memory
    partitioner       of parts: random, or minhash: nodes with similar interests together
    representatives   of each part or group for each topic; more spread the links of merges over more nodes
    fan_in            parts or groups joined by one merge; more give fewer levels of larger merges
    """
    if algorithm not in ALGORITHMS:
        raise InputError("", f'algorithm "{algorithm}" is unknown', f"choose one of {', '.join(ALGORITHMS)}")
    if not rho >= 1:
        raise InputError("", f"rho {rho:g}", "give 1 or more")
    if candidates not in CANDIDATES:
        raise InputError("", f'candidates "{candidates}" are unknown', f"choose one of {', '.join(CANDIDATES)}")
    sampling, parts = Sampling(sample, keep), Parts(partitions, partitioner, fan_in)
    check_parts(parts, representatives)
    parameters = {
        "algorithm": algorithm,
        "rho": rho,
        "candidates": candidates,
        "sample": sample,
        "keep": keep,
        "memory_bytes_max": memory_bytes_max,
        "partitions": partitions,
        "partitioner": partitioner,
        "representatives": representatives,
        "fan_in": fan_in,
    }
    rules = Rules(algorithm, rho, representatives, seed)
    with running(spark, "plan", output, parameters=parameters, seed=seed, overwrite=overwrite, kernels=True) as (
        run,
        reports,
    ):
        steps: Steps = []
        interests = run.keep(run.read_interests(paths))
        instance = None
        if partitions is None:
            with timed(run, steps, "numbering nodes and topics"):
                instance = _numbered(run, interests, str(paths), candidates, sampling, memory_bytes_max, seed)
        if instance is None:
            _write_in_parts(run, steps, interests, str(paths), parts, rules)
        else:
            _write_whole(run, steps, instance, rules)
        run.facts["steps"] = steps
    return reports[0]


def _numbered(
    run: Run,
    interests: DataFrame,
    where: str,
    candidates: str,
    sampling: Sampling,
    memory_bytes_max: int | None,
    seed: int | str,
) -> Instance | None:
    """The instance; None where planning it whole needs more memory than is allowed."""
    topics = run.keep(numbers.topic_ids(interests))
    met = topics.agg(F.count("*"), F.sum(F.expr("rows * (rows - 1) div 2"))).first()
    assert met is not None  # an aggregate without groups always has its one row
    nodes = run.keep(numbers.ranked(interests, topics, seed))
    run.facts |= counted_subscriptions(nodes, where) | {"topics": met[0]}
    widest = nodes.agg(F.max(F.size("topics"))).first()
    width = 2 if widest is not None and widest[0] < 2**16 else 4
    shape = Shape(run.facts["nodes"], met[0], run.facts["subscriptions"], met[1], width)
    allowed = memory_allowed(memory_bytes_max)
    exact, sampled = Instance(nodes, shape, None), Instance(nodes, shape, sampling)
    if candidates == "auto":
        instance = sampled if shape.prefers_sampling() or exact.memory_bytes > allowed else exact
    else:
        instance = exact if candidates == "all" else sampled
    run.facts["memory_bytes"] = instance.memory_bytes
    if instance.memory_bytes <= allowed:
        return instance
    sizes = f"{instance.memory_bytes / 2**20:,.1f} MiB on the driver, and {allowed / 2**20:,.1f} MiB are allowed"
    run.facts["in_parts_because"] = f"a whole plan needs {sizes} (--memory)"
    return None


def _write_whole(run: Run, steps: Steps, instance: Instance, rules: Rules) -> None:
    with timed(run, steps, "bringing the interests to the driver"):
        table = _arrays(run, instance)
    among: Candidates | None = None
    if instance.sampling is not None:
        with timed(run, steps, "drawing candidates") as step:
            among = _candidates(run, table, instance.sampling, rules.seed)
            step["candidates"] = run.facts["candidates"] = len(among.columns)
    with timed(run, steps, "choosing links") as step:
        links = _chosen(table, instance.shape, among, rules)
        step["links"] = len(links.i)
    del table, among
    nodes = instance.shape.nodes
    degrees = np.bincount(links.i, minlength=nodes) + np.bincount(links.j, minlength=nodes)
    run.facts |= {"links": len(links.i), "degree": {"max": int(degrees.max()), "mean": 2 * len(links.i) / nodes}}
    with timed(run, steps, "writing the overlay"):
        ends = run.spark.sparkContext.broadcast((links.i, links.j))
        numbered = draw.numbered_links(run.spark, ends, len(links.i))
        run.write(draw.named_links(numbered, instance.nodes).orderBy("u", "v"))
        ends.destroy()


def _arrays(run: Run, instance: Instance) -> Subscribers:
    """The interests on the driver. A part of the table at a time passes through Java."""
    rows = run.keep(numbers.packed(instance.nodes))
    rows.count()  # by all executors at once; the iterator below asks for one part after the other
    shape = instance.shape
    return numbers.unpacked(rows.toLocalIterator(), shape.nodes, shape.slots, shape.topics)


def _candidates(run: Run, table: Subscribers, sampling: Sampling, seed: int | str) -> Candidates:
    arrays = run.spark.sparkContext.broadcast(tuple(table))
    nodes = len(table.offsets) - 1
    rows = run.keep(draw.drawn_candidates(run.spark, arrays, nodes, sampling, seed))
    rows.count()
    try:
        return with_rings(table, draw.kept_of(rows.toLocalIterator(), nodes, sampling))
    finally:
        arrays.destroy()


def _chosen(table: Subscribers, shape: Shape, among: Candidates | None, rules: Rules) -> Edges:
    edges = low_edges(
        table.offsets,
        table.topics,
        shape.topics,
        np.arange(shape.slots, dtype=np.int32),  # at the start every subscription is a TC-component of its own
        np.zeros(shape.nodes, np.int64),
        0,
        rho=rho_of(rules.algorithm, rules.rho),
        light=rules.algorithm == "minmax",
        candidates=among,
    )
    assert not len(edges.split), "the candidates contain a ring of each topic, so every topic can be connected"
    return edges


def _write_in_parts(run: Run, steps: Steps, interests: DataFrame, where: str, parts: Parts, rules: Rules) -> None:
    levels = planned_in_parts(run, interests, where, parts, rules, lambda name: timed(run, steps, name))
    with timed(run, steps, "writing the overlay") as step:
        links = levels[0]
        for more in levels[1:]:
            links = links.union(more)
        links = run.keep(links)
        step["links"] = count = run.write(links.orderBy("u", "v"))
    ends = links.select(F.explode(F.array("u", "v")).alias("node"))
    most = ends.groupBy("node").count().agg(F.max("count")).first()
    degree = {"max": (most and most[0]) or 0, "mean": 2 * count / run.facts["nodes"]}
    run.facts |= {"links": count, "degree": degree}


@contextmanager
def timed(run: Run, steps: Steps, name: str) -> Iterator[dict[str, Any]]:
    run.step(name)
    began, step = time.monotonic(), dict[str, Any](step=name)
    yield step
    steps.append(step | {"seconds": round(time.monotonic() - began, 3)})
