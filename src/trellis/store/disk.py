"""The disk below a store: a flat folder of files that are appended to, synced, read and removed.

`Disk` is the whole interface, so that a simulated disk with faults (`simulate/disks.py`) can take the place of the
real one (`FolderDisk`).

D1  What was appended is certain to survive a loss of power only after `sync` has returned.
D2  An error of `sync` says nothing about what is on the disk: the kernel may have dropped the pages. The process must
    end and read its files again. To call `sync` once more proves nothing.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from trellis.errors import InputError

_READERS_MAX = 8  # files that are open for reads
PART = ".part"  # The end of the names of files that are not written whole yet.


class SyncFailed(Exception):
    """A sync has failed, so it is unknown what is on the disk (D2). The process must end."""


class Disk(Protocol):
    """A folder of files."""

    @property
    def lag_s(self) -> float:
        """Seconds to wait before each batch, for a simulated disk that is slow; else 0."""
        ...

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""
        ...

    def size(self, name: str) -> int:
        """Return the bytes of a file; 0 if there is none."""
        ...

    def read(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes of a file, fewer if it ends earlier. Raise OSError if they cannot be read."""
        ...

    def append(self, name: str, data: bytes) -> None:
        """Append to a file, which is created if it is new. Raise OSError if there is no space; then cut it back."""
        ...

    def cut(self, name: str, size: int) -> None:
        """Cut a file back to `size` bytes."""
        ...

    def sync(self, name: str) -> None:
        """Wait until a file, with its name, is on the disk. Raise SyncFailed if that is not certain."""
        ...

    def write_whole(self, name: str, data: bytes) -> None:
        """Write a file and sync it. After a crash it is there as a whole, or not at all."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file, and sync the folder."""
        ...

    def close_file(self, name: str) -> None:
        """Note that a file is not appended to any more."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...

    def free_bytes(self) -> int:
        """Return how many more bytes the disk can take."""
        ...


class FolderDisk:
    """A folder of the real disk. One process at a time may write to it."""

    lag_s = 0.0

    def __init__(self, folder: str | Path, *, writes: bool = True) -> None:
        """Open a folder. `writes`: create it if needed, and lock it for this process."""
        self.folder = Path(folder)
        self._open: dict[str, int] = {}  # file descriptors by name, for appends: of the thread that writes
        self._readers: dict[str, int] = {}  # and for reads: of the thread that reads
        self._is_new: set[str] = set()  # files whose names are not synced yet
        self._lock = -1
        if not writes:
            if not self.folder.is_dir():
                raise InputError(str(folder), "is no folder", "name the folder of a store ([durable] path)")
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            what = f"cannot be used ({error.strerror})"
            raise InputError(str(folder), what, "choose a folder that this user may write") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            remedy = "give each node a folder of its own, or stop the other process"
            raise InputError(str(folder), "another process uses this store", remedy) from error
        for name in self._all_names():
            if name.endswith(PART):
                (self.folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return [name for name in self._all_names() if name != "lock" and not name.endswith(PART)]

    def _all_names(self) -> list[str]:
        with os.scandir(self.folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))

    def size(self, name: str) -> int:
        try:
            return (self.folder / name).stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        handle = self._readers.get(name)
        if handle is None:
            handle = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                os.close(handle)
                raise OSError(f"{name} is no regular file")
            self._readers[name] = handle
            while len(self._readers) > _READERS_MAX:
                oldest = next(iter(self._readers))
                os.close(self._readers.pop(oldest))
        wanted = max(0, os.fstat(handle).st_size - offset) if size is None else size
        return _read(handle, wanted, offset)

    def append(self, name: str, data: bytes) -> None:
        handle = self._open.get(name)
        if handle is None:
            path = self.folder / name
            if not path.exists():
                self._is_new.add(name)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = self._open[name] = os.open(path, flags, 0o600)
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]

    def cut(self, name: str, size: int) -> None:
        with (self.folder / name).open("r+b") as file:
            file.truncate(size)

    def sync(self, name: str) -> None:
        try:
            handle = self._open.get(name)
            if handle is not None:
                os.fdatasync(handle)
            else:
                self._sync_unopened(name)
            if name in self._is_new:
                self._sync_folder()
                self._is_new.discard(name)
        except OSError as error:
            raise SyncFailed(f"{self.folder / name}: {error.strerror}") from error

    def close_file(self, name: str) -> None:
        """Close a file that is not appended to any more."""
        handle = self._open.pop(name, None)
        if handle is not None:
            os.close(handle)

    def write_whole(self, name: str, data: bytes) -> None:
        part = self.folder / (name + PART)
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            try:
                os.fsync(file.fileno())
            except OSError as error:
                raise SyncFailed(f"{part}: {error.strerror}") from error
        self.rename(part.name, name)

    def rename(self, old: str, new: str) -> None:
        (self.folder / old).rename(self.folder / new)
        try:
            self._sync_folder()
        except OSError as error:
            raise SyncFailed(f"{self.folder}: {error.strerror}") from error

    def remove(self, name: str) -> None:
        self.close_file(name)
        (self.folder / name).unlink(missing_ok=True)

    def free_bytes(self) -> int:
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def close(self) -> None:
        """Close all files, and let other processes use the folder."""
        for name in list(self._open):
            self.close_file(name)
        while self._readers:
            os.close(self._readers.popitem()[1])
        if self._lock >= 0:
            with suppress(OSError):
                os.close(self._lock)
            self._lock = -1

    def _sync_unopened(self, name: str) -> None:
        handle = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _sync_folder(self) -> None:
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read(handle: int, size: int, offset: int) -> bytes:
    """Return `size` bytes at `offset`, fewer if the file ends earlier."""
    parts = []
    while size > 0:
        part = os.pread(handle, min(size, 1 << 24), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)
