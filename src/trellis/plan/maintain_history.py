"""Keep the history of a run of `maintain`: one row per round.

round, time, event, node    the event, counted from 1
subscriptions               topics of the node: before it left if it leaves, otherwise after the event
shadow_set                  |S|; all present nodes for naive joins and leaves and for rebuild  [SH Def. 3]
links_added, links_removed  links that ended with their node count as removed (A-MOD-2)
repair_ratio                both together, divided by the links before the event; null if there were none
degree_max, degree_mean     over the present nodes, after the event
nodes, links                present, after the event
seconds_step2, seconds      processor time of Step II alone, and of the whole round
split_topics                topics that the full check found split; null if none was requested
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa


class Round(NamedTuple):
    """One row of the history. The module's docstring explains the columns."""

    round: int
    time: float
    event: str
    node: str
    subscriptions: int
    shadow_set: int
    links_added: int
    links_removed: int
    repair_ratio: float | None
    degree_max: int
    degree_mean: float
    nodes: int
    links: int
    seconds_step2: float
    seconds: float
    split_topics: int | None


SCHEMA = pa.schema(
    [
        pa.field(name, pa.string() if name in ("event", "node") else pa.float64() if is_real else pa.int64())
        for name, is_real in (
            (name, name in ("time", "repair_ratio", "degree_mean", "seconds_step2", "seconds"))
            for name in Round._fields
        )
    ]
)


class History:
    """The rounds so far. It has only complete rounds, so it may be written at any time."""

    def __init__(self, rounds_expected: int) -> None:
        self.rounds_expected = rounds_expected
        self._rounds: list[Round] = []

    def append(self, round_: Round) -> None:
        self._rounds.append(round_)

    def __len__(self) -> int:
        return len(self._rounds)

    def __getitem__(self, index: int) -> Round:
        return self._rounds[index]

    def __iter__(self) -> Iterator[Round]:
        return iter(self._rounds)

    @property
    def complete(self) -> bool:
        """Return whether all rounds of the trace are there. A writer must mark an incomplete history as partial."""
        return len(self) == self.rounds_expected

    def to_table(self, *, times: bool = True) -> pa.Table:
        """Return the table. Without `times`, the same seed gives the same table.

        Its metadata tells whether it is complete.
        """
        columns = list(zip(*self._rounds, strict=True)) or [()] * len(SCHEMA)
        about = {"complete": self.complete, "rounds": len(self), "rounds_expected": self.rounds_expected}
        table = pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
            schema=SCHEMA.with_metadata({"trellis.history": json.dumps(about)}),
        )
        return table if times else table.drop_columns(["seconds_step2", "seconds"])
