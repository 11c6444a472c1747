"""Define the kinds of tables that Trellis reads and writes. A kind is recognized by its columns.

| kind      | columns                   | one row is                                      |
| --------- | ------------------------- | ----------------------------------------------- |
| interests | node, topic               | a subscription                                  |
| rates     | topic, rate               | the publication rate of a topic                 |
| overlay   | u, v                      | a link                                          |
| churn     | time, node, event, topic  | an event of a node, in time order               |
| costs     | u, v, cost                | the cost of a link between two nodes or regions |
| regions   | node, region              | the region of a node                            |
| caps      | node, links_max           | the most links that a node may have             |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trellis.errors import InputError


@dataclass(frozen=True)
class Kind:
    """One kind of table, with its columns in the order in which they are written."""

    name: str
    names: tuple[str, ...]  # columns of names, which are never empty
    numbers: tuple[str, ...] = ()  # columns of finite numbers
    optional: tuple[str, ...] = ()  # columns of names that may be empty
    # All columns in their order; empty: names, numbers, optional.
    order: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.order or (*self.names, *self.numbers, *self.optional)


INTERESTS = Kind("interests", ("node", "topic"))
RATES = Kind("rates", ("topic",), numbers=("rate",))
OVERLAY = Kind("overlay", ("u", "v"))
CHURN = Kind(
    "churn trace",
    ("node", "event"),
    numbers=("time",),
    optional=("topic",),
    order=("time", "node", "event", "topic"),
)
COSTS = Kind("costs", ("u", "v"), numbers=("cost",))
REGIONS = Kind("regions", ("node", "region"))
CAPS = Kind("caps", ("node",), numbers=("links_max",))
KINDS = (INTERESTS, RATES, OVERLAY, CHURN, COSTS, REGIONS, CAPS)


def kind_of(columns: Iterable[str], where: str) -> Kind:
    """Return the kind of table that has exactly these columns, in any order."""
    listed = list(columns)
    for kind in KINDS:
        if sorted(kind.columns) == sorted(listed):
            return kind
    known = "; ".join(f"{kind.name}: {', '.join(kind.columns)}" for kind in KINDS)
    raise InputError(
        where,
        f"no table of ours has the columns {', '.join(listed) or '(none)'}",
        f"we know {known}; if they only have other names, say which they are: --columns node=NAME,topic=NAME",
    )


def expect_columns(kind: Kind, columns: Iterable[str], where: str) -> None:
    """Raise InputError unless these are exactly the columns of `kind`, in any order."""
    listed = list(columns)
    missing = [column for column in kind.columns if column not in listed]
    extra = [column for column in listed if column not in kind.columns]
    wanted = f"a table of {kind.name} has exactly the columns {', '.join(kind.columns)}"
    if missing and kind is INTERESTS:  # Other programs often write such tables.
        raise InputError(
            where,
            f"column {', '.join(missing)} is missing: the first line is {_shown(listed)}",
            "if it names the columns, say which they are: --columns node=NAME,topic=NAME; if it is a row: --no-header",
        )
    if missing:
        raise InputError(where, f"column {', '.join(missing)} is missing", f"{wanted}, named in the first line")
    if extra and kind is INTERESTS:
        what = f"column {', '.join(map(repr, extra))} is not known"
        raise InputError(where, what, f"{wanted}: to leave others out, give --columns node=node,topic=topic")
    if extra:
        raise InputError(where, f"column {', '.join(map(repr, extra))} is not known", wanted)
    if len(set(listed)) != len(listed):
        raise InputError(where, "a column is there twice", wanted)


def _shown(columns: list[str]) -> str:
    text = ", ".join(columns)
    return f'"{text if len(text) <= 120 else text[:119] + "…"}"'
