"""Options of all commands that read interests, for tables that other programs have written.

@reads_interests
def plan(interests_file: InterestsFile, ..., reading: Reading) -> None:
    interests = reading.interests(interests_file)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from trellis.cli.common import note
from trellis.cli.values import among

if TYPE_CHECKING:
    from trellis.model import Interests
    from trellis.model.read import Rows

REPEATED = ("merge", "refuse")
_PANEL = "The table of interests"

Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        help="Where node and topic are, by name or by number from 1: node=client_id,topic=subscription.",
        metavar="node=A,topic=B",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="The first line is a row like the others.", rich_help_panel=_PANEL)
]
Separator = Annotated[
    str | None,
    typer.Option(
        "--separator",
        help="Of the fields, for instance ';'; told from the file's name unless given.",
        metavar="CHAR",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Repeated = Annotated[
    str,
    typer.Option(
        "--repeated",
        help="A subscription that is there again: merge counts it once and says how many, refuse stops at its line.",
        metavar="merge|refuse",
        autocompletion=among(REPEATED),
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class Reading:
    """How the user wants tables of interests to be read."""

    columns: str | None = None
    header: bool = True
    separator: str | None = None
    repeated: str = "merge"

    def interests(self, path: Path, rates: Path | None = None) -> Interests:
        """Read interests. Say on standard error how many rows were merged."""
        from dataclasses import replace

        from trellis.model import read_rates
        from trellis.model.kinds import INTERESTS
        from trellis.model.read import interests_in

        rows = self.rows(path, INTERESTS)
        interests = interests_in(rows, self.repeated)
        self.say_merged(path, rows.table.num_rows - interests.subscriptions)
        return interests if rates is None else replace(interests, rates=read_rates(rates, interests.topics))

    def rows(self, path: Path, kind: Any = None) -> Rows:
        """Read a table of `kind`; without it, of the kind that its columns tell."""
        from trellis.model import read_rows
        from trellis.model.layout import Layout

        return read_rows(path, kind, Layout.of(self.columns, header=self.header, separator=self.separator))

    def say_merged(self, path: Path, count: int) -> None:
        if count:
            rows = "1 repeated row was" if count == 1 else f"{count:,} repeated rows were"
            note(f"{path}: {rows} merged; --repeated refuse stops at the first instead")


def _options(
    columns: Columns = None, no_header: NoHeader = False, separator: Separator = None, repeated: Repeated = "merge"
) -> None: ...


def reading_parameters() -> list[inspect.Parameter]:
    """The options as parameters of a command, to be taken out again with `reading_of`."""
    hints = get_type_hints(_options, include_extras=True)
    parameters = inspect.signature(_options).parameters.values()
    return [one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]


def reading_of(values: dict[str, Any]) -> Reading:
    """Take the options out of what a command was given."""
    taken = {one.name: values.pop(one.name) for one in reading_parameters()}
    return Reading(taken["columns"], not taken["no_header"], taken["separator"], taken["repeated"])


def reads_interests(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with a parameter `reading` the options for tables of interests."""
    hints = get_type_hints(command, include_extras=True, localns={"Reading": Reading})
    own = [
        one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for one in inspect.signature(command).parameters.values()
        if one.name != "reading"
    ]
    added = reading_parameters()

    @wraps(command)
    def with_options(**values: Any) -> None:
        command(reading=reading_of(values), **values)

    with_options.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in (*own, *added)}
    del with_options.__wrapped__  # its signature is not ours
    return with_options
