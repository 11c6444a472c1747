"""Sampling a social graph.  [OMen 6.1; Vitis IV-E; E-13, E-14]

An edge says that `source` follows `target`; in a graph of friendships it is there once, the smaller name first.
The graph itself is only ever joined with small tables of nodes: it never leaves the executors.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trellis.pipeline.chance import order


def simple_edges(edges: DataFrame, *, directed: bool) -> DataFrame:
    """EDGES -> EDGES: no self-loops, each edge once; a friendship given both ways is one edge."""
    kept = edges.where(F.col("source") != F.col("target"))
    if not directed:
        kept = kept.select(F.least("source", "target").alias("source"), F.greatest("source", "target").alias("target"))
    return kept.select("source", "target").distinct()


def degrees(edges: DataFrame, *, directed: bool) -> DataFrame:
    """EDGES -> node, followers, followees: one row a user with at least one edge. Friends follow each other."""
    one, none = F.lit(1).cast("long"), F.lit(0).cast("long")
    ends = edges.select(
        F.explode(
            F.array(
                F.struct(
                    F.col("source").alias("node"),
                    (none if directed else one).alias("followers"),
                    one.alias("followees"),
                ),
                F.struct(
                    F.col("target").alias("node"),
                    one.alias("followers"),
                    (none if directed else one).alias("followees"),
                ),
            )
        ).alias("end")
    ).select("end.*")
    return ends.groupBy("node").agg(F.sum("followers").alias("followers"), F.sum("followees").alias("followees"))


def drawn_nodes(nodes: DataFrame, *, count: int, seed: int | str, purpose: str = "draw") -> DataFrame:
    """NODES -> NODES: `count` of them at random, or all where there are fewer."""
    return nodes.select("node").orderBy(*order(seed, purpose, "node")).limit(count)


def next_level(
    edges: DataFrame, frontier: DataFrame, reached: DataFrame, *, both_directions: bool, small: bool
) -> DataFrame:
    """EDGES, NODES, NODES -> NODES: users that the frontier follows (or that follow it) and that are not yet reached.

    small   the two tables of nodes fit into memory, so the graph is scanned without a shuffle
    """
    hint = F.broadcast if small else _as_is
    nodes = edges.join(hint(frontier), edges["source"] == frontier["node"], "left_semi").select(
        F.col("target").alias("node")
    )
    if both_directions:
        back = edges.join(hint(frontier), edges["target"] == frontier["node"], "left_semi")
        nodes = nodes.union(back.select(F.col("source").alias("node")))
    return nodes.distinct().join(hint(reached), "node", "left_anti").select("node")


def edges_among(edges: DataFrame, nodes: DataFrame, *, small: bool) -> DataFrame:
    """EDGES, NODES -> EDGES: those with both ends among the nodes."""
    hint = F.broadcast if small else _as_is
    ends = hint(nodes.select("node"))
    inside = edges.join(ends, edges["source"] == ends["node"], "left_semi")
    return inside.join(ends, inside["target"] == ends["node"], "left_semi").select("source", "target")


def interests_of(edges: DataFrame, *, directed: bool) -> DataFrame:
    """EDGES -> INTERESTS: a user subscribes to its friends or followees, not to itself.  [E-13]"""
    forth = edges.select(F.col("source").alias("node"), F.col("target").alias("topic"))
    if directed:
        return forth
    return forth.union(edges.select(F.col("target").alias("node"), F.col("source").alias("topic")))


def with_isolated(degree_table: DataFrame, nodes: DataFrame) -> DataFrame:
    """node, followers, followees with a row of zeros for every one of the NODES that has no edge."""
    return nodes.join(degree_table, "node", "left").select(
        "node",
        F.coalesce("followers", F.lit(0)).cast("long").alias("followers"),
        F.coalesce("followees", F.lit(0)).cast("long").alias("followees"),
    )


def _as_is(table: DataFrame) -> DataFrame:
    return table
