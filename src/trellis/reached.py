"""Marks of rare situations in the code, so that a campaign of tests can tell whether it has reached them.

Code calls `reached("a gap is skipped")` where a rare situation begins. In a live node nothing listens, and the call
costs one comparison. A campaign of the simulator listens (`listen`), counts, and fails if a situation was never
reached, since then its tests say nothing about it. FoundationDB has the same under the name of code probes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_heard: Counter[str] | None = None


def reached(situation: str) -> None:
    """Count the situation, if a campaign listens."""
    if _heard is not None:
        _heard[situation] += 1


@contextmanager
def listen() -> Iterator[Counter[str]]:
    """Give a counter of the situations that are reached meanwhile in this process."""
    global _heard
    before, _heard = _heard, Counter()
    try:
        yield _heard
    finally:
        _heard = before
