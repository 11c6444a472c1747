"""Check whether an overlay is topic-connected: find the links inside each topic, and count its TC-components.

A link (u, v) is a link of G(t) for each topic t that u and v share. The topics of a node travel as one array. Links are
joined with the arrays of both their ends, and only shared topics become rows. If links unite two components of a topic
k times, a topic of n subscribers has n - k components. So nodes without a link in the topic need not be looked at.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

if TYPE_CHECKING:
    import pyarrow as pa

SIZES_SHOWN = 4  # of each topic: how many of its components are told by size, largest first


def _table(**columns: object) -> StructType:
    return StructType([StructField(name, kind, False) for name, kind in columns.items()])  # type: ignore[arg-type]


_TEXT, _COUNT = StringType(), LongType()
NODE_TOPICS = _table(node=_TEXT, topics=ArrayType(_TEXT), rows=_COUNT)  # rows: as they were given
LINKS = _table(u=_TEXT, v=_TEXT)
SHARED = _table(u=_TEXT, v=_TEXT, shared=ArrayType(_TEXT))
TOPIC_LINKS = _table(topic=_TEXT, u=_TEXT, v=_TEXT)
SPANNED = _table(topic=_TEXT, united=_COUNT, sizes=ArrayType(_COUNT))  # sizes of components with a link
TOPICS = _table(topic=_TEXT, subscribers=_COUNT, links=_COUNT, components=_COUNT, sizes=ArrayType(_COUNT))


def node_topics(interests: DataFrame) -> DataFrame:
    """INTERESTS -> NODE_TOPICS: each topic of a node once."""
    wanted = interests.groupBy("node").agg(F.collect_list("topic").alias("all"))
    return wanted.select("node", F.array_distinct("all").alias("topics"), F.size("all").cast("long").alias("rows"))


def counted_links(overlay: DataFrame) -> DataFrame:
    """LINKS -> u, v, rows: each link once, whichever way it was written, and how often it was.

    Both ends are null where one was.
    """
    whole = F.col("u").isNotNull() & F.col("v").isNotNull()
    ends = overlay.select(F.when(whole, F.least("u", "v")).alias("u"), F.when(whole, F.greatest("u", "v")).alias("v"))
    return ends.groupBy("u", "v").agg(F.count("*").alias("rows")).select("u", "v", "rows")


def node_degrees(nodes: DataFrame, links: DataFrame) -> DataFrame:
    """NODE_TOPICS and LINKS -> node, known, degree: of all nodes, and of ends of links that are none (not `known`)."""
    ends = links.select(F.explode(F.array("u", "v")).alias("node"))
    degrees = ends.groupBy("node").agg(F.count("*").alias("degree"))
    known = nodes.select("node", F.lit(True).alias("known"))
    return known.join(degrees, "node", "full_outer").select(
        "node", F.coalesce("known", F.lit(False)).alias("known"), F.coalesce("degree", F.lit(0)).alias("degree")
    )


def shared_topics(links: DataFrame, nodes: DataFrame) -> DataFrame:
    """LINKS and NODE_TOPICS -> SHARED: the topics both ends want."""
    first = nodes.select(F.col("node").alias("u"), F.col("topics").alias("of_u"))
    second = nodes.select(F.col("node").alias("v"), F.col("topics").alias("of_v"))
    met = links.select("u", "v").join(first, "u").join(second, "v")
    return met.select("u", "v", F.array_intersect("of_u", "of_v").alias("shared"))


def topic_links(shared: DataFrame) -> DataFrame:
    """SHARED -> TOPIC_LINKS: the links of every G(t)."""
    return shared.select(F.explode("shared").alias("topic"), "u", "v")


def spanned_in_groups(links: DataFrame, *, groups: int) -> DataFrame:
    """TOPIC_LINKS -> SPANNED. Topics are dealt to `groups` groups; each is held whole by a Python worker."""
    dealt = links.select(F.pmod(F.xxhash64("topic"), F.lit(groups)).alias("group"), "topic", "u", "v")
    return dealt.groupBy("group").applyInArrow(span, SPANNED)


def span(table: pa.Table) -> pa.Table:
    """The TC-components of the topics of one group, all at once: a node of each topic is a vertex of its own."""
    import numpy as np
    import pyarrow as pa
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    topic = table["topic"].combine_chunks().dictionary_encode()
    both = pa.concat_arrays([*table["u"].chunks, *table["v"].chunks])
    end = np.asarray(both.dictionary_encode().indices, np.int64)
    of_topic = np.asarray(topic.indices, np.int64)
    vertex = np.concatenate([of_topic, of_topic]) * (end.max(initial=0) + 1) + end
    vertices, index = np.unique(vertex, return_inverse=True)
    u, v = np.split(index, 2)
    graph = sparse.coo_array((np.ones(len(u), np.int8), (u, v)), shape=(len(vertices), len(vertices)))
    _, component = connected_components(graph, directed=False)
    topic_of_vertex = vertices // (end.max(initial=0) + 1)
    _, first, size = np.unique(component, return_index=True, return_counts=True)
    topic_of_component = topic_of_vertex[first]
    topics = len(topic.dictionary)
    united = np.bincount(topic_of_vertex, minlength=topics) - np.bincount(topic_of_component, minlength=topics)
    order = np.lexsort([-size, topic_of_component])
    starts = np.searchsorted(topic_of_component[order], np.arange(topics + 1))
    shown = [size[order[a : min(b, a + SIZES_SHOWN)]] for a, b in pairwise(starts)]
    return pa.table(
        {
            "topic": topic.dictionary,
            "united": pa.array(united),
            "sizes": pa.array(shown, pa.list_(pa.int64())),
        }
    )


def spanned_by_stars(stars: DataFrame) -> DataFrame:
    """topic, node, root (see `stages.components`) -> SPANNED."""
    roots = stars.groupBy("topic", "root").agg((F.count("*") + 1).alias("size"))
    largest = Window.partitionBy("topic").orderBy(F.desc("size"), "root")
    every = roots.withColumn("place", F.row_number().over(largest))
    return (
        every.groupBy("topic")
        .agg(
            F.sum(F.col("size") - 1).alias("united"),
            F.collect_list(F.when(F.col("place") <= SIZES_SHOWN, F.col("size"))).alias("sizes"),
        )
        .select("topic", "united", F.sort_array("sizes", asc=False).alias("sizes"))
    )


def connectivity(nodes: DataFrame, links_by_topic: DataFrame, spanned: DataFrame) -> DataFrame:
    """NODE_TOPICS; topic, links; SPANNED -> TOPICS, for every topic with subscribers."""
    subscribers = (
        nodes.select(F.explode("topics").alias("topic")).groupBy("topic").agg(F.count("*").alias("subscribers"))
    )
    all_of = subscribers.join(links_by_topic, "topic", "left").join(spanned, "topic", "left")
    counted = all_of.select(
        "topic",
        "subscribers",
        F.coalesce("links", F.lit(0)).cast("long").alias("links"),
        (F.col("subscribers") - F.coalesce("united", F.lit(0))).alias("components"),
        F.coalesce("sizes", F.array().cast("array<bigint>")).alias("linked"),
    )
    # Components that have no link are single nodes: they come last.
    alone = F.least("components", F.lit(SIZES_SHOWN)) - F.size("linked")
    sizes = F.concat("linked", F.array_repeat(F.lit(1).cast("long"), alone.cast("int")))
    return counted.select("topic", "subscribers", "links", "components", sizes.alias("sizes"))
