"""Give live nodes the clocks of a simulated host. Sockets and random numbers come from `system.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trellis.live.machine import Machine

if TYPE_CHECKING:
    from trellis.simulate.whole.host import Host


class HostMachine(Machine):
    """The clocks of a host. They show the same as those of `system.py`, but cost less."""

    def __init__(self, host: Host) -> None:
        self._host, self._world = host, host.world

    def wall_s(self) -> float:
        return self._host.wall_s()

    def uptime_s(self) -> float:
        return (self._world.now_us + self._host.boot_us) / 1_000_000

    def monotonic_s(self) -> float:
        return (self._world.now_us + self._host.monotonic_us) / 1_000_000

    def computed_s(self) -> float:
        """Return the processor time of the process.

        Callbacks take no virtual time, so each call adds a drawn amount.
        """
        return self._host.computed_s()
