"""Faults of simulated hosts, connections and paths, by name.

    faults = Faults(world)
    faults.crash("b")                      # the process dies; its kernel closes its connections
    faults.crash_at("c", callbacks=17)     # before the 18th callback from now on: at some `await`
    cut = faults.cut(["a"], ["b"])         # one way; `partition` cuts both ways
    world.run_for(30)
    faults.heal(cut)

Each fault adds a line to the history and is counted in `world.counters`. `world.after` has one happen later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trellis.simulate.whole.host import Host
from trellis.simulate.whole.network import Cut, Path
from trellis.simulate.whole.tcp import End
from trellis.simulate.whole.world import World


class Faults:
    def __init__(self, world: World) -> None:
        self.world = world
        self._asleep: dict[str, int] = {}  # hosts that were suspended, since when

    # Processes and machines. Whoever has started a process starts it again.

    def crash(self, name: str) -> None:
        """Kill the process. Its kernel closes its connections: by FIN, or by RST where something was not read."""
        self._host(name, "crash").end_process()

    def crash_machine(self, name: str) -> None:
        """Stop the machine. Its connections stay half-open at their other ends until something is sent there."""
        self._host(name, "machine crash").crash_machine()

    def crash_at(
        self, name: str, callbacks: int, *, is_machine: bool = False, then: Callable[[], None] = lambda: None
    ) -> None:
        """Crash before a callback of the process runs, after `callbacks` others have run. Call `then` at that time."""
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
        """Stop the process as SIGSTOP does. Its kernel goes on: it accepts connections and acknowledges bytes."""
        loop = self._host(name, "pause").loop
        if loop is not None:
            loop.pause()

    def resume(self, name: str) -> None:
        loop = self._host(name, "resume").loop
        if loop is not None:
            loop.resume()

    def freeze(self, name: str) -> None:
        """Stop the machine with its kernel, as a hypervisor may. Its clocks go on."""
        host = self._host(name, "freeze")
        host.be(up=host.is_up, frozen=host.is_up)

    def thaw(self, name: str) -> None:
        host = self._host(name, "thaw")
        host.be(up=host.is_up)
        if host.loop is not None:
            host.loop.resume()

    def suspend(self, name: str) -> None:
        """Send the machine to sleep: as `freeze`, and its monotonic clock stands still as well."""
        self.freeze(name)
        self._asleep.setdefault(name, self.world.now_us)

    def wake(self, name: str) -> None:
        host, since_us = self.world.host(name), self._asleep.pop(name, self.world.now_us)
        slept_us = self.world.now_us - since_us
        host.monotonic_us -= slept_us
        if host.loop is not None:
            host.loop.shift_timers(slept_us)
        self.thaw(name)

    # What a machine has

    def jump_clock(self, name: str, seconds: float) -> None:
        """Set the clock on the wall forward, or back. Monotonic clocks do not notice."""
        self._host(name, f"clock jump {seconds:g} s").wall_us += round(seconds * 1_000_000)

    def limit_files(self, name: str, spare: int = 0) -> None:
        """Let the process open no more than `spare` further files and sockets."""
        host = self._host(name, f"{spare} files left")
        host.files_max = len(host.sockets) + spare

    def unlimit_files(self, name: str) -> None:
        self._host(name, "files again").files_max = 1 << 20

    def fill_disk(self, name: str) -> None:
        """Let nothing be written to files any more."""
        self._host(name, "disk full").is_disk_full = True

    def empty_disk(self, name: str) -> None:
        self._host(name, "disk empty").is_disk_full = False

    # Connections

    def reset_connections(self, first: str, second: str) -> int:
        """Reset all connections between two hosts, as a firewall does. Return how many there were."""
        ends = self._between(first, second, "reset")
        for end in ends:
            for one in (end, end.peer):
                if one.host.answers:
                    one.was_reset()
        return len(ends)

    def darken_connections(self, first: str, second: str) -> int:
        """Let all present connections between two hosts die silently, as behind a router that has forgotten them.

        New connections work. Return how many there were.
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
        """Stop everything from `senders` to `receivers`; the other direction works."""
        cut = self.world.network.cut(senders, receivers)
        self._note("cut", f"{','.join(sorted(cut.senders))} to {','.join(sorted(cut.receivers))}")
        return cut

    def partition(self, *groups: Sequence[str]) -> list[Cut]:
        """Stop everything between hosts of different groups. Hosts that are in no group see all others."""
        return [self.cut(one, other) for one in groups for other in groups if one is not other]

    def heal(self, *cuts: Cut) -> None:
        for cut in cuts:
            self.world.network.heal(cut)
        self._note("heal", str(len(cuts)))

    def slow(self, first: str, second: str, extra_s: float) -> None:
        """Add to the latency between two hosts, both ways; 0 ends it."""
        self._note("slow", f"{first} {second} {extra_s:g} s")
        for path in self._paths(first, second):
            path.slow_us = round(extra_s * 1_000_000)

    def lose(self, first: str, second: str, probability: float) -> None:
        """Lose bursts between two hosts by chance, both ways. TCP repeats them after a while."""
        self._note("lose", f"{first} {second} {probability:g}")
        for path in self._paths(first, second):
            path.loss = probability

    def throttle(self, first: str, second: str, bytes_per_s: int) -> None:
        self._note("throttle", f"{first} {second} {bytes_per_s} B/s")
        for path in self._paths(first, second):
            path.us_per_byte = 1_000_000 / bytes_per_s

    def rename(self, name: str, *addresses: str) -> None:
        """Have name servers answer with other addresses, or with none."""
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
