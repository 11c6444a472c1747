"""A simulated disk with faults, for stores of simulated nodes and for the tests of the store.

Like a real one, it answers reads from memory: everything that was written, synced or not. A loss of power
(`lose_power`) leaves what was synced, and some of the rest: files that were created, appended to, renamed or removed
since their last sync may be as before or after it, and an unsynced tail may have any length and holes in its sectors.

| fault        | what happens                                                                            |
| ------------ | --------------------------------------------------------------------------------------- |
| `lost_sync`  | a sync returns and does nothing: a disk that lies                                       |
| `sync_error` | a sync fails                                                                            |
| `read_error` | a read fails                                                                            |
| `flip`       | at a loss of power, one bit of what is on the disk changes                              |
| `room`       | bytes that the disk can take. Beyond it an append writes a part and fails               |
| `slow_s`     | mean seconds that a batch takes. The disk has no clock: its driver waits                |
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random

from trellis.store.disk import SyncFailed


class PowerLost(Exception):
    """The machine has lost its power in the middle of an operation (`SimulatedDisk.budget`)."""


@dataclass
class DiskFaults:
    """Chances of faults, each for one operation; see the table above."""

    lost_sync: float = 0.0
    sync_error: float = 0.0
    read_error: float = 0.0
    flip: float = 0.0
    room: int | None = None
    slow_s: float = 0.0


@dataclass
class _File:
    data: bytearray = field(default_factory=bytearray)  # as the kernel shows it
    synced: bytearray = field(default_factory=bytearray)  # what survives for certain
    was_named: bool = False  # the name is on the disk


class SimulatedDisk:
    """A `Disk` in memory."""

    def __init__(self, random: Random, faults: DiskFaults | None = None, sector: int = 512) -> None:
        """`sector`: bytes that are written as a whole or not at all."""
        self.random, self.faults, self.sector = random, faults or DiskFaults(), sector
        self._files: dict[str, _File] = {}
        self._removed: dict[str, _File] = {}  # may come back after a loss of power
        self.counts: dict[str, int] = {}  # faults that have happened, and syncs
        # How many more bytes and other operations until the power is lost. None: it is not.
        self.budget: int | None = None

    # The interface of `Disk`

    @property
    def lag_s(self) -> float:
        """How long a batch waits before it is written."""
        return self.random.uniform(0, 2 * self.faults.slow_s)

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        return len(self._files[name].data) if name in self._files else 0

    def read(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        self._maybe("read_error", self.faults.read_error, OSError(errno.EIO, "a read error"))
        if name not in self._files:
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        return bytes(self._files[name].data[offset : None if size is None else offset + size])

    def append(self, name: str, data: bytes) -> None:
        file = self._files.setdefault(name, _File())
        if self.budget is not None and len(data) > self.budget:
            file.data += data[: self.budget]
            raise PowerLost
        self._pay(len(data))
        room = self.free_bytes()
        file.data += data[:room]
        if room < len(data):
            self._count("full")
            raise OSError(errno.ENOSPC, "no space is left on the disk")

    def cut(self, name: str, size: int) -> None:
        self._pay(1)
        del self._files[name].data[size:]

    def sync(self, name: str) -> None:
        self._pay(1)
        self._count("syncs")
        self._maybe("sync_error", self.faults.sync_error, SyncFailed(f"{name}: an error"))
        if self._is_hit(self.faults.lost_sync):
            self._count("lost_sync")
            return
        file = self._files[name]
        file.synced, file.was_named = bytearray(file.data), True

    def write_whole(self, name: str, data: bytes) -> None:
        self._pay(len(data))
        if len(data) > self.free_bytes():
            raise OSError(errno.ENOSPC, "no space is left on the disk")
        self._maybe("sync_error", self.faults.sync_error, SyncFailed(f"{name}: an error"))
        self._files[name] = _File(bytearray(data), bytearray(data), True)

    def rename(self, old: str, new: str) -> None:
        self._pay(1)
        self._files[new] = self._files.pop(old)

    def remove(self, name: str) -> None:
        self._pay(1)
        file = self._files.pop(name, None)
        if file is not None and file.was_named:
            self._removed[name] = file

    def free_bytes(self) -> int:
        used = sum(len(file.data) for file in self._files.values())
        return max(0, self.faults.room - used) if self.faults.room is not None else 1 << 62

    def close_file(self, name: str) -> None:
        """Do nothing: a file is never open here."""

    def close(self) -> None:
        """Do nothing: nobody else can open this disk."""

    # Faults

    def lose_power(self) -> None:
        """Lose the power: keep what was synced, and a random part of the rest."""
        files, removed = self._files, self._removed
        self._files, self._removed, self.budget = {}, {}, None
        for name, file in sorted(files.items()):
            if file.was_named or self.random.random() < 0.5:
                data = self._torn(file)
                self._files[name] = _File(bytearray(data), bytearray(data), True)
        for name, file in sorted(removed.items()):
            if name not in files and self.random.random() < 0.5:
                self._files[name] = _File(bytearray(file.synced), bytearray(file.synced), True)
        self._flip()

    def flip_bit(self, name: str, offset: int, bit: int = 0) -> None:
        """Change one bit of a file."""
        file = self._files[name]
        for data in (file.data, file.synced):
            if offset < len(data):
                data[offset] ^= 1 << bit

    def _torn(self, file: _File) -> bytearray:
        """Return the synced part of a file, and some of its unsynced tail."""
        start, end = len(file.synced), len(file.data)
        if end <= start:
            return bytearray(file.synced) if self.random.random() < 0.5 else bytearray(file.data)
        kept = end if self.random.random() < 0.3 else self.random.randint(start, end)
        data = bytearray(file.synced) + file.data[start:kept]
        if self.random.random() < 0.5:
            for begin in range(start - start % self.sector, len(data), self.sector):
                if self.random.random() < 0.3:
                    first, last = max(start, begin), min(len(data), begin + self.sector)
                    data[first:last] = bytes(last - first)
        return data

    def _flip(self) -> None:
        names = [name for name, file in sorted(self._files.items()) if file.data]
        if names and self._is_hit(self.faults.flip):
            name = self.random.choice(names)
            self._count("flip")
            self.flip_bit(name, self.random.randrange(self.size(name)), self.random.randrange(8))

    def _is_hit(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance

    def _maybe(self, what: str, chance: float, error: Exception) -> None:
        if self._is_hit(chance):
            self._count(what)
            raise error

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _pay(self, cost: int) -> None:
        if self.budget is not None:
            if cost > self.budget:
                raise PowerLost
            self.budget -= cost
