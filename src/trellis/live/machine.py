"""The machine that a node runs on: its clocks, its source of chance, and its sockets.

Everything in `live/` that asks the operating system for the time, for random numbers, for an address or for a socket
asks here, or its event loop. An event loop that has an attribute `machine` runs its nodes on that one instead. So whole
nodes can run on simulated clocks and a simulated network.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import time
from random import Random

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Machine:
    def wall_s(self) -> float:
        """Return the seconds since 1970, for people and for incarnations. They may go back."""
        return time.time()

    def uptime_s(self) -> float:
        """Return seconds that never go back, and that count while the process is stopped or the machine sleeps."""
        return time.clock_gettime(_CLOCK)

    def monotonic_s(self) -> float:
        """Return seconds that never go back, for pauses and silences."""
        return time.monotonic()

    def computed_s(self) -> float:
        """Return the seconds that this process has computed so far. Event loops may look at the clock once a turn."""
        return time.process_time()

    def random(self) -> Random:
        """Return a source of chance of its own, for pauses and choices. No secrets are drawn from it."""
        return Random()

    def secret_below(self, bound: int) -> int:
        """Return a number from 0 up to `bound` - 1 that nobody can guess."""
        return secrets.randbelow(bound)

    def listen(self, host: str, port: int, backlog: int) -> socket.socket:
        """Return a listening socket that does not block. Raises OSError."""
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(place[:2], family=family, backlog=backlog)
        listening.setblocking(False)
        return listening

    async def connect(self, host: str, port: int, connect_s: float) -> socket.socket:
        """Return a connected socket, to the first address of the host that answers within `connect_s`.

        Raises ConnectionRefusedError only if nothing listens at any address of the host: that is a proof.
        The loop's own `create_connection` has one limit for the connection and TLS together. A packet that asks for a
        connection and is lost is repeated by the kernel after 1, 3, 7 s; it is better to give up and to ask anew.
        """
        loop = asyncio.get_running_loop()
        errors: list[OSError] = []
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            one = socket.socket(family, kind, protocol)
            try:
                one.setblocking(False)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with asyncio.timeout(connect_s):
                    await loop.sock_connect(one, address)
            except TimeoutError:
                one.close()
                errors.append(OSError(f"no answer within {connect_s:g} s"))
            except OSError as failed:
                one.close()
                errors.append(failed)
            except BaseException:
                one.close()
                raise
            else:
                return one
        raise telling(errors) if errors else OSError(f"{host} has no address")


def telling(errors: list[OSError]) -> OSError:
    """Return the error that tells most of several addresses: a refusal, only if every one of them refuses.

    This machine may lack a kind of address (EADDRNOTAVAIL). That says nothing about the other end.
    """
    told = [one for one in errors if one.errno != errno.EADDRNOTAVAIL] or errors
    return next((one for one in reversed(told) if not isinstance(one, ConnectionRefusedError)), told[-1])


MACHINE = Machine()


def machine() -> Machine:
    """Return the machine of the running event loop, or the real one."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return MACHINE
    found: Machine = getattr(loop, "machine", MACHINE)
    return found
