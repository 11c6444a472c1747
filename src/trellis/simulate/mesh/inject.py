"""Carry out the faults of a schedule on whole nodes, and record each for the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from trellis.judge.history import Disturbed, Down, Left, Up
from trellis.live.shell import LiveNode
from trellis.simulate.mesh.bursts import burst
from trellis.simulate.mesh.crowds import crowd, half_open, watched
from trellis.simulate.mesh.hostile import HOSTILE, LIES, PROGRAMS, Target
from trellis.simulate.mesh.malformed import malformed
from trellis.simulate.mesh.sites import Site
from trellis.simulate.mesh.topics import MQTT as MQTT_TOPICS
from trellis.simulate.mesh.topics import NATIVE, SHARED
from trellis.simulate.mesh.witness import Witness
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.network import Cut
from trellis.simulate.whole.whole import CLIENTS, MQTT, PEERS, Mesh
from trellis.simulate.whole.world import World

_PROGRAMS = {**PROGRAMS, "burst": burst, "crowd": crowd, "half-open": half_open, "malformed": malformed}
_PROGRAMS |= {kind: watched(_PROGRAMS[kind]) for kind in ("flood", "many-topics", "burst", "half-open")}
_FLAP_S = 3.0  # time from the end of one crash of a `flap` to the next crash
_AGAIN_S = 0.5  # pause before a crash that found no running node is tried again
_LOOK_S = 0.25  # how often a leaving node is checked
_LEAVE_S = 35.0  # a node has ended at this time after SIGTERM


class Injector:
    """Applies faults to the world at their times, and keeps what is needed to end them."""

    def __init__(self, world: World, mesh: Mesh, witness: Witness, sites: Iterable[Site] = ()) -> None:
        self.world, self.mesh, self.witness = world, mesh, witness
        self._brokers = {one.name: one for one in sites}
        self._sites = {one.node: one for one in self._brokers.values()}
        self.faults = Faults(world)
        self.counts: Counter[str] = Counter()  # faults that took effect, by kind
        self._attackers = 0  # number of hostile programs so far
        self._later: list[Callable[[], object]] = []  # functions that end the faults that still last
        self._is_healed = False
        # A crash that has found no running node so far. It happens at healing at the latest.
        self._owed: Fault | None = None
        # node -> faults that stop it now; it is free again when the last one has ended
        self._standing: Counter[str] = Counter()

    def plan(self, schedule: Schedule) -> None:
        for fault in schedule.faults:
            self.world.at(1_000 * fault.time_ms, self._happen, fault)

    def heal(self) -> None:
        """End all lasting faults at once, and start the nodes that are down."""
        self._is_healed = True
        self._end_all()
        if self._owed is not None and not self.counts["crash"]:
            self._is_healed = False
            self._happen(replace(self._owed, value=0.0))
            self._is_healed = True
            self._end_all()

    def _end_all(self) -> None:
        for end in list(self._later):
            end()
        assert not self._later

    def _happen(self, fault: Fault) -> None:
        if self._is_healed:
            self.counts["skipped"] += 1
        elif fault.kind == "crash" and not self.counts["crash"] and not self._is_free(fault.nodes[0]):
            self._crash_another(fault)
        elif self._apply(fault):
            self.counts[fault.kind] += 1
        else:
            self.counts["skipped"] += 1

    def _crash_another(self, fault: Fault) -> None:
        """Crash a node that runs, or try again later. Every seed has a crash."""
        free = [name for name in self.mesh.names if self._is_free(name)]
        if free:
            self._happen(replace(fault, nodes=(free[0],)))
        else:
            self._owed = fault
            self.world.after(_AGAIN_S, self._crash_after_all, fault)

    def _crash_after_all(self, fault: Fault) -> None:
        if not self._is_healed and not self.counts["crash"]:
            self._happen(fault)

    def _apply(self, fault: Fault) -> bool:
        """Carry out one fault. Return whether it took effect."""
        who, peer = fault.nodes[0], fault.peers[0] if fault.peers else ""
        faults, lasts_s = self.faults, fault.duration_ms / 1_000
        if fault.kind not in ("partition", "split", "one-way") and who in self.mesh.names and not self._is_free(who):
            return False
        match fault.kind:
            case "crash" | "machine-crash" | "sidecar-crash":
                return self._crash(fault, who, lasts_s)
            case "flap":
                return self._flap(fault, 0)
            case "row":
                return self._row(fault, 0)
            case "leave":
                return self._leave(who, lasts_s)
            case "pause":
                faults.pause(who)
                self._lasts(fault, (who,), lasts_s, lambda: faults.resume(who), is_stop=True)
            case "freeze":
                faults.freeze(who)
                self._lasts(fault, (who,), lasts_s, lambda: faults.thaw(who), is_stop=True)
            case "partition":
                rest = [name for name in self.world.hosts if name not in fault.nodes]
                cuts = faults.partition(fault.nodes, rest)
                self._lasts(fault, fault.nodes, lasts_s, lambda: self._heal(cuts), peers=tuple(rest))
            case "split":
                if not fault.peers:
                    return False
                cuts = faults.partition(fault.nodes, fault.peers)
                self._lasts(fault, fault.nodes, lasts_s, lambda: self._heal(cuts), peers=fault.peers)
            case "one-way":
                if who == peer:
                    return False
                one = faults.cut([who], [peer])
                self._lasts(fault, (who,), lasts_s, lambda: self._heal([one]), peers=(peer,))
            case "reset":
                self._note(fault, 0.0, (who,), (peer,))
                return faults.reset_connections(who, peer) > 0
            case "dark":
                self._note(fault, 10.0, (who,), (peer,))
                return faults.darken_connections(who, peer) > 0
            case "slow":
                faults.slow(who, peer, fault.value)
                self._lasts(fault, (who,), lasts_s, lambda: faults.slow(who, peer, 0.0), peers=(peer,))
            case "lossy":
                faults.lose(who, peer, fault.value)
                self._lasts(fault, (who,), lasts_s, lambda: faults.lose(who, peer, 0.0), peers=(peer,))
            case "clock":
                faults.jump_clock(who, fault.value)
            case "files":
                faults.limit_files(who, int(fault.value))
                self._forgets(who)
                self._lasts(fault, (who,), lasts_s, lambda: faults.unlimit_files(who))
            case "disk":
                faults.fill_disk(who)
                self._forgets(who)
                self._lasts(fault, (), lasts_s, lambda: faults.empty_disk(who))
            case "broker-crash":
                if self.world.host(who).loop is None:
                    return False
                faults.crash(who)
                self._lasts(fault, (who,), lasts_s, self._brokers[who].start)
            case _ if fault.kind in HOSTILE:
                self._attack(fault, who, lasts_s)
            case "broker-pause":
                faults.pause(who)
                self._lasts(fault, (who,), lasts_s, lambda: faults.resume(who))
            case _:
                raise AssertionError(fault.kind)
        return True

    def _attack(self, fault: Fault, who: str, lasts_s: float) -> None:
        """Start a hostile program on a host of its own. Only lies are recorded as a disturbance."""
        self._attackers += 1
        name = f"x{self._attackers}"
        host, random = self.world.host(name), self.world.random("hostile", self._attackers)
        target = self._target(who)
        host.start(_PROGRAMS[fault.kind](target, random))

        def end() -> None:
            host.end_process()
            for session in target.sessions:
                session.finish()

        if fault.kind in LIES:
            self._lasts(fault, (who,), lasts_s, end)
        else:
            self._after(lasts_s, end)

    def _target(self, who: str) -> Target:
        mesh, site = self.mesh, self._sites.get(who)
        return Target(
            who,
            {name: mesh.address(name, PEERS) for name in mesh.names},
            mesh.address(who, CLIENTS),
            mesh.address(who, MQTT) if site is None else site.address,
            mesh.nodes[who].config.cluster,
            (*NATIVE, *SHARED, *MQTT_TOPICS),
            self.witness,
            self.world.host("nowhere").address,
            mesh.nodes[who].config.limits.handshakes_max,
            site is not None,
        )

    def _is_free(self, who: str) -> bool:
        return self.mesh.is_running(who) and not self._standing[who]

    def _crash(self, fault: Fault, who: str, lasts_s: float) -> bool:
        if fault.kind == "machine-crash":
            self.faults.crash_machine(who)
            self._is_down(who, silent=True)
        elif fault.value:
            self._standing[who] += 1
            self.faults.crash_at(who, int(fault.value), then=lambda: self._has_ended(who))
            # A node that does nothing may never run so many callbacks.
            self.world.after(0.5, self._crash_for_sure, who)
        else:
            self.faults.crash(who)
            self._is_down(who)
        self._after(lasts_s + 0.5, lambda: self._start(who))
        return True

    def _flap(self, fault: Fault, turn: int) -> bool:
        """Crash the nodes of the fault in turn, each after the previous one is back."""
        who = fault.nodes[turn % len(fault.nodes)]
        if self._is_healed or (turn == 0 and not self._is_free(who)):
            return False
        lasts_s = fault.duration_ms / 1_000
        if self._is_free(who):
            self._crash(Fault(fault.time_ms, "crash", (who,)), who, lasts_s)
        if turn + 1 < fault.value:
            self.world.after(lasts_s + _FLAP_S, self._flap, fault, turn + 1)
        return True

    def _row(self, fault: Fault, place: int) -> bool:
        """Crash the nodes of the fault one after the other, while the earlier ones are still down."""
        if self._is_healed:
            return False
        who = fault.nodes[place]
        if self._is_free(who):
            self._crash(Fault(fault.time_ms, "crash", (who,)), who, fault.duration_ms / 1_000)
        if place + 1 < len(fault.nodes):
            self.world.after(fault.value, self._row, fault, place + 1)
        return True

    def _forgets(self, who: str) -> None:
        """Note that a sidecar cannot write. It saves nothing until it tries again after the fault."""
        site = self._sites.get(who)
        if site is not None:
            site.is_forgetful = True

    def _is_down(self, who: str, *, leave: bool = False, silent: bool = False) -> None:
        self._standing[who] += 1
        self._has_ended(who, leave=leave, silent=silent)

    def _has_ended(self, who: str, *, leave: bool = False, silent: bool = False) -> None:
        self.witness.add(Down(self.witness.now(), who, leave, silent))
        if who in self._sites:
            self._sites[who].sidecar_is_down()

    def _crash_for_sure(self, who: str) -> None:
        if self.mesh.is_running(who) and self._standing[who]:
            self.faults.crash(who)
            self._has_ended(who)

    def _leave(self, who: str, lasts_s: float) -> bool:
        self.mesh.leave(who)
        self._is_down(who, leave=True)
        self._look_left(who, self.mesh.nodes[who])
        self._after(_LEAVE_S + lasts_s, lambda: self._start(who))
        return True

    def _look_left(self, who: str, node: LiveNode) -> None:
        """Record when the node has left, unless it restarts before that."""
        if self.mesh.nodes[who] is not node:
            return
        if self.mesh.is_running(who):
            self.world.after(_LOOK_S, self._look_left, who, node)
        else:
            self.witness.add(Left(self.witness.now(), who))

    def _start(self, who: str) -> None:
        if self.mesh.is_running(who):  # It has not left yet, or it ran fewer callbacks than the crash waited for.
            self.faults.crash(who)
            self.witness.add(Down(self.witness.now(), who))
        self._standing[who] -= 1
        self.mesh.start(who)
        self.witness.add(Up(self.witness.now(), who))
        if who in self._sites:
            self._sites[who].is_down = False

    def _heal(self, cuts: list[Cut]) -> None:
        self.faults.heal(*cuts)

    def _lasts(
        self,
        fault: Fault,
        nodes: tuple[str, ...],
        seconds: float,
        end: Callable[[], object],
        *,
        peers: tuple[str, ...] = (),
        is_stop: bool = False,
    ) -> None:
        """Record a fault, and end it after its time. A fault with `is_stop` stops its node until then."""
        if is_stop:
            self._standing[nodes[0]] += 1

        def over() -> None:
            if is_stop:
                self._standing[nodes[0]] -= 1
            end()

        self._note(fault, seconds, nodes, peers)
        self._after(seconds, over)

    def _note(self, fault: Fault, seconds: float, nodes: tuple[str, ...], peers: tuple[str, ...] = ()) -> None:
        now = self.witness.now()
        self.witness.add(Disturbed(now, now + seconds, fault.kind, nodes, peers))

    def _after(self, seconds: float, end: Callable[[], object]) -> None:
        def once() -> None:
            if once in self._later:
                self._later.remove(once)
                end()

        self._later.append(once)
        self.world.after(seconds, once)
