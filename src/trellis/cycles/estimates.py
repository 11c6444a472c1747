"""Estimates of medians that are under way, in cycles: an estimate takes one arc after the other.  [MG §2.2]

The walks of an arc end before those of the next one begin, `arc_ms` later. So the far fingers of a node that joins are
chosen on an older and smaller ring than its near ones. A run keeps what it has sampled so far in a slot of its own for
each estimate.

E1  `slot[node]` is -1, or a slot that is in nobody else's use and not among the free ones.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.fingers import MEDIANS_MAX, FingerRule, choose_fingers, like_samples, sample_arc
from trellis.jit import njit

SLOTS = 256  # slots at first
_MARGIN = 4  # slots that one step of a run may take


class Estimates(NamedTuple):
    """The estimates of one ring that are under way."""

    slot: Any  # int32[nodes]: -1: none is under way
    free: Any  # int32[slots]: the free slots are the first ones
    unused: Any  # int64[1]: how many they are
    medians: Any  # uint64[slots, MEDIANS_MAX]
    pool: Any  # int32[slots, walks * MEDIANS_MAX]: where walks ended
    counts: Any  # int32[slots, 2]: of both


def make_estimates(nodes: int, rule: FingerRule, slots: int = SLOTS) -> Estimates:
    """Return slots of which none is in use."""
    return Estimates(
        np.full(nodes, -1, np.int32),
        np.arange(slots, dtype=np.int32),
        np.full(1, slots, np.int64),
        np.empty((slots, MEDIANS_MAX), np.uint64),
        np.empty((slots, rule.walks * MEDIANS_MAX), np.int32),
        np.zeros((slots, 2), np.int32),
    )


def more_estimates(estimates: Estimates, rule: FingerRule) -> Estimates:
    """Return the same estimates with twice as many slots."""
    before = len(estimates.free)
    made = make_estimates(len(estimates.slot), rule, 2 * before)
    for name in ("medians", "pool", "counts"):
        getattr(made, name)[:before] = getattr(estimates, name)
    unused = int(estimates.unused[0])
    made.free[:before] = np.arange(before, 2 * before)
    made.free[before : before + unused] = estimates.free[:unused]
    made.unused[0] = before + unused
    return made._replace(slot=estimates.slot)


@njit(folder=True)
def is_scarce(estimates):
    """Return whether there may be too few free slots for the next step of a run."""
    return estimates.unused[0] < _MARGIN


@njit(folder=True)
def begin_estimate(estimates, node):
    """Begin an estimate. Return False if one is under way."""
    if estimates.slot[node] >= 0:
        return False
    estimates.unused[0] -= 1
    slot = estimates.free[estimates.unused[0]]
    estimates.slot[node] = slot
    estimates.counts[slot, 0] = estimates.counts[slot, 1] = 0
    return True


@njit(folder=True)
def next_arc(estimates, ring, node, rule, interest, chance, scratch):
    """Sample the next arc of an estimate. Return whether it is over, and how many fingers have changed by it."""
    slot = estimates.slot[node]
    medians, samples = estimates.counts[slot, 0], estimates.counts[slot, 1]
    scratch.counts[0], scratch.counts[1] = medians, samples
    scratch.medians[:medians] = estimates.medians[slot, :medians]
    scratch.pool[:samples] = estimates.pool[slot, :samples]
    scratch.likings[:samples] = 1.0
    if not sample_arc(ring, node, rule, chance, scratch):
        medians, samples = scratch.counts[0], scratch.counts[1]
        estimates.medians[slot, :medians] = scratch.medians[:medians]
        estimates.pool[slot, :samples] = scratch.pool[:samples]
        estimates.counts[slot, 0], estimates.counts[slot, 1] = medians, samples
        return False, 0
    estimates.slot[node] = -1
    estimates.free[estimates.unused[0]] = slot
    estimates.unused[0] += 1
    like_samples(node, rule, interest, scratch)
    return True, choose_fingers(ring, node, rule, chance, scratch)
