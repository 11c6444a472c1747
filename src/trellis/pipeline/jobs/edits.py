"""`edits`: an edit log -> interests: random pages, with all users who edited them.  [Magnet 4.5: 3,000 topics]"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline.jobs.run import MAX_BAD_SHARE, OnBadRows, Paths, Report, running
from trellis.pipeline.sources.parsing import among_good
from trellis.pipeline.stages import interests

FORMATS = ("wikipedia",)
TOPICS = 3000


def edits(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    format: str | None = None,
    topics: int | None = TOPICS,
    drop_robots: bool = False,
    drop_anonymous: bool = False,
    mask_secret: int | str | None = None,
    seed: int | str = 0,
    on_bad_rows: OnBadRows = "fail",
    max_bad_share: float = MAX_BAD_SHARE,
    overwrite: bool = False,
) -> Report:
    """Write the interests of the editors of `topics` random pages (None: of all pages).

    mask_secret   keys the masks of internet addresses. It is not written anywhere. Without it the seed is used, which
                  is in the manifest: give a secret, or drop_anonymous, before you publish a result.
    """
    if topics is not None and topics < 1:
        raise InputError("", f"{topics} topics", "ask for 1 or more")
    parameters = {
        "format": format,
        "topics": topics,
        "drop_robots": drop_robots,
        "drop_anonymous": drop_anonymous,
        "mask_secret_given": mask_secret is not None,
        "on_bad_rows": on_bad_rows,
        "max_bad_share": max_bad_share,
    }
    with running(spark, "edits", output, parameters=parameters, seed=seed, overwrite=overwrite) as (run, reports):
        counts = {
            "users": F.countDistinct(among_good(F.col("user"))),
            "pages": F.countDistinct(among_good(F.col("page"))),
            "rows_by_robots": F.count_if(among_good(F.col("robot"))),
            "rows_by_anonymous": F.count_if(among_good(F.col("anonymous"))),
            "rows_masked": F.count_if(among_good(F.col("masked"))),
        }
        secret = seed if mask_secret is None else mask_secret
        _, log = run.read(paths, format, FORMATS, counts=counts, secret=secret)
        if drop_robots:
            log = log.where(~F.col("robot"))
        if drop_anonymous:
            log = log.where(~F.col("masked"))
        pairs = run.keep(interests.edits_to_interests(log))
        run.facts["user_page_pairs"] = pairs.count()
        if topics is not None:
            pairs = interests.with_random_topics(pairs, topics=topics, seed=seed)
        if not run.write(pairs.orderBy("node", "topic")):
            raise InputError("", "no edit is left after dropping robots and anonymous users", "drop less")
        chosen = pairs.agg(F.countDistinct("node"), F.countDistinct("topic")).head()
        run.facts |= dict(zip(("nodes", "topics"), chosen or (), strict=True))
    return reports[0]
