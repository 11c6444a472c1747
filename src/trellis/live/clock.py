"""The clocks of a live node: time for people, time that never goes back, and incarnations."""

from __future__ import annotations

from trellis.live.machine import machine

_EPOCH_S = 1_704_067_200  # 2024-01-01. Lives count tenths of a second from there: 33 bits last until 2051.


def life_now() -> int:
    """Grows with every start of a name, as long as the machine's clock does not go back."""
    return int((machine().wall_s() - _EPOCH_S) * 10)


def monotonic_ms() -> int:
    """Goes on while the process is stopped and, where the system can tell, while the machine sleeps."""
    return int(machine().uptime_s() * 1_000)


def wall_ms() -> int:
    return int(machine().wall_s() * 1_000)


def wall_s() -> float:
    return machine().wall_s()


def monotonic_s() -> float:
    """Stands still while the machine sleeps, where the system does so."""
    return machine().monotonic_s()
