"""Chance for kernels: splitmix64, a counter that is mixed.

A stream is an array of one `uint64`, so that kernels can move it on. Each part of a run has a stream of its own,
derived from the seed and the part's name. So a new draw in one part does not shift the draws of another, and the same
seed gives the same bytes on every machine.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from trellis import ids
from trellis.jit import njit

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32, _11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32), np.uint64(11)
_UNIT = 1.0 / (1 << 53)


def stream(seed: int, *labels: int | str):
    """Return a stream for one purpose."""
    return np.array([ids.stream(seed, "cycles", *labels) & 0xFFFF_FFFF_FFFF_FFFF], np.uint64)


@njit(folder=True, forceinline=True)
def draw(chance):
    """Return the next 64 bits."""
    chance[0] += _STEP
    mixed = chance[0]
    mixed = (mixed ^ (mixed >> _30)) * _FIRST
    mixed = (mixed ^ (mixed >> _27)) * _SECOND
    return mixed ^ (mixed >> _31)


@njit(folder=True, forceinline=True)
def below(chance, count):
    """Return a number from 0 to `count` - 1. `count` is at most 2^31; its bias is below `count` / 2^32."""
    return np.int64(((draw(chance) >> _32) * np.uint64(count)) >> _32)


@njit(folder=True)
def unit(chance):
    """Return a number in [0, 1), a multiple of 2^-53."""
    return np.float64(draw(chance) >> _11) * _UNIT


@njit(folder=True)
def shuffle(order, chance):
    """Put `order` into random order (Fisher-Yates)."""
    for last in range(len(order) - 1, 0, -1):
        place = below(chance, last + 1)
        order[last], order[place] = order[place], order[last]
