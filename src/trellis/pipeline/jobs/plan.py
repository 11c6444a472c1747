"""`plan`: a topic-connected overlay for more nodes than one machine can plan, by divide and conquer.

The nodes are dealt to parts; each part is planned by itself, by the kernels of `trellis.plan` inside executors; then
a tree of merges joins the parts through representatives. Why that gives a TCO: `stages/merge.py`.

A part and a merge are each one task: their members must fit into the memory of a Python worker. The last merge holds
about fan_in x representatives subscriptions of every topic that reaches across the groups it joins.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.chance import order
from trellis.pipeline.jobs.run import Paths, Report, Run, running
from trellis.pipeline.jobs.verify import refuse_repeated_subscriptions
from trellis.pipeline.stages import parts as stage
from trellis.pipeline.stages.merge import ALGORITHMS, Rules, connected, links_of, representatives

PART_NODES = 10_000  # about so many nodes a part, unless the user says how many parts
Steps = list[dict[str, Any]]


def plan(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    partitions: int | None = None,
    partitioner: str = "random",
    algorithm: str = "lowoda",
    rho: float = 3.0,
    representatives: int = 2,
    fan_in: int = 8,
    compare_nodes: int = PART_NODES,
    seed: int | str = 0,
    overwrite: bool = False,
) -> Report:
    """Writes the links (u, v) of a TCO over the interests in `paths`.

    partitions       parts to plan by themselves; more cost links and degree, fewer time and memory
    partitioner      random, or minhash: nodes with similar interests together
    representatives  of each part or group for each topic; more spread the links of merges over more nodes
    fan_in           parts or groups joined by one merge; more give fewer levels of larger merges
    compare_nodes    so many random nodes, or all, go through the one-machine planner too, for the report; 0: none
    """
    _check(partitions, partitioner, algorithm, rho, representatives, fan_in, compare_nodes)
    parameters = {
        "partitions": partitions,
        "partitioner": partitioner,
        "algorithm": algorithm,
        "rho": rho,
        "representatives": representatives,
        "fan_in": fan_in,
        "compare_nodes": compare_nodes,
    }
    with running(spark, "plan", output, parameters=parameters, seed=seed, overwrite=overwrite, kernels=True) as (
        run,
        reports,
    ):
        steps: Steps = []
        rules = Rules(algorithm, rho, representatives, seed)
        with _timed(run, steps, "dealing the nodes to parts"):
            members, parts = _members(run, paths, partitions, partitioner, fan_in, seed)
        levels = _tree(run, members, parts, fan_in, rules, steps)
        with _timed(run, steps, "writing the overlay") as step:
            links = levels[0]
            for more in levels[1:]:
                links = links.union(more)
            links = run.keep(links)
            step["links"] = run.write(links.orderBy("u", "v"))
        run.facts |= _degrees(links, run.facts["nodes"], step["links"])
        if compare_nodes:
            with _timed(run, steps, "the one-machine planner") as step:
                step |= _one_machine(members, min(compare_nodes, run.facts["nodes"]), rules)
        run.facts["steps"] = steps
    return reports[0]


def _check(
    partitions: int | None,
    partitioner: str,
    algorithm: str,
    rho: float,
    representatives: int,
    fan_in: int,
    compare_nodes: int,
) -> None:
    if partitioner not in stage.PARTITIONERS:
        raise InputError("", f'partitioner "{partitioner}" is unknown', f"choose {' or '.join(stage.PARTITIONERS)}")
    if algorithm not in ALGORITHMS:
        raise InputError("", f'algorithm "{algorithm}" is unknown', f"choose one of {', '.join(ALGORITHMS)}")
    if not rho >= 1:
        raise InputError("", f"rho {rho:g}", "give 1 or more")
    counts = {"partitions": 1 if partitions is None else partitions, "representatives": representatives}
    for name, value in counts.items():
        if value < 1:
            raise InputError("", f"{value} {name}", "give 1 or more")
    if fan_in < 2:
        raise InputError("", f"a fan-in of {fan_in} joins nothing", "give 2 or more")
    if compare_nodes < 0:
        raise InputError("", f"{compare_nodes} nodes to compare with", "give 0 or more")


def _members(
    run: Run, paths: Paths, partitions: int | None, partitioner: str, fan_in: int, seed: int | str
) -> tuple[DataFrame, int]:
    interests = run.keep(run.read_interests(paths))
    nodes = interests.select("node").distinct().count()
    if not nodes:
        raise InputError(str(paths), "there is no subscription in it", "give interests with rows node, topic")
    parts = min(nodes, partitions or -(-nodes // PART_NODES))
    if partitioner == "minhash":
        placed = stage.in_similar_parts(interests, nodes=nodes, parts=parts, seed=seed)
    else:
        placed = stage.in_random_parts(interests, parts=parts, seed=seed)
    levels = stage.levels_of(parts, fan_in)
    members = run.keep(stage.members_of_parts(placed, fan_in=fan_in, levels=levels))
    run.facts |= refuse_repeated_subscriptions(members, str(paths)) | {"parts": parts, "levels": levels}
    return members, parts


def _tree(run: Run, members: DataFrame, parts: int, fan_in: int, rules: Rules, steps: Steps) -> list[DataFrame]:
    """The links of each level, as far up as there are topics that reach across groups."""
    links, groups = [], parts
    for level in range(run.facts["levels"] + 1):
        groups = groups if level == 0 else -(-groups // fan_in)
        name = f"planning {groups:,} parts" if level == 0 else f"merge {level}: {groups:,} groups"
        with _timed(run, steps, name) as step:
            done = run.keep(connected(members, level=level, fan_in=fan_in, groups=groups, rules=rules))
            totals = done.agg(
                F.sum(F.size("links")).alias("links"),
                F.max("degree_max").alias("degree_max"),
                F.count("topics").alias("representatives"),
            ).first()
            assert totals is not None  # an aggregate without groups always has its one row
            step |= {name: value or 0 for name, value in totals.asDict().items()}
        links.append(links_of(done))
        members = representatives(done)
        if not step["representatives"]:
            break
    return links


def _degrees(links: DataFrame, nodes: int, count: int) -> dict[str, object]:
    ends = links.select(F.explode(F.array("u", "v")).alias("node"))
    most = ends.groupBy("node").count().agg(F.max("count")).first()
    return {"links": count, "degree": {"max": (most and most[0]) or 0, "mean": 2 * count / nodes}}


def _one_machine(members: DataFrame, nodes: int, rules: Rules) -> dict[str, object]:
    """The same planner on a random sample as a single part."""
    sample = (
        members.orderBy(*order(rules.seed, "compare", "node")).limit(nodes).withColumn("part", F.lit(0).cast("long"))
    )
    done = connected(sample, level=0, fan_in=2, groups=1, rules=rules)
    totals = done.agg(F.sum(F.size("links")).alias("links"), F.max("degree_max").alias("top")).first()
    links, top = (totals["links"] or 0, totals["top"] or 0) if totals else (0, 0)
    return {"nodes": nodes, "links": links, "degree": {"max": top, "mean": 2 * links / nodes}}


@contextmanager
def _timed(run: Run, steps: Steps, name: str) -> Iterator[dict[str, Any]]:
    run.step(name)
    began, step = time.monotonic(), dict[str, Any](step=name)
    yield step
    steps.append(step | {"seconds": round(time.monotonic() - began, 3)})
