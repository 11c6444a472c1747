"""`profile`: measure a workload, as tables and pictures.  [OMen Fig. 7; Vitis Fig. 8, 9; SpiderCast 3.4]

ccdf.parquet          quantity (popularity | size), value, count, ccdf
fits.parquet          quantity, mean, variance, standard_deviation, maximum, slope, exponent, value_min, tail, distance
tdi.parquet           node, percentage, found: tdi(d) of the sampled nodes
correlation.parquet   measure, value
ccdf.png
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trellis.errors import InputError
from trellis.pipeline import statistics
from trellis.pipeline.jobs.run import MAX_BAD_SHARE, OnBadRows, Paths, Report, Run, collected, running
from trellis.pipeline.jobs.social import FORMATS as GRAPHS
from trellis.pipeline.jobs.social import is_directed, refuse_cut_off
from trellis.pipeline.schemas import CCDF
from trellis.pipeline.stages import distributions, graphs

FORMATS = ("interests", *GRAPHS)
QUANTITIES = {"popularity": "topic", "size": "node"}
_FITS = (
    "quantity string, mean double, variance double, standard_deviation double, maximum double, slope double,"
    " exponent double, value_min bigint, tail bigint, distance double"
)


def profile(
    spark: SparkSession,
    paths: Paths,
    output: str,
    *,
    format: str = "interests",
    directed: bool | None = None,
    tdi_closest: int = 20,
    tdi_sample: int = 200,
    seed: int | str = 0,
    on_bad_rows: OnBadRows = "fail",
    max_bad_share: float = MAX_BAD_SHARE,
    overwrite: bool = False,
) -> Report:
    """Profile interests, or a whole social graph (then popularity counts followers and size followees).

    tdi_closest, tdi_sample   d of tdi(d), and how many random nodes it is measured on; 0 nodes: leave it out
    """
    if format not in FORMATS:
        raise InputError("", f'format "{format}" is not read here', f"choose one of {', '.join(FORMATS)}")
    if tdi_closest < 1 or tdi_sample < 0:
        raise InputError("", "tdi of no nodes", "give a tdi_closest of 1 or more")
    parameters = {
        "format": format,
        "directed": directed,
        "tdi_closest": tdi_closest,
        "tdi_sample": tdi_sample,
        "on_bad_rows": on_bad_rows,
        "max_bad_share": max_bad_share,
    }
    with running(spark, "profile", output, parameters=parameters, seed=seed, overwrite=overwrite) as (run, reports):
        interests = run.keep(_interests(run, paths, format, directed))
        run.facts["subscriptions"] = interests.count()
        run.step("distributions")
        measured = {
            quantity: collected(distributions.sizes(interests, column), "size")["size"]
            for quantity, column in QUANTITIES.items()
        }
        run.write(_ccdf_table(run.spark, measured), "ccdf.parquet")
        fits = [_fit(quantity, *measured[quantity]) for quantity in QUANTITIES]
        run.facts["fits"] = fits
        run.write(run.spark.createDataFrame(fits, _FITS).coalesce(1), "fits.parquet")
        run.facts |= {"nodes": int(measured["size"][1].sum()), "topics": int(measured["popularity"][1].sum())}
        if tdi_sample:
            _tdi(run, interests, tdi_closest, tdi_sample, seed)
        correlation = run.keep(distributions.correlations(interests))
        run.write(correlation.coalesce(1), "correlation.parquet")
        run.facts["correlation"] = {row["measure"]: row["value"] for row in correlation.collect()}
        run.folder.write_bytes("ccdf.png", _picture(measured, fits))
    return reports[0]


def _interests(run: Run, paths: Paths, format: str, directed: bool | None) -> DataFrame:
    if format == "interests":
        run.step("reading interests")
        return run.read_interests(paths).distinct()
    source, edges = run.read(paths, format, GRAPHS)
    directed = is_directed(run, source.name, directed)
    refuse_cut_off(run)
    return graphs.interests_of(graphs.simple_edges(edges, directed=directed), directed=directed)


def _ccdf_table(spark: SparkSession, measured: dict[str, tuple[np.ndarray, np.ndarray]]) -> DataFrame:
    rows = [
        (quantity, int(one), int(many), float(share))
        for quantity, (value, count) in measured.items()
        for one, many, share in zip(value, count, statistics.ccdf(count), strict=True)
    ]
    return spark.createDataFrame(rows, CCDF).coalesce(1).orderBy("quantity", "value")


def _fit(quantity: str, value: np.ndarray, count: np.ndarray) -> dict[str, Any]:
    fit = statistics.power_law(value, count)
    slope = statistics.loglog_slope(value, count)
    return {
        "quantity": quantity,
        **statistics.moments(value, count),
        "slope": slope if np.isfinite(slope) else None,
        "exponent": fit.exponent if fit else None,
        "value_min": fit.value_min if fit else None,
        "tail": fit.tail if fit else None,
        "distance": fit.distance if fit else None,
    }


def _tdi(run: Run, interests: DataFrame, closest: int, sample: int, seed: int | str) -> None:
    run.step(f"tdi({closest}) of {sample} nodes")
    table = distributions.top_intersections(interests, closest=closest, sample=sample, seed=seed)
    table = run.keep(table)
    run.write(table.orderBy("node"), "tdi.parquet")
    run.facts["tdi"] = {"closest": closest, "mean": (table.agg(F.avg("percentage")).head() or [None])[0]}


def _picture(measured: dict[str, tuple[np.ndarray, np.ndarray]], fits: list[dict[str, Any]]) -> bytes:
    # Not pyplot: it would choose a screen and keep global state.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, fit in zip(figure.subplots(1, 2), fits, strict=True):
        value, count = measured[fit["quantity"]]
        share = statistics.ccdf(count)
        axes.loglog(value, share, ".", markersize=4, label="share with at least so many")
        if fit["exponent"]:
            tail = value[value >= fit["value_min"]]
            drawn = share[value >= fit["value_min"]][0] * (tail / tail[0]) ** (1 - fit["exponent"])
            axes.loglog(tail, drawn, "-", label=f"power law, exponent {fit['exponent']:.2f}")
        axes.set_title({"popularity": "subscribers of a topic", "size": "topics of a node"}[fit["quantity"]])
        axes.set_xlabel(fit["quantity"])
        axes.set_ylabel("CCDF")
        axes.grid(alpha=0.3)
        axes.legend()
    stream = io.BytesIO()
    # Without the software's version in it the same data gives the same bytes.
    figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
    return stream.getvalue()
