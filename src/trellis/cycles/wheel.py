"""Timers in cycles: a wheel of slots, one for each tick to come, and in each slot the timers that are due then.

Timers are numbered. Each is due once at most: setting it again replaces it. Of those that are due in the same tick the
one that was set first comes first. A slot is a ring of its timers, linked both ways, that begins and ends at the slot.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.jit import njit


class Wheel(NamedTuple):
    timers: int
    slots: int  # more than the ticks of the longest delay
    after: Any  # int32[timers + slots]: the next one of the same slot; itself: not set
    before: Any  # int32[timers + slots]


def make_wheel(timers: int, delay_max: int) -> Wheel:
    """Return a wheel of timers that are not set."""
    slots = delay_max + 1
    return Wheel(timers, slots, *(np.arange(timers + slots, dtype=np.int32) for _ in range(2)))


@njit(folder=True)
def set_timer(wheel, timer, tick):
    """Let `timer` be due at `tick`, which is at most `slots` - 1 ticks away."""
    after, before = wheel.after, wheel.before
    after[before[timer]], before[after[timer]] = after[timer], before[timer]
    slot = wheel.timers + tick % wheel.slots
    last = before[slot]
    after[last], before[timer] = timer, last
    after[timer], before[slot] = slot, timer


@njit(folder=True)
def unset_timer(wheel, timer):
    """Let `timer` not be due at all."""
    after, before = wheel.after, wheel.before
    after[before[timer]], before[after[timer]] = after[timer], before[timer]
    after[timer] = before[timer] = timer


@njit(folder=True)
def next_timer(wheel, tick):
    """Return the next timer that is due at `tick`, which is not set any more then; -1: none is due."""
    after, before = wheel.after, wheel.before
    slot = wheel.timers + tick % wheel.slots
    timer = after[slot]
    if timer == slot:
        return np.int64(-1)
    after[slot], before[after[timer]] = after[timer], slot
    after[timer] = before[timer] = timer
    return np.int64(timer)
