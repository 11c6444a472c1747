"""Whole runs of both engines agree in distribution.

Each seed draws interests, and runs them on both engines. Of every measure the differences of these pairs must not tell
the engines apart by a two-sided t-test, at a level of 1% for all measures of a test together (Bonferroni). A test of
few runs is blind to small differences, so the means must not be further apart than the bounds below, either.
"""

from __future__ import annotations

import pytest
from scipy.stats import t as students_t

from both_engines import compare, interests_of, run_cycles, run_events, system_of

LEVEL = 0.01
# How far the means of a measure may be apart: a share of the event engine's mean, and an amount on top of it.
BOUNDS = {
    "missed": (0.05, 0.002),
    "overhead": (0.05, 0.005),
    "overhead per node": (0.05, 0.005),
    "delay": (0.03, 0.0),
    "messages per delivery": (0.03, 0.0),
    "duplicates per delivery": (0.04, 0.0),
    "message overhead": (0.06, 0.004),
    "degree": (0.015, 0.0),
    "degree deviation": (0.08, 0.0),
    "degree max": (0.10, 1.0),
    "clusters": (0.05, 0.05),
    "gateways": (0.05, 0.05),
}


def assert_alike(name: str, size: tuple[int, int, int], level: str, cycles: int, linger: int, seeds: int) -> None:
    events, arrays = [], []
    for seed in range(1, seeds + 1):
        interests = interests_of(*size, level, seed)
        events.append(run_events(system_of(name, linger), interests, cycles, seed))
        arrays.append(run_cycles(system_of(name, linger), interests, cycles, seed))
    found = compare(events, arrays)
    limit = students_t.ppf(1 - LEVEL / len(found) / 2, seeds - 1)
    shown = "\n".join(f"{key}: events {a:.4f}, cycles {b:.4f}, t {t:.2f}" for key, (a, b, t) in found.items())
    for key, (one, other, t) in found.items():
        share, amount = BOUNDS[key]
        assert abs(t) <= limit, f"{key} differs beyond chance (t above {limit:.2f})\n{shown}"
        assert abs(other - one) <= share * one + amount, f"{key} is too far off\n{shown}"


def test_small_runs_of_both_engines_are_alike():
    assert_alike("vitis", (80, 60, 8), "random", 18, 0, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "level", "cycles", "linger", "seeds"),
    [
        ("vitis", (300, 150, 20), "random", 30, 0, 8),
        ("vitis", (300, 150, 20), "high", 30, 0, 8),
        ("vitis", (300, 250, 20), "low", 20, 6, 8),
        ("vitis", (1000, 500, 50), "random", 30, 0, 4),
        ("rvr", (300, 150, 20), "random", 30, 0, 8),
        ("rvr", (300, 150, 20), "high", 20, 6, 8),
        ("opt", (300, 150, 20), "random", 30, 0, 8),
        ("opt", (300, 150, 20), "high", 20, 0, 8),
    ],
)
def test_runs_of_both_engines_are_alike(name, size, level, cycles, linger, seeds):
    assert_alike(name, size, level, cycles, linger, seeds)
