"""The header of the PROXY protocol, version 2, by which a load balancer tells who connects to it.

The header comes first on a connection, before TLS. Its signature and length are checked before more is read, and it
has at most `BYTES_MAX` bytes. Additional fields (TLVs) are read and not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES = 16
BYTES_MAX = 4 << 10  # most bytes of addresses and additional fields
_LOCAL, _PROXY = 0x20, 0x21  # version 2, and the command
_ADDRESS_BYTES = {0x11: 4, 0x21: 16}  # family and transport (TCP over IPv4, over IPv6) -> bytes of an address


class ProxyError(Exception):
    """A connection that does not begin with a header of version 2."""


def body_bytes(head: bytes) -> int:
    """Return how many bytes follow the first `HEAD_BYTES` of a header. Raise ProxyError if it is none."""
    if head[:12] != SIGNATURE:
        raise ProxyError("it does not begin with a PROXY header of version 2")
    if head[12] not in (_LOCAL, _PROXY):
        raise ProxyError(f"its PROXY header has version and command {head[12]:#04x}")
    length = int.from_bytes(head[14:16], "big")
    if length > BYTES_MAX:
        raise ProxyError(f"its PROXY header has {length} bytes, which is over {BYTES_MAX}")
    return length


def source_in(head: bytes, body: bytes) -> tuple[str, int] | None:
    """Return address and port of the client. None: the load balancer speaks for itself, or tells no IP address."""
    size = _ADDRESS_BYTES.get(head[13])
    if head[12] == _LOCAL or size is None:
        return None
    if len(body) < 2 * size + 4:
        raise ProxyError("its PROXY header is too short for its addresses")
    return str(ipaddress.ip_address(body[:size])), int.from_bytes(body[2 * size : 2 * size + 2], "big")


async def read_proxy_header(loop: asyncio.AbstractEventLoop, accepted: socket.socket) -> tuple[str, int] | None:
    """Read the header from a new connection, and nothing that follows it. Return what `source_in` does.

    Raise ProxyError if it is malformed, and EOFError if the connection ends before it is complete.
    """
    head = await _exactly(loop, accepted, HEAD_BYTES)
    return source_in(head, await _exactly(loop, accepted, body_bytes(head)))


async def _exactly(loop: asyncio.AbstractEventLoop, accepted: socket.socket, count: int) -> bytes:
    """Return the next `count` bytes of a connection."""
    received = bytearray()
    while len(received) < count:
        data = await loop.sock_recv(accepted, count - len(received))
        if not data:
            raise EOFError
        received += data
    return bytes(received)
