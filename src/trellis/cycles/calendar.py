"""What is due when, in cycles: a heap of events by time. Events of the same time come in the order of their entry."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.jit import njit

_32 = np.uint64(32)


class Calendar(NamedTuple):
    keys: Any  # uint64: time in the upper half, number of the entry in the lower half
    events: Any  # int64: a kind in the upper half, a node in the lower half
    counts: Any  # int64[2]: events in the heap, and entries so far


def make_calendar(room: int) -> Calendar:
    """Return a calendar with room for `room` events at a time."""
    return Calendar(np.empty(room, np.uint64), np.empty(room, np.int64), np.zeros(2, np.int64))


def more_calendar(calendar: Calendar) -> Calendar:
    """Return the same calendar with room for twice as many events."""
    keys, events, counts = calendar
    return Calendar(
        np.concatenate([keys, np.empty_like(keys)]), np.concatenate([events, np.empty_like(events)]), counts
    )


@njit(folder=True)
def is_full(calendar, more):
    """Return whether there is no room for so many more events."""
    return calendar.counts[0] + more > len(calendar.keys)


@njit(folder=True)
def enter(calendar, time, kind, node):
    """Enter an event."""
    keys, events, counts = calendar
    key, event = (np.uint64(time) << _32) + np.uint64(counts[1]), (np.int64(kind) << 32) + node
    place = counts[0]
    counts[0] += 1
    counts[1] += 1
    while place > 0 and keys[(place - 1) // 2] > key:
        keys[place], events[place] = keys[(place - 1) // 2], events[(place - 1) // 2]
        place = (place - 1) // 2
    keys[place], events[place] = key, event


@njit(folder=True)
def next_time(calendar):
    """Return the time of the next event, or -1."""
    return np.int64(calendar.keys[0] >> _32) if calendar.counts[0] else -1


@njit(folder=True)
def take(calendar):
    """Take the next event. Return its kind and node."""
    keys, events, counts = calendar
    event = events[0]
    counts[0] -= 1
    last, key, moved, place = counts[0], keys[counts[0]], events[counts[0]], 0
    while 2 * place + 1 < last:
        child = 2 * place + 1
        if child + 1 < last and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place], events[place] = keys[child], events[child]
        place = child
    keys[place], events[place] = key, moved
    return event >> 32, event & 0xFFFFFFFF
