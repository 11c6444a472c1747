"""Simulate the operating system for simulated processes: clocks, random numbers, sockets and files.

The shell uses the standard library for these. While a world is open, the functions below replace those of the library.
Each checks whether the running event loop belongs to a simulated host. If so, the host answers. Otherwise the real
function is called, so the rest of the Python process (a test runner, other threads) sees no difference.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import random
import resource
import socket
import time
from typing import Any

from trellis.simulate.whole.handles import NotSimulated
from trellis.simulate.whole.host import Host
from trellis.simulate.whole.loop import HostLoop
from trellis.simulate.whole.sockets import HostSocket

_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_running = asyncio._get_running_loop
_real: dict[tuple[Any, str], Any] = {}
_users = 0  # number of open worlds


def install() -> None:
    """Replace the functions of the standard library. Each call needs one of `uninstall`."""
    global _users
    _users += 1
    if _users == 1:
        for owner, name, stand_in in _STAND_INS:
            _real[owner, name] = getattr(owner, name)
            setattr(owner, name, stand_in)


def uninstall() -> None:
    """Restore the functions of the standard library when the last world is closed."""
    global _users
    _users -= 1
    if not _users:
        for (owner, name), function in _real.items():
            setattr(owner, name, function)
        _real.clear()


def _host() -> Host | None:
    loop = _running()
    return loop.host if type(loop) is HostLoop else None


# Clocks


def _time() -> float:
    host = _host()
    return _real_time() if host is None else host.wall_s()


def _time_ns() -> int:
    host = _host()
    return _real_time_ns() if host is None else round(host.wall_s() * 1_000_000) * 1_000


def _monotonic() -> float:
    host = _host()
    return _real_monotonic() if host is None else (host.world.now_us + host.monotonic_us) / 1_000_000


def _monotonic_ns() -> int:
    host = _host()
    return _real_monotonic_ns() if host is None else (host.world.now_us + host.monotonic_us) * 1_000


def _process_time() -> float:
    """Return the time of the world. The time that real code computes must not decide what happens in a run."""
    host = _host()
    return _real_process_time() if host is None else host.world.now_us / 1_000_000


def _clock_gettime(clock: int) -> float:
    loop = _running()
    if type(loop) is not HostLoop:
        return _real_clock_gettime(clock)
    host = loop.host
    if clock == _BOOT:
        return (host.world.now_us + host.boot_us) / 1_000_000
    if clock == time.CLOCK_MONOTONIC:
        return (host.world.now_us + host.monotonic_us) / 1_000_000
    return host.wall_s() if clock == time.CLOCK_REALTIME else _real_clock_gettime(clock)


def _gmtime(seconds: float | None = None) -> time.struct_time:
    return _real_gmtime(_time() if seconds is None else seconds)


def _localtime(seconds: float | None = None) -> time.struct_time:
    return _real_localtime(_time() if seconds is None else seconds)


def _sleep(seconds: float) -> None:
    if _host() is not None:
        raise NotSimulated(f"a simulated process must not block for {seconds:g} s: use asyncio.sleep")
    _real_sleep(seconds)


# Random numbers


def _urandom(size: int) -> bytes:
    host = _host()
    return _real_urandom(size) if host is None else host.random.randbytes(size)


def _seed(self: random.Random, a: Any = None, version: int = 2) -> None:
    """Seed a `Random` that is created without a seed from the random numbers of its host."""
    host = _host()
    _real_seed(self, host.random.getrandbits(128) if a is None and host is not None else a, version)


def _getpid() -> int:
    host = _host()
    return _real_getpid() if host is None else 100 + host.starts


# Sockets


class _Socket(socket.socket):
    """A `socket.socket` that gives a simulated process a socket of its host."""

    def __new__(cls, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> Any:
        host = _host()
        if host is not None:
            return HostSocket(host, family, type, max(proto, 0))
        return super().__new__(cls, family, type, proto, fileno)  # type: ignore[call-arg]


def _create_server(address: Any, *, family: int = socket.AF_INET, backlog: int | None = None, **more: Any) -> Any:
    host = _host()
    if host is None:
        return _real_create_server(address, family=family, backlog=backlog, **more)
    made = HostSocket(host, family)
    try:
        made.bind(address)
        made.listen(128 if backlog is None else backlog)
    except BaseException:
        made.close()
        raise
    return made


def _getaddrinfo(
    name: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
) -> list[tuple[Any, ...]]:
    host = _host()
    if host is None:
        return _real_getaddrinfo(name, port, family, type, proto, flags)
    if isinstance(name, bytes):
        name = name.decode("ascii")
    if not name:
        name = "0.0.0.0" if flags & socket.AI_PASSIVE else "127.0.0.1"
    found = host.world.network.resolve(name, host)
    return [
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (one, int(port or 0)))
        for one in found
        if ":" not in one
    ]


# Files are real, so each host needs a folder of its own. Its disk may be full, and its descriptors may run out.


class _FullDisk:
    """A file on a full disk: it can be opened, but nothing can be written to it."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __enter__(self) -> _FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _getrusage(who: int) -> resource.struct_rusage:
    """Return zeros for a simulated process. The real usage is that of the simulator, and differs in every run."""
    return _real_getrusage(who) if _host() is None else resource.struct_rusage([0] * 16)


def _open(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
    host = _host()
    if host is None:
        return _real_open(file, mode, *args, **more)
    if str(file).startswith("/proc/"):  # Its content is about the simulator.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    if not isinstance(file, int) and len(host.sockets) >= host.files_max:  # A number is a file that is already open.
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(file))
    opened = _real_open(file, mode, *args, **more)
    return _FullDisk(opened) if host.is_disk_full and set(mode) & set("wax+") else opened


def _os_open(path: Any, *args: Any, **more: Any) -> int:
    host = _host()
    if host is not None and len(host.sockets) >= host.files_max:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
    return _real_os_open(path, *args, **more)


def _fsync(file: Any) -> None:
    """Do nothing for a simulated process, because fsync is slow. Its files need to survive only simulated crashes."""
    if _host() is None:
        _real_fsync(file)


_real_time, _real_time_ns, _real_sleep = time.time, time.time_ns, time.sleep
_real_monotonic, _real_monotonic_ns, _real_clock_gettime = time.monotonic, time.monotonic_ns, time.clock_gettime
_real_process_time = time.process_time
_real_gmtime, _real_localtime = time.gmtime, time.localtime
_real_urandom, _real_seed, _real_getpid = os.urandom, random.Random.seed, os.getpid
_real_create_server, _real_getaddrinfo, _real_open = socket.create_server, socket.getaddrinfo, io.open
_real_getrusage = resource.getrusage
_real_os_open, _real_fsync = os.open, os.fsync

_STAND_INS: tuple[tuple[Any, str, Any], ...] = (
    (time, "time", _time),
    (time, "time_ns", _time_ns),
    (time, "monotonic", _monotonic),
    (time, "monotonic_ns", _monotonic_ns),
    (time, "clock_gettime", _clock_gettime),
    (time, "process_time", _process_time),
    (time, "gmtime", _gmtime),
    (time, "localtime", _localtime),
    (time, "sleep", _sleep),
    (os, "urandom", _urandom),
    (os, "getpid", _getpid),
    (random, "_urandom", _urandom),
    (random.Random, "seed", _seed),
    (socket, "socket", _Socket),
    (socket, "create_server", _create_server),
    (socket, "getaddrinfo", _getaddrinfo),
    (io, "open", _open),
    (os, "open", _os_open),
    (os, "fsync", _fsync),
    (resource, "getrusage", _getrusage),
)
