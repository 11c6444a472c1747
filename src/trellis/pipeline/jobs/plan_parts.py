"""An overlay for more nodes than one machine can plan, by divide and conquer.

The nodes are dealt to parts; each part is planned by itself, by the kernels of `trellis.plan` inside executors; then
a tree of merges joins the parts through representatives. Why that gives a TCO: `stages/merge.py`.

A part and a merge are each one task: their members must fit into the memory of a Python worker. The last merge holds
about fan_in x representatives subscriptions of every topic that reaches across the groups it joins.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.jobs.run import Run
from trellis.pipeline.stages import parts as stage
from trellis.pipeline.stages.merge import Rules, connected, links_of, representatives

PART_NODES = 10_000  # about so many nodes a part, unless the user says how many parts
Timed = Callable[[str], AbstractContextManager[dict[str, Any]]]


class Parts(NamedTuple):
    partitions: int | None  # None: as many as PART_NODES makes
    partitioner: str
    fan_in: int


def check_parts(parts: Parts, representatives: int) -> None:
    if parts.partitioner not in stage.PARTITIONERS:
        known = " or ".join(stage.PARTITIONERS)
        raise InputError("", f'partitioner "{parts.partitioner}" is unknown', f"choose {known}")
    counts = {"partitions": 1 if parts.partitions is None else parts.partitions, "representatives": representatives}
    for name, value in counts.items():
        if value < 1:
            raise InputError("", f"{value} {name}", "give 1 or more")
    if parts.fan_in < 2:
        raise InputError("", f"a fan-in of {parts.fan_in} joins nothing", "give 2 or more")


def planned_in_parts(
    run: Run, interests: DataFrame, where: str, parts: Parts, rules: Rules, timed: Timed
) -> list[DataFrame]:
    """INTERESTS -> the LINKS of each level, as far up as there are topics that reach across groups."""
    with timed("dealing the nodes to parts"):
        members, groups = _members(run, interests, where, parts, rules.seed)
    links = []
    for level in range(run.facts["levels"] + 1):
        groups = groups if level == 0 else -(-groups // parts.fan_in)
        name = f"planning {groups:,} parts" if level == 0 else f"merge {level}: {groups:,} groups"
        with timed(name) as step:
            done = run.keep(connected(members, level=level, fan_in=parts.fan_in, groups=groups, rules=rules))
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


def _members(run: Run, interests: DataFrame, where: str, parts: Parts, seed: int | str) -> tuple[DataFrame, int]:
    nodes = interests.select("node").distinct().count()
    if not nodes:
        raise InputError(where, "there is no subscription in it", "give interests with rows node, topic")
    count = min(nodes, parts.partitions or -(-nodes // PART_NODES))
    if parts.partitioner == "minhash":
        placed = stage.in_similar_parts(interests, nodes=nodes, parts=count, seed=seed)
    else:
        placed = stage.in_random_parts(interests, parts=count, seed=seed)
    levels = stage.levels_of(count, parts.fan_in)
    members = run.keep(stage.members_of_parts(placed, fan_in=parts.fan_in, levels=levels))
    tally = members.agg(F.sum(F.size("topics"))).first()
    subscriptions = (tally and tally[0]) or 0
    repeated = interests.count() - subscriptions
    run.facts |= {"nodes": nodes, "subscriptions": subscriptions, "repeated_rows": repeated}
    run.facts |= {"parts": count, "levels": levels}
    return members, count
