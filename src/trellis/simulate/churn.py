"""A churn trace as a schedule: joins, leaves, crashes and interest changes at the times the trace says."""

from __future__ import annotations

from trellis.model import ChurnTrace, Event, Interests, replay
from trellis.simulate.schedule import Fault, Schedule


def schedule_of(trace: ChurnTrace, interests: Interests, *, start_ms: int = 0, every_ms: int | None = None) -> Schedule:
    """Times of the trace are seconds; a schedule counts whole milliseconds, and keeps the order of the rows.

    `every_ms` maps the trace onto rounds instead, one event after the other: a month of machine events is mostly
    silence, in which gossip would go on for nothing.
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
