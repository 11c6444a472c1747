"""Planning by divide and conquer: the parts first, each by itself, then a tree of merges through representatives.

At level 0 a group is a part, and every node in it stands for itself. At level l > 0 a group is `fan_in` groups of the
level before, and its members are their representatives; all members that come from one group are connected already on
every topic they share. In both cases the members with their TC-components and their real degrees are one instance of
the edge choice of GM, MinMaxODA or LowODA [SH Alg. 1, 2], run by the kernel of `trellis.plan` inside an executor.
Then each group picks its own representatives for the level above.

Why the result is a TCO. Claim, for each level l and each group g of it: (a) for every topic t, the subscribers of t
in g are connected through subscribers of t in g; (b) if t has subscribers in g and elsewhere, g has a representative
of t, that is a member of g that subscribes to t.
  Level 0: the edge choice ends only when each topic of the part has one TC-component: (a). The representatives cover
  all topics of the part that close later, that is those with subscribers elsewhere: (b).
  Level l: let t have subscribers in two or more of the groups that g joins. By (b) of level l - 1 each of these
  groups has a representative of t among the members. The edge choice ends only when the members of t are in one
  TC-component, where members of one group count as connected - rightly so, by (a) of level l - 1 through subscribers
  of t. All its links are between subscribers of t as far as t counts them. So each subscriber of t in g is connected
  with a representative of its own group and this with those of all others: (a). (b) as for level 0, chosen among the
  members: they cover each topic of g that closes later, because by (b) of level l - 1 some member subscribes to it.
  At the last level there is one group: (a) says that the overlay is topic-connected.
No link comes twice: a link that contributes at level l joins two groups of level l - 1, older ones lie within one.

The same for any number of Spark partitions: a group's result depends only on the set of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from trellis.pipeline.stages.parts import MEMBERS
from trellis.pipeline.stages.plan_kernels import import_from_files

if TYPE_CHECKING:
    import pyarrow as pa

ALGORITHMS = ("gm", "minmax", "lowoda")
TASKS_PER_GROUP = 4  # groups are dealt to tasks by hash: with room to spare, few tasks get two

LINKS = StructType([StructField("u", StringType(), False), StructField("v", StringType(), False)])
# MEMBERS after a level: `topics` is null for nodes that do not represent their group.
CONNECTED = StructType(
    [
        MEMBERS["part"],  # now the group
        MEMBERS["node"],
        StructField("topics", MEMBERS["topics"].dataType, True),
        StructField("closes", MEMBERS["closes"].dataType, True),
        MEMBERS["degree"],
        MEMBERS["degree_max"],
        StructField("links", ArrayType(StringType()), False),  # new ones; each at one of its ends
    ]
)


@dataclass(frozen=True)
class Rules:
    algorithm: str
    rho: float
    representatives: int  # how many of a group cover each topic
    seed: int | str


def connected(members: DataFrame, *, level: int, fan_in: int, groups: int, rules: Rules) -> DataFrame:
    """MEMBERS -> CONNECTED: every group of the level topic-connected, with its new links and its representatives."""

    def connect(table: pa.Table) -> pa.Table:
        import_from_files()
        return connect_group(table, level, fan_in, rules)

    group = F.col("part") if level == 0 else F.expr(f"part div {fan_in}")
    rows = members.select(group.alias("group"), *MEMBERS.names)
    # A number of partitions said here is kept; adaptive execution would see few bytes and make one task of them.
    dealt = rows.repartition(min(TASKS_PER_GROUP * groups, 4096), "group")
    return dealt.groupBy("group").applyInArrow(connect, CONNECTED)


def representatives(done: DataFrame) -> DataFrame:
    """CONNECTED -> MEMBERS of the level above."""
    return done.where(F.col("topics").isNotNull()).select(*MEMBERS.names)


def links_of(done: DataFrame) -> DataFrame:
    """CONNECTED -> LINKS, the end that comes first in shortlex order as u."""
    one, other = F.col("node"), F.col("other")
    first = F.struct(F.octet_length(one), one) < F.struct(F.octet_length(other), other)
    pairs = done.select("node", F.explode("links").alias("other"))
    return pairs.select(F.when(first, one).otherwise(other).alias("u"), F.when(first, other).otherwise(one).alias("v"))


def connect_group(table: pa.Table, level: int, fan_in: int, rules: Rules) -> pa.Table:
    """One group: arrays for the kernel, the kernel, and back."""
    import numpy as np
    import pyarrow as pa

    from trellis.model.names import Names
    from trellis.pipeline.stages.plan_cover import cover
    from trellis.plan.ties import in_rank_order

    table = table.combine_chunks()
    names = Names(table["node"].combine_chunks())
    table = table.take(pa.array(in_rank_order(names, rules.seed)))  # a node is its rank: the tie rule of all planners
    nodes = table["node"].combine_chunks()
    offsets, topics, closes, topic_names = _slots(table)
    owner = np.repeat(np.arange(len(nodes)), np.diff(offsets))
    together = owner if level == 0 else np.asarray(table["part"])[owner]
    degrees = np.asarray(table["degree"])
    degree_max = int(np.asarray(table["degree_max"]).max(initial=0))
    i, j = _chosen(offsets, topics, len(topic_names), _components(topics, together), degrees, degree_max, rules)
    degrees = degrees + np.bincount(i, minlength=len(nodes)) + np.bincount(j, minlength=len(nodes))

    open_ = closes > level
    open_offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[open_], minlength=len(nodes)))])
    speakers = cover(open_offsets, topics[open_], len(topic_names), degrees, rules.representatives)
    speaks = np.zeros(len(nodes), bool)
    speaks[speakers] = True
    here = np.flatnonzero(speaks | (np.bincount(i, minlength=len(nodes)) > 0))
    group = int(table["group"][0].as_py())
    kept = open_ & speaks[owner]
    return pa.table(
        {
            "part": pa.array(np.full(len(here), group, np.int64)),
            "node": nodes.take(pa.array(here)),
            "topics": _lists(owner[kept], topic_names.take(pa.array(topics[kept])), here, ~speaks),
            "closes": _lists(owner[kept], pa.array(closes[kept]), here, ~speaks),
            "degree": pa.array(degrees[here].astype(np.int64)),
            "degree_max": pa.array(np.full(len(here), max(degree_max, int(degrees.max(initial=0))), np.int64)),
            "links": _lists(*_by_owner(i, nodes.take(pa.array(j))), here, None),
        },
    )


def _slots(table: pa.Table) -> tuple[Any, Any, Any, Any]:
    """Offsets, topic ids ascending within a node, where each closes, and the names of the topics."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = table["topics"].combine_chunks()
    offsets = np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy(zero_copy_only=False))])
    named = lists.flatten()
    topic_names = pc.unique(named)
    topics = np.asarray(pc.index_in(named, value_set=topic_names))
    owner = np.repeat(np.arange(len(lists)), np.diff(offsets))
    order = np.lexsort([topics, owner])
    closes = table["closes"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return offsets.astype(np.int64), topics[order].astype(np.int32), closes[order], pa.array(topic_names)


def _components(topics: Any, together: Any) -> Any:
    """For each slot the one that stands for its TC-component: slots of one topic with the same `together`."""
    import numpy as np

    labels = np.unique(together, return_inverse=True)[1]
    pairs = topics.astype(np.int64) * (labels.max(initial=0) + 1) + labels
    _, first, which = np.unique(pairs, return_index=True, return_inverse=True)
    return first[which].astype(np.int32)


def _chosen(offsets: Any, topics: Any, count: int, component: Any, degrees: Any, top: int, rules: Rules) -> Any:
    """The ends of the links that the planner's kernel chooses."""
    from trellis.plan.construction import rho_of
    from trellis.plan.edges import low_edges

    rho, light = rho_of(rules.algorithm, rules.rho), rules.algorithm == "minmax"
    edges = low_edges(offsets, topics, count, component, degrees, top, rho=rho, light=light)
    assert not len(edges.split), "all pairs are candidates, so every topic can be connected"
    return edges.i, edges.j


def _by_owner(owner: Any, values: Any) -> tuple[Any, Any]:
    import numpy as np
    import pyarrow as pa

    order = np.argsort(owner, kind="stable")
    return owner[order], values.take(pa.array(order))


def _lists(owner: Any, values: Any, rows: Any, without: Any) -> Any:
    """For each of `rows` the list of its values, which come in order of their owner; null where it is `without`."""
    import numpy as np
    import pyarrow as pa

    counts = np.bincount(owner, minlength=rows.max(initial=-1) + 1)[rows]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    mask = None if without is None else pa.array(without[rows])
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)
