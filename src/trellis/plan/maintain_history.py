"""What a run of `maintain` tells: one row a round.

round, time, event, node    which event, from 1
subscriptions               topics of the node: of a leaver before it left, otherwise after the event
shadow_set                  |S|; all present nodes for naive joins and leaves and for rebuild  [SH Def. 3]
links_added, links_removed  links that went with their node count as removed (A-MOD-2)
repair_ratio                both together, over the links before the event; null where there were none
degree_max, degree_mean     over the present nodes, after the event
nodes, links                present, after the event
seconds_step2, seconds      processor time of Step II alone, and of the whole round
split_topics                topics found split by the full check; null where none was asked for
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa


class Round(NamedTuple):
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
    """The rounds so far; always whole rounds, so that it may be written at any time."""

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
        """False while rounds of the trace are missing: whoever writes it then must mark it as partial."""
        return len(self) == self.rounds_expected

    def to_table(self, *, times: bool = True) -> pa.Table:
        """Without `times`, the same seed gives the same table. The schema's metadata says whether it is complete."""
        columns = list(zip(*self._rounds, strict=True)) or [()] * len(SCHEMA)
        about = {"complete": self.complete, "rounds": len(self), "rounds_expected": self.rounds_expected}
        table = pa.table(
            [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
            schema=SCHEMA.with_metadata({"trellis.history": json.dumps(about)}),
        )
        return table if times else table.drop_columns(["seconds_step2", "seconds"])
