"""Parts that all commands share: common options, output for people and machines, progress."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from trellis.cli.values import Offer
from trellis.errors import InputError

Seed = Annotated[int, typer.Option("--seed", help="The same seed gives the same bytes.", show_default=True)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
OUTPUT = typer.Option(
    "-o",
    "--output",
    help="Where to write: .parquet, .tsv or .csv; the last two also as .gz.",
    metavar="FILE",
    show_default=False,
)
Output = Annotated[Path, OUTPUT]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw it as well: a .png or .svg file.", metavar="FILE", show_default=False),
]
InterestsFile = Annotated[Path, typer.Argument(help="Table of node, topic.", metavar="INTERESTS", show_default=False)]


class Progress(Protocol):
    """Shows the progress of the work, and its present step if it has several."""

    def __call__(self, done: int, total: int | None, doing: str = "", /) -> None: ...


def examples(*lines: str) -> str:
    """Return the epilog of a help page: commands that can be pasted."""
    return "\n\n".join(["Examples:" if len(lines) > 1 else "Example:", *(f"$ {line}" for line in lines)])


def options_of(kinds: Mapping[str, type]) -> Callable[..., Any]:
    """A maker of options for configurations: what an option means, and which of `kinds` take it, comes from them.

    Call it with the option's name, its metavar and, where a shell can complete them, its values.
    """
    from trellis.workloads.options import describe_options

    described = {name: describe_options(kind) for name, kind in kinds.items()}

    def option(name: str, metavar: str, values: Offer | None = None) -> Any:
        takers = [kind for kind, options in described.items() if name in options]
        return typer.Option(
            f"--{name}",
            help=described[takers[0]][name],
            metavar=metavar,
            show_default=False,
            autocompletion=values,
            rich_help_panel=f"For {', '.join(takers)}",
        )

    return option


def setting(text: str) -> tuple[str, str]:
    """Return the key and the value of a --set."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        what = f'"{text}" has no value' if key else f'"{text}" names no key'
        raise InputError("--set", what, "give KEY=VALUE, as in omen.period_ms=500")
    return key.strip(), value


def say(text: str = "") -> None:
    """Print one line of the result on standard output."""
    typer.echo(text)


def note(text: str) -> None:
    """Print one line about the work on standard error, so that a pipe does not get it."""
    typer.echo(text, err=True)


def as_line(result: dict[str, Any]) -> str:
    """Return one line of JSON without control characters, since a terminal would obey those of foreign texts."""
    text = json.dumps(result, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(result)


def show(result: dict[str, Any], as_json: bool, text: Iterable[str]) -> None:
    """Print the result, as JSON or as text."""
    if as_json:
        say(as_line(result))
        return
    for line in text:
        say(line)


def table(rows: Iterable[tuple[str, object]]) -> list[str]:
    """Yield rows in two columns, the first one aligned. `show` prints them for summaries."""
    listed = [(name, number(value)) for name, value in rows]
    width = max((len(name) for name, _ in listed), default=0)
    return [f"{name:<{width}}  {value}" for name, value in listed]


def number(value: object) -> str:
    """Return a number as people write it: 12,583 or 6.46."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"
    return str(value)


_told: list[str] = []  # what this process has said and does not say again


@contextmanager
def says_compiling() -> Iterator[None]:
    """Say once in this process when a kernel is compiled during the block. Kernels in the cache are only loaded."""
    from trellis.jit import compiling, is_cached

    def tell() -> None:
        if _told:
            return
        _told.append("compiling")
        if is_cached():
            note("compiling the kernels for this machine (once, some seconds) ...")
        else:
            note(
                "compiling the kernels, as in every run: no folder for numba's cache can be written, "
                "so name one of yours in NUMBA_CACHE_DIR ..."
            )

    with compiling(tell):
        yield


@contextmanager
def progress(title: str, *, is_timed: bool = True) -> Iterator[Progress]:
    """Show a bar on a terminal, and nothing when piped. Give `report(done, total)`, or `report(done, total, doing)`.

    The bar expects the time left from the parts done, unless `is_timed` is False: `doing` may know better.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, doing="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    columns += [TimeRemainingColumn()] if is_timed else []
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total, doing="": bar.update(task, completed=done, total=total, description=doing or title)


def bytes_allowed(text: str | None) -> int | None:
    """Return the value of --memory in bytes."""
    if text is None:
        return None
    units = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
    figure = text.strip().rstrip("BbiIkKmMgG ")
    unit = text.strip()[len(figure) :].strip().lower()
    try:
        allowed = int(float(figure) * units[unit])
    except (ValueError, KeyError, OverflowError):
        raise InputError(f"--memory {text}", "is not a size", "write for instance 4GiB or 800MiB") from None
    if allowed <= 0:
        raise InputError(f"--memory {text}", "leaves no memory", "write for instance 4GiB or 800MiB")
    return allowed
