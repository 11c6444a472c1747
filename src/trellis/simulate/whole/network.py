"""Simulate the network between hosts: addresses, names, paths with latency, bandwidth and loss, and cuts.

A path leads from one host to another. Each direction has its own path, so a cut may stop one direction only. A burst
that is under way when a cut begins arrives. A burst that is sent into a cut is lost, and TCP retransmits it (`tcp.py`).
"""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from trellis.errors import InputError, TrellisError

if TYPE_CHECKING:
    from trellis.simulate.whole.host import Host
    from trellis.simulate.whole.world import World

_LOOPBACK_US = 15


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a network. Times are microseconds, sizes are bytes."""

    latency_us_low: int = 100
    """Shortest latency of a path. Each path draws its own between this and `latency_us_high`."""

    latency_us_high: int = 2_000
    """Longest latency of a path."""

    jitter_us: int = 200
    """Longest random delay that is added to each burst."""

    bytes_per_s: int = 125_000_000
    """Bandwidth of each path. The default is 1 Gbit/s."""

    loss: float = 0.0
    """Probability that a burst of segments is lost, and arrives only after a retransmission."""

    split: float = 0.05
    """Probability that a burst arrives in two parts, cut anywhere. A higher value costs events."""

    send_buffer: int = 256 << 10
    """Bytes that a kernel keeps for one connection until the other end has them."""

    receive_buffer: int = 256 << 10
    """Bytes that a kernel keeps for one connection until the process reads them."""

    dns_us: int = 500
    """Time that a name server takes to answer. Numeric addresses are not looked up."""

    skew_us: int = 50_000
    """Largest difference between the wall clock of a host and the world's time, in either direction."""

    turn_us_low: int = 5
    """Shortest time that a turn of an event loop takes."""

    turn_us_span: int = 40
    """Largest random time that is added to it for each turn. It changes the order of what hosts do at the same time."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if not value >= 0:
                raise InputError(field, f"it is {value}", "give 0 or more")
        if self.latency_us_high < self.latency_us_low:
            raise InputError("latency_us_high", f"it is {self.latency_us_high}", "give at least latency_us_low")
        for field in ("bytes_per_s", "send_buffer", "receive_buffer", "turn_us_low"):
            if getattr(self, field) < 1:
                raise InputError(field, f"it is {getattr(self, field)}", "give more than 0")
        for field in ("loss", "split"):
            if getattr(self, field) > 1:
                raise InputError(field, f"it is {getattr(self, field)}", "give a probability between 0 and 1")


class Path:
    """One direction between two hosts."""

    __slots__ = ("base_us", "cuts", "free_us", "jitter_us", "loss", "slow_us", "us_per_byte")

    def __init__(self, base_us: int, jitter_us: int, loss: float, us_per_byte: float) -> None:
        self.base_us, self.jitter_us, self.loss, self.us_per_byte = base_us, jitter_us, loss, us_per_byte
        self.cuts = 0  # number of cuts that stop it now
        self.slow_us = 0  # latency that faults add
        self.free_us = 0.0  # when all bytes given to it so far have left the sender


class Cut:
    """Stops all paths from `senders` to `receivers`, given by names of hosts, until `Network.heal`."""

    def __init__(self, senders: frozenset[str], receivers: frozenset[str]) -> None:
        self.senders, self.receivers = senders, receivers

    def stops(self, sender: str, receiver: str) -> bool:
        return sender != receiver and sender in self.senders and receiver in self.receivers


class Network:
    """All paths and names of a world."""

    def __init__(self, world: World, config: NetworkConfig, random: Random) -> None:
        self.world, self.config = world, config
        self.draw, self.split = random.random, config.split
        self.counters: Counter[str] = Counter()
        # name -> addresses that name servers answer; empty: they have no answer
        self.names: dict[str, tuple[str, ...]] = {}
        self._by_address: dict[str, Host] = {}
        self._paths: dict[tuple[str, str], Path] = {}  # by names of sender and receiver
        self._cuts: list[Cut] = []

    def add(self, host: Host) -> None:
        if host.address in self._by_address:
            other = self._by_address[host.address].name
            raise TrellisError(f"{host.name}: {host.address} is the address of {other}; give it another one")
        self._by_address[host.address] = host
        self.names.setdefault(host.name, (host.address,))

    def free_address(self) -> str:
        number = len(self._by_address) + 1
        while (found := f"10.0.{number >> 8}.{number & 255}") in self._by_address:
            number += 1
        return found

    def host_at(self, address: str, asking: Host) -> Host | None:
        return asking if address.startswith("127.") else self._by_address.get(address)

    # Names

    def resolve(self, name: str, asking: Host) -> list[str]:
        """Return the addresses of a name. Raise `socket.gaierror` as a resolver does."""
        if name in ("localhost", ""):
            return ["127.0.0.1"]
        if not name.isascii() or any(not 0 < len(label) < 64 for label in name.removesuffix(".").split(".")):
            raise UnicodeError("label empty or too long")  # the error of the codec "idna" in `socket.getaddrinfo`
        if _is_address(name):
            return [name]
        found = self.names.get(name, ())
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return list(found)

    def dns_s(self, name: Any) -> float:
        is_asked = isinstance(name, str) and not _is_address(name) and name not in ("localhost", "")
        return self.config.dns_us * (0.5 + self.draw()) / 1_000_000 if is_asked else 0.0

    # Paths

    def path(self, sender: Host, receiver: Host) -> Path:
        """Return the path from one host to another. It is made at the first call."""
        pair = (sender.name, receiver.name)
        found = self._paths.get(pair)
        if found is None:
            found = self._paths[pair] = self._make_path(sender, receiver)
        return found

    def _make_path(self, sender: Host, receiver: Host) -> Path:
        config = self.config
        if sender is receiver:
            return Path(_LOOPBACK_US, 0, 0.0, 0.0)
        # Both directions have the same base latency, drawn for the pair.
        first, second = sorted((sender.name, receiver.name))
        random = self.world.random("path", first, second)
        base_us = random.randint(config.latency_us_low, config.latency_us_high)
        path = Path(base_us, config.jitter_us, config.loss, 1_000_000 / config.bytes_per_s)
        path.cuts = sum(one.stops(sender.name, receiver.name) for one in self._cuts)
        return path

    def latency_us(self, path: Path, size: int) -> int:
        """Return how long a burst takes that is given to a path now. It waits for earlier bursts."""
        latency_us = path.base_us + path.slow_us + 1
        if path.jitter_us:
            latency_us += int(self.draw() * path.jitter_us)
        if path.us_per_byte:
            now_us, free_us = self.world.now_us, path.free_us
            path.free_us = free_us = (free_us if free_us > now_us else now_us) + size * path.us_per_byte
            latency_us += int(free_us - now_us)
        return latency_us

    def is_lost(self, path: Path) -> bool:
        """Return whether a burst that is given to a path now is lost."""
        if path.cuts:
            self.counters["lost in a cut"] += 1
            return True
        if path.loss and self.draw() < path.loss:
            self.counters["lost by chance"] += 1
            return True
        return False

    # Called by faults

    def cut(self, senders: Iterable[str], receivers: Iterable[str]) -> Cut:
        """Stop all packets from these senders to these receivers. The other direction needs a cut of its own."""
        cut = Cut(frozenset(senders), frozenset(receivers))
        self._cuts.append(cut)
        self._count_cuts(cut, 1)
        return cut

    def heal(self, cut: Cut) -> None:
        """End a cut. Do nothing if it has already ended."""
        if cut in self._cuts:
            self._cuts.remove(cut)
            self._count_cuts(cut, -1)

    def heal_all(self) -> None:
        for cut in list(self._cuts):
            self.heal(cut)

    def _count_cuts(self, cut: Cut, by: int) -> None:
        for (sender, receiver), path in self._paths.items():
            if cut.stops(sender, receiver):
                path.cuts += by


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
