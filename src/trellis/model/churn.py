"""Define churn traces: which nodes join, leave, crash, subscribe and unsubscribe, and when.

I1  Times never decrease.
I2  Only an absent node joins; every other event happens to a present node.
I3  At the start, every node of the interests table is present, except those whose first event is a join.
I4  A join may be followed directly by `subscribe` rows of the same node and time; these are its interests. Otherwise
    the joining node has its rows of the interests table.

`ChurnTrace` keeps the rows as they are written. `replay` checks I1-I4 and yields the events, with all topics of a join.
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
    """The kinds of churn events, with the numbers that stand for them in arrays."""

    join = 0
    leave = 1
    crash = 2
    subscribe = 3
    unsubscribe = 4


@dataclass(frozen=True, eq=False)
class ChurnTrace:
    """The rows of a trace.

    `nodes` and `topics` are the names in the trace, which may include names without interests.
    """

    nodes: Names
    topics: Names
    # Never decreasing (I1). The simulator reads times as seconds.
    time: npt.NDArray[np.float64]
    node: IdArray
    event: npt.NDArray[np.int8]
    topic: IdArray  # -1 if the event has no topic

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[float, object, str, object | None]]) -> ChurnTrace:
        """Make a trace from rows (time, node, event, topic or None). For generators, small traces and tests."""
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
        """Return a table with columns time, node, event and topic, in time order."""
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
    """One event. `topics` has all interests of a joining node, or the one topic of a subscription change."""

    time: float
    event: Event
    node: str
    topics: tuple[str, ...] = field(default=())
    row: int = 0  # index of its row in the trace


def replay(trace: ChurnTrace, interests: Interests) -> Iterator[ChurnEvent]:
    """Yield the events in order.

    For a row that cannot happen, raise an InputError that names `row N`, counted from 0.
    """
    state = _Presence(trace, interests)
    row = 0
    while row < len(trace):
        event = state.event_at(row)
        state.apply(event)
        yield event
        row += 1 + (len(event.topics) if event.event is Event.join and state.said_its_topics(event) else 0)


class _Presence:
    """The present nodes and their topics, while a trace is replayed."""

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
        """Return the event of a row, with its topics. Raise RowError if it is malformed."""
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
        """Return the interests of a joining node (I4)."""
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
        """Return whether the interests of a join are in the trace, right after it."""
        after = event.row + 1
        return (
            after < len(self.trace)
            and self.trace.event[after] == Event.subscribe
            and self.trace.nodes[self.trace.node[after]] == event.node
            and self.trace.time[after] == event.time
        )

    def apply(self, event: ChurnEvent) -> None:
        """Apply an event to the present nodes. Raise RowError if it cannot happen (I2)."""
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
    """An error in one row of a table in memory. The code that read the table adds its file and line."""

    def __init__(self, row: int, what: str, remedy: str) -> None:
        super().__init__(f"row {row}", what, remedy)
        self.row = row
