"""Turn a churn trace into a schedule of joins, leaves, crashes and interest changes."""

from __future__ import annotations

from trellis.model import ChurnTrace, Event, Interests, replay
from trellis.simulate.schedule import Fault, Schedule


def schedule_of(trace: ChurnTrace, interests: Interests, *, start_ms: int = 0, every_ms: int | None = None) -> Schedule:
    """Return the schedule that replays `trace`, with its rows in their order.

    The times of the trace are seconds; a schedule has whole milliseconds. If `every_ms` is given, the times are ignored
    and one event happens every `every_ms`. Traces of machine events span a month in which mostly nothing happens, and
    gossip during that time would only cost computing.
    """
    faults: list[Fault] = []
    first: dict[str, Event] = {}
    for event in replay(trace, interests):
        first.setdefault(event.node, event.event)
        topics = tuple(sorted(event.topics)) if event.event is Event.join else event.topics
        at_ms = round(event.time * 1000) if every_ms is None else every_ms * len(faults)
        faults.append(Fault(start_ms + at_ms, event.event.name, (event.node,), topics=topics))
    absent = tuple(sorted(name for name, kind in first.items() if kind is Event.join))
    return Schedule(tuple(faults), absent)
