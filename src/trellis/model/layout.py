"""Describe tables of other programs: which of their columns are ours, and whether the first line names them.

Layout.of("node=client_id,topic=subscription")      by name; columns that are not named are ignored
Layout.of("client_id,subscription")                 the same, in the order of our columns
Layout.of("node=3,topic=1", header=False)           by number, from 1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trellis.errors import InputError
from trellis.model.kinds import INTERESTS, KINDS, Kind, expect_columns


@dataclass(frozen=True)
class Layout:
    """The layout of a table. By default it is that of Trellis's own tables."""

    # our column -> its name in the table, or its number from 1
    columns: Mapping[str, str] = field(default_factory=dict)
    header: bool = True  # whether the first line of a text table names the columns
    separator: str | None = None  # one character that separates fields of a text table; None: by the file's name

    @classmethod
    def of(
        cls, columns: str | Mapping[str, str | int] | None, *, header: bool = True, separator: str | None = None
    ) -> Layout:
        """Return the layout that a user has described. Raise InputError if it makes no sense."""
        if separator is not None:
            separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
            if len(separator.encode()) != 1 or separator in '"\r\n':
                raise InputError(f"--separator {separator!r}", "is not one character", "give for instance ';' or tab")
        if isinstance(columns, str):
            columns = _parsed(columns)
        named = {ours: str(theirs) for ours, theirs in (columns or {}).items()}
        if len(set(named.values())) != len(named):
            raise InputError("--columns", "one column is named twice", "name a different one for each")
        return cls(named, header, separator)

    @property
    def kind(self) -> Kind | None:
        """Return the kind of table that has the named columns, or None if no column is named."""
        if not self.columns:
            return None
        return next((kind for kind in KINDS if set(self.columns) == set(kind.columns)), INTERESTS)

    def places(self, kind: Kind, fields: Sequence[str], where: str) -> dict[str, int]:
        """Return for each column of `kind` its index, from 0, among the columns of the table.

        fields  the names in the first line, or its fields if it does not name columns
        """
        unknown = [name for name in self.columns if name not in kind.columns]
        if unknown:
            known = f"the columns of {kind.name} are {', '.join(kind.columns)}"
            raise InputError(f"--columns {unknown[0]}=...", "is no column of ours", f"{known}: write {_example(kind)}")
        if not self.columns and self.header:
            expect_columns(kind, fields, where)
            return {name: list(fields).index(name) for name in kind.columns}
        if not self.columns and len(fields) == len(kind.columns):
            return {name: index for index, name in enumerate(kind.columns)}
        if not self.columns:
            raise InputError(
                where,
                f"the line has {len(fields)} fields, and {', '.join(kind.columns)} are wanted",
                f"say which they are, by number from 1: {_example(kind, '1', '2')}",
            )
        places = {name: self._index(kind, name, fields, where) for name in kind.columns}
        if len(set(places.values())) != len(places):
            raise InputError("--columns", "two of our columns are the same one there", "name a different one for each")
        return places

    def _index(self, kind: Kind, name: str, fields: Sequence[str], where: str) -> int:
        wanted = self.columns.get(name, name)
        if self.header and wanted in fields:
            if list(fields).count(wanted) > 1:
                raise InputError(where, f'column "{wanted}" is there twice', f"give its number: --columns {name}=N")
            return list(fields).index(wanted)
        if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted) <= len(fields):
            return int(wanted) - 1
        if not self.header:
            what = (
                f"there is no field {wanted}: the line has {len(fields)} fields, and --no-header leaves them nameless"
            )
            raise InputError(where, what, f"give numbers from 1 to {len(fields)}: {_example(kind, '1', '2')}")
        listed = ", ".join(fields)
        raise InputError(where, f'there is no column "{wanted}"', f"the columns are {listed}: write {_example(kind)}")


OURS = Layout()


def _parsed(text: str) -> dict[str, str]:
    parts = [part.strip() for part in text.split(",")]
    pairs = [part.partition("=") for part in parts]
    if all(equals and ours.strip() and theirs.strip() for ours, equals, theirs in pairs):
        named = {ours.strip(): theirs.strip() for ours, _, theirs in pairs}
        if len(named) == len(pairs):
            return named
    elif len(parts) == len(INTERESTS.columns) and not any(equals for _, equals, _ in pairs) and all(parts):
        return dict(zip(INTERESTS.columns, parts, strict=True))
    raise InputError(f"--columns {text}", "does not say which column is which", f"write {_example(INTERESTS)}")


def _example(kind: Kind, *theirs: str) -> str:
    named = theirs if len(theirs) == len(kind.columns) else ["NAME"] * len(kind.columns)
    return "--columns " + ",".join(f"{ours}={there}" for ours, there in zip(kind.columns, named, strict=True))
