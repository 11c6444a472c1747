"""Parts that all jobs of `trellis pipeline` share: the options of Spark, the session, the report at the end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from trellis.cli.common import AsJson, progress, show, table
from trellis.cli.values import SPARK_LOG_LEVELS, among
from trellis.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trellis.pipeline.jobs import Report

SMALL_BYTES = 32 << 20
SMALL_PARTITIONS = 8  # instead of Spark's 200: a shuffle of a small table is all overhead

_SPARK = "Spark"
ROWS_PANEL = "Rows and output"
Folder = Annotated[
    str, typer.Option("-o", "--output", help="The folder to write: Parquet parts and a manifest.", metavar="DIR")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the output if it is there.", rich_help_panel=ROWS_PANEL)
]


Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="As in spark-submit, whose own wins; else local[*].",
        metavar="URL",
        rich_help_panel=_SPARK,
        autocompletion=among(["local[*]", "yarn"]),
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", help="A Spark setting, as key=value; may be repeated.", metavar="K=V", rich_help_panel=_SPARK
    ),
]
DriverMemory = Annotated[
    str | None, typer.Option("--driver-memory", help="For instance 4g.", metavar="SIZE", rich_help_panel=_SPARK)
]
LogLevel = Annotated[
    str,
    typer.Option(
        "--log-level",
        help="What Spark itself may print.",
        metavar="LEVEL",
        rich_help_panel=_SPARK,
        autocompletion=among(SPARK_LOG_LEVELS),
    ),
]


def _options(
    master: Master = None,
    conf: Conf = None,
    driver_memory: DriverMemory = None,
    log_level: LogLevel = "off",
    as_json: AsJson = False,
) -> None: ...


def on_spark(job: Callable[..., Report]) -> Callable[..., Report]:
    """Make a command of a function whose first parameter is a Spark session. The options of Spark follow its own.

    If the report says that an overlay is no TCO, the command exits 1. Parameters named `files`, `interests` and
    `overlay` are inputs. If all of them are small, shuffles get few partitions.
    """
    own = _parameters(job)[1:]
    added = _parameters(_options)

    @wraps(job)
    def command(**values: Any) -> Report:
        spark_values = {one.name: values.pop(one.name) for one in added}
        as_json = spark_values.pop("as_json")
        inputs = [values[name] for name in ("files", "interests", "overlay") if values.get(name) is not None]
        with _session(**spark_values, inputs=_flat(inputs)) as spark:
            report = job(spark, **values)
        _show(report, as_json)
        if report.facts.get("tco") is False:
            raise typer.Exit(1)
        return report

    command.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in (*own, *added)}
    del command.__wrapped__  # its signature is not ours
    return command


@contextmanager
def _session(
    master: str | None, conf: list[str] | None, driver_memory: str | None, log_level: str, inputs: list[str]
) -> Iterator[SparkSession]:
    """Give an open session, with a progress bar that shows Spark's own counters."""
    from trellis.pipeline.progress import following
    from trellis.pipeline.session import open_session

    settings = {"spark.sql.shuffle.partitions": str(SMALL_PARTITIONS)} if _are_small(inputs) else {}
    settings |= settings_of(conf)
    with (
        open_session(master, conf=settings, driver_memory=driver_memory, log_level=log_level) as spark,
        progress("Spark tasks") as report,
        # Spark plans during the work, so the number of tasks is known at the end only. Do not show a share of it.
        following(spark, lambda done, _, step: report(done, None, step)),
    ):
        yield spark


def settings_of(conf: list[str] | None) -> dict[str, str]:
    settings = {}
    for entry in conf or []:
        key, equals, value = entry.partition("=")
        if not equals or not key:
            raise InputError(f"--conf {entry}", "is not a setting", "write key=value")
        settings[key.strip()] = value
    return settings


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return [one.replace(annotation=hints[one.name]) for one in inspect.signature(function).parameters.values()]


def _flat(inputs: Iterable[str | list[str]]) -> list[str]:
    return [path for one in inputs for path in ([one] if isinstance(one, str) else one)]


def _are_small(inputs: list[str]) -> bool:
    """Tell whether all inputs are local and small together. An input that cannot be read counts as large."""
    total = 0
    for name in inputs:
        path = Path(name)
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        if not files:
            return False
        total += sum(file.stat().st_size for file in files)
        if total > SMALL_BYTES:
            return False
    return bool(inputs)


def _show(report: Report, as_json: bool) -> None:
    rows: list[tuple[str, object]] = [(f"rows of {name}", count) for name, count in report.rows.items()]
    if report.rejected:
        rows.append(("rows set apart in _rejected", report.rejected))
    rows += [(name.replace("_", " "), fact) for name, fact in report.facts.items() if not isinstance(fact, dict | list)]
    rows.append(("seconds", report.duration_s))
    show(asdict(report), as_json, [f"{report.output}: {report.job}", *table(rows)])
