"""A TCP connection with a short limit of its own, so that an attempt during a cut does not outlast it.

The loop's own `create_connection` has one limit for the connection and TLS together. A packet that asks for a
connection and is lost is repeated by the kernel after 1, 3, 7 s; it is better to give up and to ask anew.
"""

from __future__ import annotations

import asyncio
import socket


async def reach(host: str, port: int, connect_s: float) -> socket.socket:
    """Return a connected socket, to the first address of the host that answers within `connect_s`."""
    loop = asyncio.get_running_loop()
    error = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        one = socket.socket(family, kind, protocol)
        try:
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(connect_s):
                await loop.sock_connect(one, address)
        except TimeoutError:
            one.close()
            error = OSError(f"no answer within {connect_s:g} s")
        except OSError as failed:
            one.close()
            error = failed
        except BaseException:
            one.close()
            raise
        else:
            return one
    raise error
