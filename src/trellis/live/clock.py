"""The clocks of a live node: time for people, time that never goes back, and incarnations."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_EPOCH_S = 1_704_067_200  # 2024-01-01. Lives count tenths of a second from there: 33 bits last until 2051.


def life_now() -> int:
    """Grows with every start of a name, as long as the machine's clock does not go back."""
    return int((time.time() - _EPOCH_S) * 10)


def monotonic_ms() -> int:
    """Goes on while the process is stopped and, where the system can tell, while the machine sleeps."""
    return int(time.clock_gettime(_CLOCK) * 1_000)


def wall_ms() -> int:
    return int(time.time() * 1_000)
