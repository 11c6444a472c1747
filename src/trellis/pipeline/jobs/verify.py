"""`verify`: check whether an overlay of any size is topic-connected, list split topics, and count degrees.

topics.parquet    topic, subscribers, links, components, sizes (of the largest components)
degrees.parquet   degree, nodes
The manifest says `tco`, counts and names the topics most split.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.file_systems import for_reader
from trellis.pipeline.jobs.run import Paths, Report, Run, running
from trellis.pipeline.stages import components
from trellis.pipeline.stages import verify as stage

GROUP_LINKS = 500_000  # links of G(t) of several topics, held at once by a worker: about 100 MB
TOPIC_LINKS_MAX = 2_000_000  # a topic with more of them goes through the distributed pass
EXAMPLES = 3
SPLIT_SHOWN = 20


def verify(
    spark: SparkSession,
    interests: Paths,
    overlay: Paths,
    output: str,
    *,
    topic_links_max: int = TOPIC_LINKS_MAX,
    overwrite: bool = False,
) -> Report:
    """Write the result of checking the overlay (u, v) over the interests (node, topic).

    topic_links_max  a topic with more links than one worker shall hold is searched by all of them together
    """
    if topic_links_max < 0:
        raise InputError("", f"topics of at most {topic_links_max} links", "give 0 or more")
    parameters = {"topic_links_max": topic_links_max}
    with running(spark, "verify", output, parameters=parameters, overwrite=overwrite, kernels=True) as (run, reports):
        run.step("reading interests")
        nodes = run.keep(stage.node_topics(run.read_interests(interests)))
        facts = counted_subscriptions(nodes, str(interests))
        links = _links(run, overlay)
        facts |= {"links": _count_links(links, str(overlay))}
        run.step("degrees")
        facts |= {"degree": _degrees(run, nodes, links, str(overlay))}
        run.step("links inside the topics")
        shared = run.keep(stage.shared_topics(links, nodes))
        idle = shared.agg(F.count_if(F.size("shared") == 0)).first()
        facts |= {"idle_links": idle[0] if idle else 0}
        by_topic, large = _searched(run, stage.topic_links(shared), nodes, topic_links_max)
        run.facts.clear()
        run.facts |= {"tco": None} | facts | {"large_topics": large} | _verdict(by_topic)
        run.write(by_topic.orderBy(F.desc("components"), "topic"), "topics.parquet")
    return reports[0]


def counted_subscriptions(nodes: DataFrame, where: str) -> dict[str, Any]:
    """Count nodes, subscriptions and rows beyond these of a table with topics, rows; InputError where there is none."""
    tally = nodes.agg(
        F.count("*").alias("nodes"), F.sum(F.size("topics")).alias("subscriptions"), F.sum("rows").alias("rows")
    ).first()
    if tally is None or not tally["nodes"]:
        raise InputError(where, "there is no subscription in it", "give interests with rows node, topic")
    repeated = tally["rows"] - tally["subscriptions"]
    return {"nodes": tally["nodes"], "subscriptions": tally["subscriptions"], "repeated_rows": repeated}


def _links(run: Run, paths: Paths) -> DataFrame:
    """The overlay in any form of the shared data, each link once, with how often it was given."""
    run.step("reading the overlay")
    parts = [for_reader(file.path) for file in run.files(paths) if file.path.endswith(".parquet")]
    if parts:  # beside them lies the manifest of the job that wrote them
        table = run.spark.read.parquet(*parts)
        missing = [name for name in stage.LINKS.names if name not in table.columns]
        if missing:
            raise InputError(str(paths), f'there is no column "{missing[0]}"', "an overlay has columns u, v")
        table = table.select(F.col("u").cast("string"), F.col("v").cast("string"))
    else:
        _, rows = run.read(paths, "pairs", ("pairs",), columns=("u", "v"))
        table = rows.toDF("u", "v")
    return run.keep(stage.counted_links(table))


def _count_links(links: DataFrame, where: str) -> int:
    """Their number; InputError, with examples, where they are no simple graph."""
    wrong: dict[str, tuple[Column, str]] = {
        "links without a node at one end": (F.col("u").isNull() | F.col("v").isNull(), "name both ends"),
        "nodes linked to themselves": (F.col("u") == F.col("v"), "remove the self-loops"),
        "links repeated": (F.col("rows") > 1, "give each link once, in one direction"),
    }
    tally = links.agg(F.count("*"), *[F.count_if(is_wrong) for is_wrong, _ in wrong.values()]).first()
    assert tally is not None  # an aggregate without groups always has its one row
    for count, (what, (is_wrong, remedy)) in zip(tally[1:], wrong.items(), strict=True):
        if count:
            shown = links.where(is_wrong).orderBy("u", "v").limit(EXAMPLES).collect()
            said = ", ".join(f'"{row.u}" - "{row.v}"' for row in shown)
            raise InputError(where, f"{count:,} {what}: {said}", remedy)
    return int(tally[0])


def _degrees(run: Run, nodes: DataFrame, links: DataFrame, where: str) -> dict[str, float]:
    """Write how many nodes have each degree; InputError where a link ends at a node without interests."""
    by_node = stage.node_degrees(nodes, links)
    table = run.keep(by_node.groupBy("degree", "known").agg(F.count("*").alias("nodes")))
    unknown = table.where(~F.col("known")).agg(F.sum("nodes")).first()
    if unknown and unknown[0]:
        shown = by_node.where(~F.col("known")).orderBy("node").limit(EXAMPLES).collect()
        said = ", ".join(f'"{row.node}"' for row in shown)
        raise InputError(
            where,
            f"{unknown[0]:,} nodes at the ends of links have no interests: {said}",
            "give the interests that the overlay was made for",
        )
    run.write(table.select("degree", "nodes").orderBy("degree"), "degrees.parquet")
    totals = table.agg(F.max("degree"), F.sum(F.col("degree") * F.col("nodes")) / F.sum("nodes")).first()
    assert totals is not None
    return {"max": totals[0], "mean": totals[1]}


def _searched(run: Run, links: DataFrame, nodes: DataFrame, topic_links_max: int) -> tuple[DataFrame, int]:
    """TOPICS, and how many of them were too large for one worker."""
    counts = run.keep(links.groupBy("topic").agg(F.count("*").alias("links")))
    is_large = F.col("links") > topic_links_max
    tally = counts.agg(F.count_if(is_large), F.sum(F.when(~is_large, F.col("links")))).first()
    large, small_links = (tally[0], tally[1] or 0) if tally else (0, 0)
    small = links
    if large:
        largest = counts.where(is_large).select("topic")
        stars = _stars(run, links.join(largest, "topic", "left_semi"))
        small = links.join(largest, "topic", "left_anti")
    run.step("TC-components of the topics")
    spanned = stage.spanned_in_groups(small, groups=-(-small_links // GROUP_LINKS) or 1)
    if large:
        spanned = spanned.union(stage.spanned_by_stars(stars))
    return run.keep(stage.connectivity(nodes, counts, spanned)), large


def _stars(run: Run, links: DataFrame) -> DataFrame:
    edges, rounds = components.edges_of(links), 0
    while True:
        rounds += 1
        run.step(f"TC-components of large topics, round {rounds}")
        edges, _ = run.settle(components.small_star(components.large_star(edges)))
        if components.not_yet_stars(edges).isEmpty():
            return edges


def _verdict(by_topic: DataFrame) -> dict[str, Any]:
    split = F.col("components") > 1
    tally = by_topic.agg(
        F.count("*").alias("topics"),
        F.count_if(split).alias("split_topics"),
        F.sum("components").alias("components"),
    ).first()
    assert tally is not None
    facts = {**tally.asDict(), "tco": tally["split_topics"] == 0, "split": []}
    if tally["split_topics"]:
        shown = by_topic.where(split).orderBy(F.desc("components"), "topic").limit(SPLIT_SHOWN).collect()
        facts["split"] = [{**row.asDict(), "sizes": list(row["sizes"])} for row in shown]
    facts["components_missing"] = tally["components"] - tally["topics"]
    return facts
