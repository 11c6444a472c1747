"""`trellis convert FROM TO`: convert a table of Trellis into another format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from trellis.cli.common import AsJson, examples, show
from trellis.cli.reading import Reading, reads_interests
from trellis.errors import InputError

EXAMPLE = examples(
    "trellis convert interests.tsv interests.parquet",
    "trellis convert overlay.parquet overlay.graphml",
    "trellis convert export.csv interests.parquet --columns node=client_id,topic=subscription",
)


@reads_interests
def convert(
    source: Annotated[Path, typer.Argument(metavar="FROM", help="A file, or a folder of Parquet parts.")],
    target: Annotated[Path, typer.Argument(metavar="TO", help="The name tells the format; .graphml for overlays.")],
    *,
    reading: Reading,
    as_json: AsJson = False,
) -> None:
    """Write a table in another format: Parquet, TSV, CSV, gzip, GraphML.

    The columns tell the kind of the table: interests, rates, overlay or churn trace. Rows keep their order, and each is
    checked. With --columns the table may be of any other program: only these columns are kept.
    """
    from trellis.model import expect_format, write_table
    from trellis.model.graphml import write_graphml
    from trellis.model.kinds import CHURN, INTERESTS, OVERLAY
    from trellis.model.read import churn_in, first_rows, interests_in, overlay_in

    graph = target.suffix == ".graphml"
    if not graph:
        expect_format(target)
    rows = reading.rows(source)
    if graph and rows.kind is not OVERLAY:
        raise InputError(str(source), f"this is a table of {rows.kind.name}", "only an overlay (u, v) becomes GraphML")
    # Reading it as its kind finds repeated rows, self-loops and falling times, so no error is passed on.
    if rows.kind is INTERESTS:
        interests = interests_in(rows, reading.repeated)
        repeated = rows.table.num_rows - interests.subscriptions
        if repeated:
            reading.say_merged(source, repeated)
            rows = replace(rows, table=rows.table.take(first_rows(rows)))
    elif rows.kind is CHURN:
        churn_in(rows)
    elif rows.kind is OVERLAY:
        overlay = overlay_in(rows)
    if graph:
        write_graphml(overlay, target)
    else:
        write_table(rows.table, target)
    result = {"kind": rows.kind.name, "rows": rows.table.num_rows, "file": str(target)}
    show(result, as_json, [f"{target}: {rows.table.num_rows:,} rows of {rows.kind.name}"])
