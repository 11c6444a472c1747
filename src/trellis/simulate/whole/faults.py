"""Cause faults of simulated hosts, connections and paths, by name.

    faults = Faults(world)
    faults.crash("b")                      # the process ends; its kernel closes its connections
    faults.crash_at("c", callbacks=17)     # before the 18th callback from now on: at some `await`
    cut = faults.cut(["a"], ["b"])         # one way; `partition` cuts both ways
    world.run_for(30)
    faults.heal(cut)

Each fault adds a line to the history and is counted in `world.counters`. `world.after` makes one happen later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trellis.simulate.whole.host import Host
from trellis.simulate.whole.network import Cut, Path
from trellis.simulate.whole.tcp import End
from trellis.simulate.whole.world import World


class Faults:
    """Faults of one world. Faults that last have a second method that ends them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._asleep: dict[str, int] = {}  # suspended host -> since when, in microseconds

    # Processes and machines. The caller that started a process must also restart it.

    def crash(self, name: str) -> None:
        """Kill the process. Its kernel closes its connections: by FIN, or by RST if received bytes were not read."""
        self._host(name, "crash").end_process()

    def crash_machine(self, name: str) -> None:
        """Stop the machine. Its connections stay half-open at their other ends until something is sent there."""
        self._host(name, "machine crash").crash_machine()

    def crash_at(
        self, name: str, callbacks: int, *, is_machine: bool = False, then: Callable[[], None] = lambda: None
    ) -> None:
        """Crash after `callbacks` callbacks of the process have run, before the next one. Call `then` at that time."""
        loop = self.world.host(name).loop

        def crash() -> None:
            if is_machine:
                self.crash_machine(name)
            else:
                self.crash(name)
            then()

        if loop is not None:
            loop.crash_after(callbacks, crash)

    def pause(self, name: str) -> None:
        """Stop the process as SIGSTOP does. Its kernel continues: it accepts connections and acknowledges bytes."""
        loop = self._host(name, "pause").loop
        if loop is not None:
            loop.pause()

    def resume(self, name: str) -> None:
        loop = self._host(name, "resume").loop
        if loop is not None:
            loop.resume()

    def freeze(self, name: str) -> None:
        """Stop the machine with its kernel, as a hypervisor may do. Its clocks continue."""
        host = self._host(name, "freeze")
        host.be(up=host.is_up, frozen=host.is_up)

    def thaw(self, name: str) -> None:
        host = self._host(name, "thaw")
        host.be(up=host.is_up)
        if host.loop is not None:
            host.loop.resume()

    def suspend(self, name: str) -> None:
        """Suspend the machine: as `freeze`, and its monotonic clock stops as well."""
        self.freeze(name)
        self._asleep.setdefault(name, self.world.now_us)

    def wake(self, name: str) -> None:
        """End `suspend`. Timers wait longer by the time for which the monotonic clock stood still."""
        host, since_us = self.world.host(name), self._asleep.pop(name, self.world.now_us)
        slept_us = self.world.now_us - since_us
        host.monotonic_us -= slept_us
        if host.loop is not None:
            host.loop.shift_timers(slept_us)
        self.thaw(name)

    # Resources of a machine

    def jump_clock(self, name: str, seconds: float) -> None:
        """Move the wall clock forward, or back if `seconds` is negative. Monotonic clocks do not change."""
        self._host(name, f"clock jump {seconds:g} s").wall_us += round(seconds * 1_000_000)

    def limit_files(self, name: str, spare: int = 0) -> None:
        """Allow the process at most `spare` further files and sockets."""
        host = self._host(name, f"{spare} files left")
        host.files_max = len(host.sockets) + spare

    def unlimit_files(self, name: str) -> None:
        self._host(name, "files again").files_max = 1 << 20

    def fill_disk(self, name: str) -> None:
        """Make all writes to files fail from now on."""
        self._host(name, "disk full").is_disk_full = True

    def empty_disk(self, name: str) -> None:
        self._host(name, "disk empty").is_disk_full = False

    # Connections

    def reset_connections(self, first: str, second: str) -> int:
        """Reset all connections between two hosts, as a firewall may do. Return how many there were."""
        ends = self._between(first, second, "reset")
        for end in ends:
            for one in (end, end.peer):
                if one.host.answers:
                    one.was_reset()
        return len(ends)

    def darken_connections(self, first: str, second: str) -> int:
        """Drop all further packets of the present connections between two hosts, as a router that has forgotten them.

        New connections work. Return how many connections there were.
        """
        ends = self._between(first, second, "silent death")
        for end in ends:
            end.is_dark = end.peer.is_dark = True
        return len(ends)

    def _between(self, first: str, second: str, what: str) -> list[End]:
        host = self._host(first, f"{what} to {second}")
        return [end for end in host.ends if end.peer is not end and end.peer.host.name == second]

    # Paths

    def cut(self, senders: Iterable[str], receivers: Iterable[str]) -> Cut:
        """Stop all packets from `senders` to `receivers`. The other direction works."""
        cut = self.world.network.cut(senders, receivers)
        self._note("cut", f"{','.join(sorted(cut.senders))} to {','.join(sorted(cut.receivers))}")
        return cut

    def partition(self, *groups: Sequence[str]) -> list[Cut]:
        """Stop all packets between hosts of different groups. Hosts in no group reach all others."""
        return [self.cut(one, other) for one in groups for other in groups if one is not other]

    def heal(self, *cuts: Cut) -> None:
        for cut in cuts:
            self.world.network.heal(cut)
        self._note("heal", str(len(cuts)))

    def slow(self, first: str, second: str, extra_s: float) -> None:
        """Add to the latency between two hosts, in both directions. 0 ends the fault."""
        self._note("slow", f"{first} {second} {extra_s:g} s")
        for path in self._paths(first, second):
            path.slow_us = round(extra_s * 1_000_000)

    def lose(self, first: str, second: str, probability: float) -> None:
        """Lose bursts between two hosts with this probability, in both directions.

        TCP retransmits them after a while.
        """
        self._note("lose", f"{first} {second} {probability:g}")
        for path in self._paths(first, second):
            path.loss = probability

    def throttle(self, first: str, second: str, bytes_per_s: int) -> None:
        self._note("throttle", f"{first} {second} {bytes_per_s} B/s")
        for path in self._paths(first, second):
            path.us_per_byte = 1_000_000 / bytes_per_s

    def rename(self, name: str, *addresses: str) -> None:
        """Make name servers answer with other addresses, or with none."""
        self._note("rename", f"{name} {','.join(addresses)}")
        self.world.network.names[name] = addresses

    def _paths(self, first: str, second: str) -> tuple[Path, Path]:
        one, other = self.world.host(first), self.world.host(second)
        return self.world.network.path(one, other), self.world.network.path(other, one)

    def _host(self, name: str, what: str) -> Host:
        self._note(what.split()[0] if not what.startswith("machine") else "machine crash", f"{name} {what}")
        return self.world.host(name)

    def _note(self, kind: str, about: str) -> None:
        self.world.counters[f"fault {kind}"] += 1
        self.world.say(f"fault {about}")
