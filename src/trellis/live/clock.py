"""The clocks of a live node: wall time, time that never goes back, and incarnations.  [machine.py]"""

from __future__ import annotations

from trellis.live.machine import machine

_EPOCH_S = 1_704_067_200  # 2024-01-01. Incarnations are tenths of a second since then. 33 bits last until 2051.


def life_now() -> int:
    """Return the incarnation of a node that starts now: tenths of a second since 2024.

    It grows with every restart of a node, unless the machine's clock is set back in between.
    """
    return int((machine().wall_s() - _EPOCH_S) * 10)


def monotonic_ms() -> int:
    """Return milliseconds that never go back.

    They go on while the process is stopped and, where the system has such a clock, while the machine sleeps.
    """
    return int(machine().uptime_s() * 1_000)


def wall_ms() -> int:
    """Return milliseconds since 1970. They go back when the machine's clock is set back."""
    return int(machine().wall_s() * 1_000)


def wall_s() -> float:
    """Return seconds since 1970. They go back when the machine's clock is set back."""
    return machine().wall_s()


def monotonic_s() -> float:
    """Return seconds that never go back. On most systems they stand still while the machine sleeps."""
    return machine().monotonic_s()
