"""The machine that a node runs on: its clocks, its random numbers and its sockets.

Code in `live/` gets the time, random numbers, addresses and sockets from a `Machine` or from its event loop, never
directly from the operating system. `machine()` returns the real machine, unless the running event loop has an attribute
`machine`: then it returns that one. The simulator uses this to run whole nodes on simulated clocks and a simulated
network.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import time
from random import Random

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# Errors which mean that this machine lacks a kind of address, such as IPv6. They say nothing about the other end.
LACKING = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Machine:
    """The real machine: every method asks the operating system."""

    def wall_s(self) -> float:
        """Return the seconds since 1970, for people and for incarnations. The clock may be set back."""
        return time.time()

    def uptime_s(self) -> float:
        """Return seconds since some fixed moment. They never go back, and go on while the process is stopped.

        Where the system has such a clock (Linux), they also go on while the machine sleeps.
        """
        return time.clock_gettime(_CLOCK)

    def monotonic_s(self) -> float:
        """Return seconds that never go back, to measure pauses and silences. They may stop while the machine sleeps."""
        return time.monotonic()

    def computed_s(self) -> float:
        """Return the CPU seconds that this process has used so far.

        Work inside one turn of the event loop is measured with it, since a loop may read its own clock once a turn.
        """
        return time.process_time()

    def random(self) -> Random:
        """Return a new random number generator, for pauses and choices. It must not be used for secrets."""
        return Random()

    def secret_below(self, bound: int) -> int:
        """Return a number from 0 up to `bound` - 1 that nobody can guess."""
        return secrets.randbelow(bound)

    def listen(self, host: str, port: int, backlog: int) -> socket.socket:
        """Return a listening, non-blocking socket on the first address of `host`. Raise OSError if that fails."""
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(address[:2], family=family, backlog=backlog)
        listening.setblocking(False)
        return listening

    async def connect(self, host: str, port: int, connect_s: float) -> socket.socket:
        """Return a socket that is connected to the first address of `host` that accepts.

        Each address is given `connect_s` seconds. Raise OSError if none accepts. The error is a ConnectionRefusedError
        only if every address that this machine can use refuses: callers take that as proof that nothing listens there.

        The loop's `create_connection` is not used, since it has no separate limit for the time before TLS. The kernel
        repeats a lost SYN packet only after 1, 3 and 7 s. It is quicker to give up and to connect again.
        """
        loop = asyncio.get_running_loop()
        errors: list[OSError] = []
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                connecting = socket.socket(family, kind, protocol)
            except OSError as failed:  # The kernel lacks the family of this address. Another address may do.
                errors.append(failed)
                continue
            try:
                connecting.setblocking(False)
                connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with asyncio.timeout(connect_s):
                    await loop.sock_connect(connecting, address)
            except TimeoutError:
                connecting.close()
                errors.append(OSError(f"no answer within {connect_s:g} s"))
            except OSError as failed:
                connecting.close()
                errors.append(failed)
            except BaseException:
                connecting.close()
                raise
            else:
                return connecting
        raise telling(errors) if errors else OSError(f"{host} has no address")


def telling(errors: list[OSError]) -> OSError:
    """Return the most informative of the errors of several addresses: a refusal only if all of them refused.

    Errors of `LACKING` are left out, if there are others.
    """
    telling_ones = [error for error in errors if error.errno not in LACKING] or errors
    return next(
        (error for error in reversed(telling_ones) if not isinstance(error, ConnectionRefusedError)), telling_ones[-1]
    )


MACHINE = Machine()


def machine() -> Machine:
    """Return the machine of the running event loop; the real one if the loop has none, or if no loop runs."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return MACHINE
    of_loop: Machine = getattr(loop, "machine", MACHINE)
    return of_loop
