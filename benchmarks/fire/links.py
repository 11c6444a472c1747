"""Which brokers have a TCP connection with each other, by the kernel's tables."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_ESTABLISHED = "01"
Ends = tuple[tuple[str, int], tuple[str, int]]


def connections(table: str) -> dict[Ends, int]:
    """Return the established connections of a /proc/net/tcp table: (own end, other end) -> inode."""
    found: dict[Ends, int] = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _ESTABLISHED:
            found[_address(fields[1]), _address(fields[2])] = int(fields[9])
    return found


def links(owners: Mapping[Ends, int]) -> set[tuple[int, int]]:
    """Return the pairs of sites of which each has one end of the same connection."""
    pairs = ((site, owners.get((there, here))) for (here, there), site in owners.items())
    return {(min(site, other), max(site, other)) for site, other in pairs if other is not None and site != other}


def owners(pids: Mapping[int, Iterable[int]]) -> dict[Ends, int]:
    """Return the site that owns each end of a connection. `pids`: the processes of each site."""
    found: dict[Ends, int] = {}
    for site, several in pids.items():
        for pid in several:
            with suppress(OSError):
                inodes = _sockets(pid)
                table = Path(f"/proc/{pid}/net/tcp").read_text("ascii")
                found |= {ends: site for ends, inode in connections(table).items() if inode in inodes}
    return found


def _sockets(pid: int) -> set[int]:
    found = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with suppress(OSError):
            name = os.readlink(entry.path)  # noqa: PTH115
            if name.startswith("socket:["):
                found.add(int(name[8:-1]))
    return found


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.partition(":")
    return socket.inet_ntoa(struct.pack("<I", int(host, 16))), int(port, 16)
