"""The clocks of a simulated host, as live nodes ask for them. Sockets and chance come as `system.py` gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trellis.live.machine import Machine

if TYPE_CHECKING:
    from trellis.simulate.whole.host import Host


class HostMachine(Machine):
    """Its clocks are those of `system.py`, in less time."""

    def __init__(self, host: Host) -> None:
        self._host, self._world = host, host.world

    def wall_s(self) -> float:
        return self._host.wall_s()

    def uptime_s(self) -> float:
        return (self._world.now_us + self._host.boot_us) / 1_000_000

    def monotonic_s(self) -> float:
        return (self._world.now_us + self._host.monotonic_us) / 1_000_000

    def computed_s(self) -> float:
        """Return how long the process has computed. Callbacks take no virtual time, so each look adds what it draws."""
        return self._host.computed_s()
