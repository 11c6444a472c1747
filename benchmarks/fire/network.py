"""Addresses for the brokers of a run, and cuts between them.

Each broker has a *client address*, where MQTT clients connect, and a *peer address*, for the other brokers. With
network namespaces (Linux, root) every broker is in a namespace of its own, with one interface for each of the two. So
the kernel counts the bytes between brokers, and a cut between brokers leaves the clients alone. Without root all
addresses are loopback addresses: then neither the bytes nor cuts are available, and `no_cut` and `no_bytes` say why.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SITES_MAX = 100
_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Place:
    """Where one broker runs. Its name is also the first level of the topics that are published there."""

    index: int
    client_ip: str
    peer_ip: str
    prefix: tuple[str, ...] = ()  # words before a command, so that it runs in the broker's namespace

    @property
    def name(self) -> str:
        return f"s{self.index}"


class Loopback:
    """All brokers in one namespace, each with loopback addresses of its own."""

    kind = "loopback addresses"
    no_cut = "a partition needs network namespaces (Linux, root): run it as root, or in a container with CAP_SYS_ADMIN"
    no_bytes = "bytes between brokers are counted in network namespaces only (Linux, root)"

    def __init__(self, sites: int) -> None:
        net = f"127.{64 + os.getpid() // 256 % 64}.{os.getpid() % 256}"  # so that two runs do not meet
        self.places = [Place(one, f"{net}.{one + 1}", f"{net}.{one + SITES_MAX + 1}") for one in range(sites)]

    def open(self) -> None:
        """Loopback addresses are there already."""

    def cut(self, sides: Sequence[Sequence[int]]) -> None:
        raise NotImplementedError(self.no_cut)

    def heal(self) -> None:
        raise NotImplementedError(self.no_cut)

    def received(self) -> dict[int, int] | None:
        """Return the bytes that each broker has got from other brokers, or None if nobody counts them."""
        return None

    def close(self) -> None:
        """Nothing was made."""


class Namespaces:
    """One namespace for each broker, and one for us, with a switch for clients and a switch for peers.

    A cut moves the peer interfaces of each side to a switch of their own: packets are lost without a word, as when a
    cable is cut. Nothing outside the namespaces is changed.
    """

    kind = "network namespaces"
    no_cut = ""
    no_bytes = ""

    def __init__(self, sites: int) -> None:
        self._run = f"fire{os.getpid()}"
        self._hub = f"{self._run}-hub"
        self._home = -1
        self._switches = 1
        self.places = [
            Place(one, f"10.78.0.{one + 1}", f"10.77.0.{one + 1}", ("ip", "netns", "exec", f"{self._run}-{one}"))
            for one in range(sites)
        ]

    def open(self) -> None:
        _remove_old()
        _ip(f"netns add {self._hub}", *(f"netns add {self._run}-{one.index}" for one in self.places))
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        hub = os.open(_NAMESPACES / self._hub, os.O_RDONLY)
        _enter(hub)
        os.close(hub)
        _ip(
            "link set lo up",
            "link add clients type bridge", "addr add 10.78.0.254/24 dev clients", "link set clients up",
            "link add peers0 type bridge", "link set peers0 up",
        )  # fmt: skip
        for one in self.places:
            space = one.prefix[-1]
            for wire, switch, inside, address in (
                (f"c{one.index}", "clients", "to-clients", one.client_ip),
                (f"p{one.index}", "peers0", "to-peers", one.peer_ip),
            ):
                _ip(
                    f"link add {wire} type veth peer name {inside} netns {space}",
                    f"link set {wire} master {switch}", f"link set {wire} up",
                )  # fmt: skip
                _ip(f"addr add {address}/24 dev {inside}", f"link set {inside} up", "link set lo up", space=space)

    def cut(self, sides: Sequence[Sequence[int]]) -> None:
        """Let brokers of one side reach only each other. Brokers that no side names stay together."""
        for number, side in enumerate(sides, 1):
            if number >= self._switches:
                _ip(f"link add peers{number} type bridge", f"link set peers{number} up")
                self._switches = number + 1
            _ip(*(f"link set p{one} master peers{number}" for one in side))

    def heal(self) -> None:
        _ip(*(f"link set p{one.index} master peers0" for one in self.places))

    def received(self) -> dict[int, int] | None:
        """Return the bytes that each broker has got from other brokers, headers of Ethernet, IP and TCP included."""
        rows = (line.split(":", 1) for line in Path("/proc/net/dev").read_text("ascii").splitlines() if ":" in line)
        sent = {name.strip(): int(rest.split()[8]) for name, rest in rows}
        return {one.index: sent.get(f"p{one.index}", 0) for one in self.places}

    def close(self) -> None:
        """End what still runs in the namespaces, and remove them."""
        if self._home >= 0:
            _enter(self._home)
            os.close(self._home)
            self._home = -1
        for one in self.places:
            _remove(one.prefix[-1])
        _remove(self._hub)


def network(sites: int, *, loopback: bool = False) -> Loopback | Namespaces:
    """Return namespaces where they can be made, else loopback addresses."""
    if not 1 <= sites <= SITES_MAX:
        raise SystemExit(f"--brokers {sites}: give a number between 1 and {SITES_MAX}")
    return Loopback(sites) if loopback or not _can_have_namespaces() else Namespaces(sites)


def _can_have_namespaces() -> bool:
    trial = f"fire{os.getpid()}-trial"
    with suppress(OSError, subprocess.CalledProcessError):
        _ip(f"netns add {trial}")
        try:
            _ip("link add trial type veth peer name other", space=trial)
            _ip("link add switch type bridge", space=trial)
        finally:
            _remove(trial)
        return True
    return False


def _ip(*lines: str, space: str = "") -> None:
    command = ["ip", *(["-n", space] if space else []), "-batch", "-"]
    subprocess.run(command, input="".join(f"{one}\n" for one in lines), text=True, check=True, capture_output=True)


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter the network namespace")


def _remove(space: str) -> None:
    for _ in range(50):
        told = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
        others = [int(pid) for pid in told.stdout.split() if int(pid) != os.getpid()]
        if not others:
            break
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)


def _remove_old() -> None:
    """Remove namespaces of runs that were killed: their names carry the number of a process that has ended."""
    for path in _NAMESPACES.glob("fire*-*"):
        number = path.name.removeprefix("fire").partition("-")[0]
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            _remove(path.name)
