"""Churn traces: who joins, leaves, crashes, subscribes and unsubscribes, and when.

I1  times never fall.
I2  a join is of an absent node; every other event is of a present one.
I3  present at the start: every node of the interests table whose first event is not a join.
I4  a join with `subscribe` rows at the same time right behind it has those interests; a join without any
    has its rows of the interests table.

`ChurnTrace` keeps the rows as they are written; `replay` checks I1-I4 and yields what happens, joins whole.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trellis.errors import InputError
from trellis.model.interests import Interests
from trellis.model.names import IdArray, Names


class Event(enum.IntEnum):
    join = 0
    leave = 1
    crash = 2
    subscribe = 3
    unsubscribe = 4


@dataclass(frozen=True, eq=False)
class ChurnTrace:
    """The rows of a trace. `nodes` and `topics` are the trace's own names: it may know more than the interests."""

    nodes: Names
    topics: Names
    time: npt.NDArray[np.float64]
    node: IdArray
    event: npt.NDArray[np.int8]
    topic: IdArray  # -1 where the event has none

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[float, object, str, object | None]]) -> ChurnTrace:
        """From (time, node, event, topic or None) rows. For generators, small traces and tests."""
        listed = list(rows)
        node_names = [str(row[1]) for row in listed]
        topic_names = [None if row[3] is None else str(row[3]) for row in listed]
        nodes, _ = Names.in_order(sorted(set(node_names)))
        topics, _ = Names.in_order(sorted({name for name in topic_names if name is not None}))
        return cls(
            nodes,
            topics,
            np.array([row[0] for row in listed], np.float64),
            nodes.ids_of(node_names),
            np.array([Event[row[2]] for row in listed], np.int8),
            topics.ids_of(pa.array(topic_names, pa.string())),
        )

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        return f"ChurnTrace({len(self)} rows, {len(self.nodes)} nodes)"

    def to_table(self) -> pa.Table:
        """Columns time, node, event, topic, in time order."""
        kinds = pa.array([event.name for event in Event])
        topic_ids = pa.array(self.topic, mask=self.topic < 0)
        return pa.table(
            {
                "time": pa.array(self.time),
                "node": self.nodes.take(self.node),
                "event": kinds.take(pa.array(self.event.astype(np.int32))),
                "topic": self.topics.array.take(topic_ids),
            }
        )


@dataclass(frozen=True)
class ChurnEvent:
    """One thing that happens. `topics`: all interests of a joiner, the one topic of a subscription change."""

    time: float
    event: Event
    node: str
    topics: tuple[str, ...] = field(default=())
    row: int = 0  # the trace row it came from


def replay(trace: ChurnTrace, interests: Interests) -> Iterator[ChurnEvent]:
    """What happens, in order. A row that cannot happen raises InputError naming `row N` (from 0)."""
    state = _Presence(trace, interests)
    row = 0
    while row < len(trace):
        event = state.event_at(row)
        state.apply(event)
        yield event
        row += 1 + (len(event.topics) if event.event is Event.join and state.said_its_topics(event) else 0)


class _Presence:
    """Who is present with which topics while a trace is replayed."""

    def __init__(self, trace: ChurnTrace, interests: Interests) -> None:
        self.trace, self.interests = trace, interests
        first_is_join = np.zeros(len(trace.nodes), bool)
        seen, where = np.unique(trace.node, return_index=True)
        first_is_join[seen] = trace.event[where] == Event.join
        late = {name for name, is_late in zip(trace.nodes, first_is_join, strict=True) if is_late}
        self.topics_of: dict[str, set[str]] = {name: self._own(name) for name in interests.nodes if name not in late}

    def _own(self, node: str) -> set[str]:
        if node not in self.interests.nodes:
            return set()
        return set(self.interests.topics.take(self.interests.topics_of(self.interests.nodes.id_of(node))).to_pylist())

    def event_at(self, row: int) -> ChurnEvent:
        trace = self.trace
        if row and trace.time[row] < trace.time[row - 1]:
            raise RowError(
                row, f"time {trace.time[row]:g} comes after {trace.time[row - 1]:g}", "sort the rows by time"
            )
        node, event = trace.nodes[trace.node[row]], Event(int(trace.event[row]))
        if event is Event.join:
            topics = self._joiner_topics(row, node)
        elif event in (Event.subscribe, Event.unsubscribe):
            topics = (trace.topics[trace.topic[row]],)
        else:
            topics = ()
        return ChurnEvent(float(trace.time[row]), event, node, topics, row)

    def _joiner_topics(self, row: int, node: str) -> tuple[str, ...]:
        trace, end = self.trace, row + 1
        while (
            end < len(trace)
            and trace.event[end] == Event.subscribe
            and trace.node[end] == trace.node[row]
            and trace.time[end] == trace.time[row]
        ):
            end += 1
        said = trace.topics.take(trace.topic[row + 1 : end]).to_pylist()
        for offset, topic in enumerate(said):
            if topic in said[:offset]:
                raise RowError(
                    row + 1 + offset, f'node "{node}" subscribes to "{topic}" twice', "remove one of the rows"
                )
        topics = tuple(said) if said else tuple(sorted(self._own(node)))
        if not topics:
            raise RowError(
                row,
                f'node "{node}" joins without interests',
                "add its subscribe rows at the same time, or its rows to the interests table",
            )
        return topics

    def said_its_topics(self, event: ChurnEvent) -> bool:
        after = event.row + 1
        return (
            after < len(self.trace)
            and self.trace.event[after] == Event.subscribe
            and self.trace.nodes[self.trace.node[after]] == event.node
            and self.trace.time[after] == event.time
        )

    def apply(self, event: ChurnEvent) -> None:
        present = event.node in self.topics_of
        if event.event is Event.join:
            if present:
                raise RowError(
                    event.row,
                    f'node "{event.node}" joins but is already there',
                    "remove the row, or add its leave before",
                )
            self.topics_of[event.node] = set(event.topics)
            return
        if not present:
            raise RowError(
                event.row,
                f'{event.event.name} of node "{event.node}", which is not there',
                "remove the row, or add its join before",
            )
        held = self.topics_of[event.node]
        if event.event is Event.subscribe:
            if event.topics[0] in held:
                raise RowError(
                    event.row,
                    f'node "{event.node}" already subscribes to "{event.topics[0]}"',
                    "remove the row",
                )
            held.add(event.topics[0])
        elif event.event is Event.unsubscribe:
            if event.topics[0] not in held:
                raise RowError(
                    event.row,
                    f'node "{event.node}" does not subscribe to "{event.topics[0]}"',
                    "remove the row",
                )
            held.remove(event.topics[0])
        else:
            del self.topics_of[event.node]


class RowError(InputError):
    """Wrong at one row of a table in memory; whoever read the table knows its file and line."""

    def __init__(self, row: int, what: str, remedy: str) -> None:
        super().__init__(f"row {row}", what, remedy)
        self.row = row
